"""Each pure function runs alone: pasted beside nothing but `import torch`, it gives the same."""

import builtins
import dis
import functools
import importlib
import inspect
import types

import pytest
import torch
from runs import SCRIPTS
from test_golden import CASES, check

import agrae
import cwgrpo
import fade
import grpo

# B = 2, G = 4, T = 5.
REWARDS = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1]]).double()
RANDOM = torch.Generator().manual_seed(0)
ADVANTAGES = torch.randn(2, 4, generator=RANDOM, dtype=torch.float64)
LOGPROBS = -3 * torch.rand(2, 4, 5, generator=RANDOM, dtype=torch.float64)
LENGTHS = torch.arange(1, 9).view(2, 4) % 5 + 1  # 1 to 5
MASK = (torch.arange(5) < LENGTHS[..., None]).double()  # [B, G, T]
TOKENS = LOGPROBS, ADVANTAGES, MASK
# Calls of the functions that golden.json has no case of, or not of each branch.
CALLS = {
    "common.ppo_clip_loss": lambda f: f(
        LOGPROBS[0],
        LOGPROBS[1],
        ADVANTAGES[0, :, None],
        MASK[0],
        MASK[0] / 7,
        ref_logprobs=LOGPROBS[1],
        beta=0.1,
        entropy=MASK[1],
        entropy_coef=0.2,
    ),
    "agrae.grpo_advantage": lambda f: f(REWARDS),
    "cwgrpo.grpo_advantage": lambda f: f(REWARDS),
    "agrae.agrae_advantage": lambda f: f(ADVANTAGES, REWARDS.mean(1), 0.3, released_weight=True),
    "agrae.format_reward": lambda f: [f("<think>1+1</think> \\boxed{2}"), f("\\boxed{2}")],
    "fade.FadeController": lambda f: f(0.8, alpha_from_entropy=True).step(0.2, 0.7),
    "fade.gradient_mass": lambda f: f(ADVANTAGES, REWARDS),
    "fade.entropy_drift": lambda f: f(ADVANTAGES, LOGPROBS[..., 0], 0.7),
    "fade.log_schedule": lambda f: [f(step, 100, 2.0, 1.5, 30.0) for step in (0, 7, 100)],
    "cwgrpo.covariance_weights": lambda f: [
        f(*TOKENS, means, means == "own") for means in ("responses", "own")
    ],
    "controls.w_reinforce_advantage": lambda f: f(REWARDS),
    "controls.grpo_lead_advantage": lambda f: f(REWARDS, LENGTHS.double()),
    "controls.clip_cov_mask": lambda f: f(
        *TOKENS, 0.1, low=0.1, generator=torch.Generator().manual_seed(0)
    ),
    "statistics.rank1_statistics": lambda f: f(ADVANTAGES),
    "statistics.covariance_statistics": lambda f: f(*TOKENS, MASK),
    "policy_weights.t2t": lambda f: f(REWARDS, MASK.mean(2), 0.5),
    "policy_weights.scaled_power": lambda f: [f(REWARDS), f(REWARDS, easy=True)],
    "policy_weights.ha_dw": lambda f: f(REWARDS, 0.4),
}
# What else uses more than torch: the other ranks, other functions, `re` or numpy.
NOT_PURE = {
    "agrae.difficulty_metrics",
    "asymgrpo.global_kappa",
    "asymgrpo.success_gain",
    "cwgrpo.covariance_metrics",
    "cwgrpo.format_reward",
    "cwgrpo.tokens_kept",
    "cwgrpo.weigh_tokens",
    "fade.choose_weight",
    "fade.head_change",
    "fade.learning_rate_factor",
    "fade.make_controller",
    "policy_weights.try_weight",
    "statistics.fit_pass_at_k",
}
BASELINES = ["controls", "policy_weights", "statistics"]


def module_of(name):
    """A script, or a file of rlvr.baselines."""
    return importlib.import_module(f"rlvr.baselines.{name}" if name in BASELINES else name)


def globals_of(code):
    """The names that the functions compiled into `code` look up outside themselves."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    instructions = [found for part in inner for found in dis.get_instructions(part)]
    names = {found.argval for found in instructions if found.opname == "LOAD_GLOBAL"}
    return names.union(*map(globals_of, inner))


def source_code(function):
    """The function, or class, compiled from its source alone."""
    return compile(inspect.getsource(function), f"<{function.__name__}, pasted>", "exec")


def needs_torch_only(function):
    """Whether it uses nothing else of its own file, also on a branch that no call takes."""
    return globals_of(source_code(function)) <= {"torch", *vars(builtins)}


def paste(function):
    """The function, or class, made again in a file that has only imported torch."""
    if isinstance(function, functools.partial):
        return functools.partial(paste(function.func), **function.keywords)
    namespace = {"torch": torch}
    exec(source_code(function), namespace)
    return namespace[function.__name__]


def definitions(module):
    """What a module defines beside its flags and `main`: <module>.<name> -> function or class."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for name, value in vars(module).items()
        if inspect.isroutine(value) or inspect.isclass(value)
        if value.__module__ == module.__name__
        if name not in ("Config", "main", "compute_advantages")
    }


@pytest.mark.parametrize("name", [*SCRIPTS, *BASELINES])
def test_every_other_function_needs_torch_alone(name):
    for function, value in definitions(module_of(name)).items():
        assert needs_torch_only(value) != (function in NOT_PURE), function


@pytest.mark.parametrize("name", CALLS)
def test_pasted_function(name):
    module, function = name.split(".")
    imported = getattr(module_of(module), function)
    call, pasted = CALLS[name], paste(imported)
    assert pasted is not imported
    torch.testing.assert_close(call(pasted), call(imported), rtol=0, atol=0, equal_nan=True)


PASTED_CASES = [
    case for case in CASES if case["function"] not in ("common.pass_at_k", "common.answer_entropy")
]


@pytest.mark.parametrize("case", PASTED_CASES, ids=lambda case: case["function"])
def test_golden_values_of_pasted_functions(monkeypatch, case):
    """The loss, the advantages and the weights, each alone in a file of its own."""
    function = case["function"].replace("kl_penalty", "ppo_clip_loss").removesuffix(".step")
    module, name, *key = function.rstrip("]").replace("[", ".").split(".")
    module = importlib.import_module(module)
    if key:
        monkeypatch.setitem(fade.POLICY_WEIGHTS, *key, paste(fade.POLICY_WEIGHTS[key[0]]))
    else:
        monkeypatch.setattr(module, name, paste(getattr(module, name)))
    check(case)


@pytest.mark.parametrize("module", [agrae, cwgrpo])
def test_copies_of_grpo_advantage_are_copies(module):
    """Each script is read alone, so these repeat it; a correction must reach all three."""
    assert inspect.getsource(module.grpo_advantage) == inspect.getsource(grpo.grpo_advantage)

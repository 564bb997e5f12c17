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

import agrae
import cwgrpo
import fade
import grpo

# B = 4, G = 4, T = 5. A group that is all wrong, one that is all right, and two mixed ones.
REWARDS = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 1]]).double()
RANDOM = torch.Generator().manual_seed(0)


def random(*shape):
    return torch.randn(*shape, generator=RANDOM, dtype=torch.float64)


ADVANTAGES = random(4, 4)
SUCCESS_RATE = REWARDS.mean(1)  # [B]
LOGPROBS = -random(4, 4).abs()  # [B, G]
TOKEN_LOGPROBS = -3 * random(4, 4, 5).abs()  # [B, G, T]
LENGTHS = torch.arange(1, 17).view(4, 4, 1) % 5 + 1  # 1 to 5
MASK = (torch.arange(5) < LENGTHS).double()  # [B, G, T]
SIGNALS = [(0.2, 0.7), (0.9, 0.1), (0.0, 0.3), (0.6, 1.5)]  # solve rates and entropies
CONTROLS = ["positive_dominant", "negative_dominant", "hard_focused", "easy_focused"]


def draw(clip_cov_mask):
    """The same seed for both calls, and a fraction that drops some tokens."""
    generator = torch.Generator().manual_seed(0)
    return clip_cov_mask(TOKEN_LOGPROBS, ADVANTAGES, MASK, 0.1, low=0.1, generator=generator)


def steps_of(controller_class):
    """alpha and delta of some steps."""
    controller = controller_class(0.8)
    return [controller.step(*signal) for signal in SIGNALS]


def both_scales(grpo_advantage):
    return grpo_advantage(REWARDS), grpo_advantage(REWARDS, scale_rewards=False)


CALLS = {
    "common.ppo_clip_loss": lambda f: [
        f(
            TOKEN_LOGPROBS[0],
            TOKEN_LOGPROBS[1],
            ADVANTAGES[0, :, None],
            MASK[0],
            MASK[0] / 7,
            **more,
        )
        for more in (
            {},
            dict(importance_sampling_level="sequence", epsilon_high=0.3),
            dict(ref_logprobs=TOKEN_LOGPROBS[2], beta=0.1, entropy=MASK[1], entropy_coef=0.2),
        )
    ],
    "grpo.grpo_advantage": both_scales,
    "agrae.grpo_advantage": both_scales,
    "cwgrpo.grpo_advantage": both_scales,
    "grpo.negative_only": lambda f: f(ADVANTAGES),
    "agrae.agrae_advantage": lambda f: [
        f(ADVANTAGES, SUCCESS_RATE, 0.3, 0.5, released_weight=released)
        for released in (False, True)
    ],
    "rlvr.baselines.controls.controlled_advantage": lambda f: [
        f(ADVANTAGES, SUCCESS_RATE, variant) for variant in CONTROLS
    ],
    "rlvr.baselines.controls.w_reinforce_advantage": lambda f: f(REWARDS),
    "rlvr.baselines.controls.grpo_lead_advantage": lambda f: f(
        REWARDS, LENGTHS.view(4, 4).double()
    ),
    "agrae.format_reward": lambda f: [f("<think>1+1</think> \\boxed{2}"), f("\\boxed{2}")],
    "asymgrpo.asymgrpo_advantage": lambda f: [
        f(REWARDS, 0.9, 0.4, flip) for flip in ("none", "positive", "negative")
    ],
    "asymgrpo.reward_confidence_alignment": lambda f: f(REWARDS, LOGPROBS),
    "fade.fade_advantage": lambda f: [f(REWARDS, 2.0, 0.5), f(REWARDS, 2.0, 0.5, mean=0.3)],
    "fade.FadeController": steps_of,
    "fade.gradient_mass": lambda f: f(ADVANTAGES, REWARDS),
    "fade.entropy_drift": lambda f: f(ADVANTAGES, LOGPROBS, 0.7),
    "rlvr.baselines.statistics.rank1_statistics": lambda f: f(ADVANTAGES),
    "fade.log_schedule": lambda f: [f(step, 100, 2.0, 1.5, 30.0) for step in (0, 7, 100)],
    "cwgrpo.covariance_weights": lambda f: [
        f(TOKEN_LOGPROBS, ADVANTAGES, MASK, means, means == "own")
        for means in ("tokens", "responses", "own")
    ],
    "rlvr.baselines.controls.clip_cov_mask": draw,
    "rlvr.baselines.statistics.covariance_statistics": lambda f: f(
        TOKEN_LOGPROBS, ADVANTAGES, MASK, MASK
    ),
}
# What else the scripts define uses more than torch: the other ranks, other functions, or `re`.
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
}
# What an entry of fade.POLICY_WEIGHTS takes beside the rewards, where it takes something.
WEIGHT_ARGUMENTS = {
    "t2t": {"lengths": MASK.mean(2), "alpha": 0.5},
    "analytic_pass_k": {"k": 2},
    "mix_pass_k": {"k": 2},
    "power": {"alpha": 2.0},
    "scaled_power": {"alpha": 3.0},
    "easy_power": {"alpha": 3.0},
    "asym_power": {"alpha_s": 2.0, "alpha_f": 1.5},
    "asym": {"delta": 0.5},
    "shifted": {"delta": 0.01},
    "quantile": {"tau": 0.3},
    "power_norm": {"gamma": 0.25},
    "softmax": {"beta": 2.0},
    "logmeanexp": {"beta": 2.0},
    "ha_dw": {"baseline": 0.4},
}


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
    assert needs_torch_only(function)
    namespace = {"torch": torch}
    exec(source_code(function), namespace)
    return namespace[function.__name__]


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", CALLS)
def test_pasted_function(name):
    module, _, attribute = name.rpartition(".")
    imported = getattr(importlib.import_module(module), attribute)
    pasted = paste(imported)
    assert pasted is not imported
    assert_same(CALLS[name](pasted), CALLS[name](imported))


@pytest.mark.parametrize("module", [agrae, cwgrpo])
def test_copies_of_grpo_advantage_are_copies(module):
    """Each script is read alone, so these repeat it; a correction must reach all three."""
    assert inspect.getsource(module.grpo_advantage) == inspect.getsource(grpo.grpo_advantage)


@pytest.mark.parametrize("name", fade.POLICY_WEIGHTS)
def test_pasted_policy_weight(name):
    """A partial has its function pasted, and the arguments that it fixes beside the call's."""
    imported = fade.POLICY_WEIGHTS[name]
    function, fixed = imported, {}
    if isinstance(imported, functools.partial):
        function, fixed = imported.func, imported.keywords
        assert not imported.args
    arguments = WEIGHT_ARGUMENTS.get(name, {})
    pasted = paste(function)
    assert pasted is not function
    assert_same(pasted(REWARDS, **{**fixed, **arguments}), imported(REWARDS, **arguments))


def definitions(script):
    """What a script defines beside its flags and `main`: <script>.<name> -> function or class."""
    module = importlib.import_module(script)
    return {
        f"{script}.{name}": value
        for name, value in vars(module).items()
        if inspect.isroutine(value) or inspect.isclass(value)
        if value.__module__ == script and name not in ("Config", "main", "compute_advantages")
    }


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_pure_function_is_pasted(script):
    """A function that is new has to stand in a table above."""
    weights = {f"fade.{name}" for name in fade.POLICY_WEIGHTS}
    for name, function in definitions(script).items():
        pasted = name in CALLS or name in weights
        assert needs_torch_only(function) == pasted, name
        assert pasted != (name in NOT_PURE), name

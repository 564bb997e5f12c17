"""Each pure function runs alone: its source, pasted beside nothing but `import torch`, gives the same numbers."""
import ast
import builtins
import dis
import functools
import importlib
import importlib.util
import inspect
import textwrap
import types

import pytest
import torch

# B = 4, G = 4, T = 5. A group that is all wrong, one that is all right, and two mixed ones.
REWARDS = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 1]], dtype=torch.float64)
RANDOM = torch.Generator().manual_seed(0)


def random(*shape):
    return torch.randn(*shape, generator=RANDOM, dtype=torch.float64)


ADVANTAGES = random(4, 4)
SUCCESS_RATE = REWARDS.mean(1)  # [B]
LOGPROBS = -random(4, 4).abs()  # [B, G]
TOKEN_LOGPROBS = -3 * random(4, 4, 5).abs()  # [B, G, T]
MASK = (torch.arange(5) < torch.arange(1, 17).view(4, 4, 1) % 5 + 1).double()  # [B, G, T], lengths 1 to 5


def drawn(function):
    """clip_cov_mask draws tokens: the same seed for both calls, and a fraction that drops some."""
    return function(TOKEN_LOGPROBS, ADVANTAGES, MASK, fraction=0.1, low=0.1, generator=torch.Generator().manual_seed(0))


def controlled(controller_class):
    """Some steps of the controller, after each of which alpha and delta are noted."""
    controller = controller_class(0.8)
    return [controller.step(reward, entropy) for reward, entropy in ((0.2, 0.7), (0.9, 0.1), (0.0, 0.3), (0.6, 1.5))]


CALLS = {
    "common.kl_penalty": lambda f: f(LOGPROBS, ADVANTAGES),
    "grpo.grpo_advantage": lambda f: (f(REWARDS), f(REWARDS, scale_rewards=False)),
    "agrae.grpo_advantage": lambda f: (f(REWARDS), f(REWARDS, scale_rewards=False)),
    "cwgrpo.grpo_advantage": lambda f: (f(REWARDS), f(REWARDS, scale_rewards=False)),
    "grpo.negative_only": lambda f: f(ADVANTAGES),
    "agrae.agrae_advantage": lambda f: f(ADVANTAGES, SUCCESS_RATE, 0.3, 0.5),
    "agrae.controlled_advantage": lambda f: [f(ADVANTAGES, SUCCESS_RATE, variant) for variant in (
        "positive_dominant", "negative_dominant", "hard_focused", "easy_focused")],
    "agrae.w_reinforce_advantage": lambda f: f(REWARDS),
    "asymgrpo.asymgrpo_advantage": lambda f: [f(REWARDS, flip=flip) for flip in ("none", "positive", "negative")],
    "asymgrpo.reward_confidence_alignment": lambda f: f(REWARDS, LOGPROBS),
    "fade.fade_advantage": lambda f: f(REWARDS, 2.0, 0.5),
    "fade.FadeController": controlled,
    "fade.gradient_mass": lambda f: f(ADVANTAGES, REWARDS),
    "fade.entropy_drift": lambda f: f(ADVANTAGES, LOGPROBS, 0.7),
    "fade.rank1_statistics": lambda f: f(ADVANTAGES),
    "fade.log_schedule": lambda f: [f(step, 100, 2.0, 1.5, 30.0) for step in (0, 7, 100)],
    "cwgrpo.covariance_weights": lambda f: f(TOKEN_LOGPROBS, ADVANTAGES, MASK),
    "cwgrpo.clip_cov_mask": drawn,
    "cwgrpo.covariance_statistics": lambda f: f(TOKEN_LOGPROBS, ADVANTAGES, MASK, MASK),
}
# What an entry of fade.POLICY_WEIGHTS takes beside the rewards.
WEIGHT_ARGUMENTS = {
    "reinforce": {}, "mean": {}, "grpo": {}, "skew_r": {}, "maxrl": {}, "pass_k": {}, "analytic_pass_k": {"k": 2},
    "mix_pass_k": {"k": 2}, "power": {"alpha": 2.0}, "asym_power": {"alpha_s": 2.0, "alpha_f": 1.5},
    "asym": {"delta": 0.5}, "shifted": {"delta": 0.01}, "quantile": {"tau": 0.3}, "median": {},
    "binary_contrastive": {}, "power_norm": {"gamma": 0.25}, "softmax": {"beta": 2.0}, "logmeanexp": {"beta": 2.0},
    "relu": {}}


def load(module):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module}.py does not exist yet")
    return importlib.import_module(module)


def globals_of(code):
    """The names that the functions compiled into `code` look up outside themselves, on every branch."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    names = {i.argval for part in inner for i in dis.get_instructions(part) if i.opname == "LOAD_GLOBAL"}
    return names.union(*map(globals_of, inner))


def paste(source, name):
    """What `name` is after running `source` in a file that has only imported torch."""
    code = compile(textwrap.dedent(source), f"<{name}, pasted>", "exec")
    assert globals_of(code) <= {"torch", *vars(builtins)}, "uses something of its own file"
    namespace = {"torch": torch}
    exec(code, namespace)
    return namespace[name]


def assert_same(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", CALLS)
def test_pasted_function(name):
    module, attribute = name.split(".")
    imported = getattr(load(module), attribute)
    pasted = paste(inspect.getsource(imported), attribute)
    assert pasted is not imported
    assert_same(CALLS[name](pasted), CALLS[name](imported))


@pytest.mark.parametrize("module", ["agrae", "cwgrpo"])
def test_copies_of_grpo_advantage_are_copies(module):
    """Each script is to be read alone, so these repeat the function; a correction must reach all three."""
    assert inspect.getsource(load(module).grpo_advantage) == inspect.getsource(load("grpo").grpo_advantage)


def lambda_source(module, key):
    """The text of the lambda under `key` in a dict of `module`; inspect.getsource would return whole lines."""
    source = inspect.getsource(module)
    nodes = [value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict)
             for name, value in zip(node.keys, node.values)
             if isinstance(name, ast.Constant) and name.value == key and isinstance(value, ast.Lambda)]
    assert len(nodes) == 1
    return ast.get_source_segment(source, nodes[0])


@pytest.mark.parametrize("key", WEIGHT_ARGUMENTS)
def test_pasted_policy_weight(key):
    fade = load("fade")
    imported, kwargs = fade.POLICY_WEIGHTS[key], WEIGHT_ARGUMENTS[key]
    function, fixed = imported, {}
    if isinstance(imported, functools.partial):
        function, fixed = imported.func, imported.keywords
        assert not imported.args
    if function.__name__ == "<lambda>":
        pasted = paste(f"pasted = ({lambda_source(fade, key)})", "pasted")
    else:
        pasted = paste(inspect.getsource(function), function.__name__)
    assert_same(pasted(REWARDS, **{**fixed, **kwargs}), imported(REWARDS, **kwargs))


def test_every_policy_weight_is_pasted():
    assert set(load("fade").POLICY_WEIGHTS) == set(WEIGHT_ARGUMENTS)

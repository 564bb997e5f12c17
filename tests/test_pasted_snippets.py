"""Each pure function runs alone: pasted beside nothing but `import torch`."""

import builtins
import dis
import importlib
import inspect
import types

import pytest
import torch
from runs import SCRIPTS

# What else uses more than torch: the other ranks, other functions, or `re`.
NOT_PURE = """agrae.difficulty_metrics asymgrpo.global_kappa asymgrpo.success_gain
cwgrpo.format_reward cwgrpo.weigh_tokens
fade.head_change fade.learning_rate_factor studies.baselines.advantages.batch_std
studies.baselines.advantages.gdpo studies.baselines.advantages.named
studies.baselines.losses.loss_with""".split()
OF_A_RUN = ("Config", "configure", "main", "compute_advantages")


def globals_of(code):
    """The names that the functions compiled into `code` look up outside themselves."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    instructions = [found for part in inner for found in dis.get_instructions(part)]
    names = {found.argval for found in instructions if found.opname == "LOAD_GLOBAL"}
    return names.union(*map(globals_of, inner))


@pytest.mark.parametrize(
    "name", [*SCRIPTS, "studies.baselines.advantages", "studies.baselines.losses"]
)
def test_every_other_function_needs_torch_alone(name):
    """Also on a branch that no call takes, and where it is defined."""
    for function, value in vars(importlib.import_module(name)).items():
        if getattr(value, "__module__", "") != name or function in OF_A_RUN:
            continue
        code = compile(inspect.getsource(value), f"<{function}, pasted>", "exec")
        is_pure = globals_of(code) <= {"torch", *vars(builtins)}
        assert is_pure != (f"{name}.{function}" in NOT_PURE), function
        if is_pure:
            exec(code, {"torch": torch})


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.long, torch.bool]
)
def test_pasted_advantages_take_any_rewards(dtype):
    """A group of two kinds, one of equal rewards, and one with a NaN, which is not hidden."""
    for script, name, given in (
        ("grpo", "grpo_advantage", ()),
        ("asymgrpo", "asymgrpo_advantage", ()),
        ("fade", "fade_advantage", (2.0, 0.5)),
    ):
        function = getattr(importlib.import_module(script), name)
        exec(inspect.getsource(function), pasted := {"torch": torch})
        rewards = torch.tensor([[1.0, 0, 0], [1, 1, 1]]).to(dtype)
        found = pasted[name](rewards, *given)
        torch.testing.assert_close(
            found.double(), function(rewards.double(), *given), rtol=0.02, atol=0
        )
        if dtype.is_floating_point:
            assert found.dtype == dtype
            assert (
                pasted[name](rewards * torch.tensor([torch.nan, 1, 1]), *given)[:, 0].isnan().all()
            )

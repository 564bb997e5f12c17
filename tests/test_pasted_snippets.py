"""Each pure function runs alone, pasted beside nothing but `import torch`."""

import builtins
import dis
import importlib
import inspect
import types

import pytest
import torch
from runs import SCRIPTS

import agrae
import common
import cwgrpo
import grpo

BASELINES = ["controls", "policy_weights", "statistics"]
# What uses more than torch: the other ranks, other functions, `re` or numpy.
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


def globals_of(code):
    """The names that the functions compiled into `code` look up outside themselves."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    instructions = [found for part in inner for found in dis.get_instructions(part)]
    names = {found.argval for found in instructions if found.opname == "LOAD_GLOBAL"}
    return names.union(*map(globals_of, inner))


def needs_torch_only(function):
    """Whether a function or class uses nothing else of its file, also on a branch seldom taken."""
    code = compile(inspect.getsource(function), "pasted.py", "exec")
    if not globals_of(code) <= {"torch", *vars(builtins)}:
        return False
    exec(code, {"torch": torch})  # and to define it, too
    return True


def definitions(module):
    """What a module defines beside its flags and `main`: <module>.<name> -> function or class."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for name, value in vars(module).items()
        if inspect.isroutine(value) or inspect.isclass(value)
        if value.__module__ == module.__name__
        if name not in ("Config", "main", "compute_advantages")
    }


@pytest.mark.parametrize("module", [*SCRIPTS, *(f"rlvr.baselines.{name}" for name in BASELINES)])
def test_every_other_function_needs_torch_alone(module):
    for name, value in definitions(importlib.import_module(module)).items():
        assert needs_torch_only(value) != (name in NOT_PURE), name


def test_the_loss_needs_torch_alone():
    assert needs_torch_only(common.ppo_clip_loss)


@pytest.mark.parametrize("module", [agrae, cwgrpo])
def test_copies_of_grpo_advantage_are_copies(module):
    """Each script is read alone, so these repeat it; a correction must reach all three."""
    assert inspect.getsource(module.grpo_advantage) == inspect.getsource(grpo.grpo_advantage)

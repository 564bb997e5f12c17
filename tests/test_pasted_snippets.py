"""Each pure function runs alone: pasted beside nothing but `import torch`."""

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

import fade

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

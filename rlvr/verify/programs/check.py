"""Run assertions apart from the program, whose names are stand-ins here."""

import ast
import builtins
import contextlib
import importlib
import sys

from rlvr.verify.programs.solution import start
from rlvr.verify.programs.values import Program, Remote


def main() -> None:
    """Run the tests, and write "passed" or "failed"."""
    pipe, _ = start()
    tests = pipe.read()
    pipe.write("passed" if passes(tests, Program(pipe.ask)) else "failed")


def passes(tests: str, program: Program) -> bool:
    """Return whether the tests run to their end and have asked the program for something."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    try:
        vars(module).update(names_of_program(tests, program))
        exec(compile(tests, "tests.py", "exec", dont_inherit=True), vars(module))
    except SystemExit as end:
        return not end.code and program.was_asked
    except BaseException:
        return False
    return program.was_asked


def names_of_program(tests: str, program: Program) -> dict:
    """Return those of the tests' names that the program defines.

    A name such as `math` in `math.isclose` is the module of the standard library. A name such as
    `abs` is Python's own, unless the tests use no other name of the program.
    """
    nodes = [*ast.walk(ast.parse(tests))]
    used = [node.id for node in nodes if isinstance(node, ast.Name)]
    owners = [node.value for node in nodes if isinstance(node, ast.Attribute)]
    owners = [node.id for node in owners if isinstance(node, ast.Name)]
    modules = {
        name: importlib.import_module(name)
        for name in sys.stdlib_module_names.intersection(owners)
        if owners.count(name) == used.count(name)
    }
    solution = program.module()
    own = {}
    for name in set(used).difference(modules):
        with contextlib.suppress(AttributeError):
            own[name] = program.ask(getattr, solution, name)
    own = {name: value for name, value in own.items() if not hasattr(builtins, name)} or own
    program.was_asked = any(not isinstance(value, Remote) for value in own.values())
    return own | modules

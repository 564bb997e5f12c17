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

    `math` is the module of the standard library if the tests only use it as in `math.isclose`. A
    name such as `abs` is Python's own, unless the tests use no other name of the program.
    """
    nodes = [*ast.walk(ast.parse(tests))]
    owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    called = {node.id for node in names if id(node) not in owners}
    used = {node.id for node in names}
    alone = (used - called) & sys.stdlib_module_names
    modules = {name: importlib.import_module(name) for name in alone}
    solution = program.module()
    own = {}
    for name in used - alone:
        with contextlib.suppress(AttributeError):
            own[name] = program.ask(getattr, solution, name)
    own = {name: value for name, value in own.items() if not hasattr(builtins, name)} or own
    program.was_asked = any(not isinstance(value, Remote) for value in own.values())
    return own | modules

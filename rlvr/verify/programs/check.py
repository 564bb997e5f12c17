"""Run assertions apart from the program, whose names are stand-ins here."""

import ast
import builtins
import contextlib
import importlib
import sys

from rlvr.verify.programs.solution import start
from rlvr.verify.programs.values import Program, Remote


def main() -> None:
    """Write "passed" if the tests run to their end and ask the program for something."""
    pipe, _ = start()
    tests, program, passed = pipe.read(), Program(pipe.ask), True
    module = sys.modules["__main__"] = type(sys)("__main__")
    try:
        vars(module).update(names_of_program(tests, program))
        exec(compile(tests, "tests.py", "exec", dont_inherit=True), vars(module))
    except SystemExit as end:
        passed = not end.code
    except BaseException:
        passed = False
    pipe.write("passed" if passed and program.was_asked else "failed")


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

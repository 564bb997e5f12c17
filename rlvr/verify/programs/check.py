"""What judges assertions: they run here, apart from the program, and ask it by lines of JSON.

The program's functions are stand-ins here. Calling one asks the program's own process, from which
only plain values come back, so that no object of the program takes part in a comparison.
"""

import ast
import builtins
import importlib
import operator
import sys
from collections import Counter

from rlvr.verify.programs.solution import Pipe, confine
from rlvr.verify.programs.values import decode, encode


def main() -> None:
    """Run a text of tests, and say "passed" or "failed"."""
    pipe = Pipe()
    confine(pipe.read())
    passed = passes(pipe.read(), Program(pipe))
    pipe.write("passed" if passed else "failed")


def passes(tests: str, program: "Program") -> bool:
    """Whether the tests run to their end, and have asked something of the program."""
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


def names_of_program(tests: str, program: "Program") -> dict:
    """What of the tests' names the program defines.

    A name like `math` in `math.isclose` is the standard library's module. A name like `abs` is
    Python's own, unless nothing else in the tests is the program's.
    """
    nodes = [*ast.walk(ast.parse(tests))]
    used = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    owners = [node.value for node in nodes if isinstance(node, ast.Attribute)]
    owners = Counter(node.id for node in owners if isinstance(node, ast.Name))
    modules = [
        name for name in owners if name in sys.stdlib_module_names and owners[name] == used[name]
    ]
    find = ["object", 0]  # the program's side looks names up by it
    found = program.ask(find, [name for name in used if name not in modules])
    own = {name: value for name, value in found.items() if name in used}
    own = {name: value for name, value in own.items() if not hasattr(builtins, name)} or own
    program.was_asked = any(not isinstance(value, Remote) for value in own.values())
    return {**own, **{name: importlib.import_module(name) for name in modules}}


class Program:
    """The program behind the pipe."""

    def __init__(self, pipe: Pipe):
        self.pipe = pipe
        self.asked = 0  # the number of the last question
        self.was_asked = False  # whether the tests have had anything of the program
        self.remotes = {}  # number of an object there -> what stands for it here

    def ask(self, function, *arguments, **named):
        """function(*arguments, **named), called by the program.

        Lists, sets and dicts that it has changed are changed here, too. What it raises is raised as
        the built-in exception that it is derived from.
        """
        self.was_asked = True
        self.asked += 1
        number = self.asked
        values = [encode(each, self.refer) for each in arguments]
        named = {name: encode(each, self.refer) for name, each in named.items()}
        if not isinstance(function, list):
            function = self.refer(function)
        self.pipe.write([number, function, values, named])
        reply = self.pipe.read()
        if reply[0] != number:
            raise ValueError("an answer to another question")
        if reply[1] == "raised":
            raise exception_of(reply[2], [decode(each, self.remote) for each in reply[3]])
        for position, value in reply[3]:
            replace(arguments[position], decode(value, self.remote))
        return decode(reply[2], self.remote)

    def refer(self, value) -> list:
        """What stands in a question for a value that is not plain."""
        if isinstance(value, Remote):
            return ["object", object.__getattribute__(value, "_number")]
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        if module in sys.stdlib_module_names and module != "__main__" and name:
            return ["global", module, name]
        raise TypeError(f"a {type(value).__name__} cannot be given to the program")

    def remote(self, kind: str, number: int) -> "Remote":
        """What stands for an object of the program; the same one for the same object."""
        if kind != "object":
            raise ValueError(f"no value is a {kind}")
        return self.remotes.setdefault(number, Remote(self, number))


def asks(function):
    """A method that has the program call a function of Python's with the object behind `self`."""
    return lambda self, *given: self._program.ask(function, self, *given)


class Remote:
    """Stands for an object of the program that is no plain value: a function, a class, a generator.

    It can be called, looked into, and gone through. It equals only itself, and has no order and no
    arithmetic: these would be the program's own word.
    """

    def __init__(self, program: Program, number: int):
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments, **named):
        return self._program.ask(self, *arguments, **named)

    def __instancecheck__(self, value):
        return self._program.ask(isinstance, value, self)

    __getattr__ = asks(getattr)
    __setattr__ = asks(setattr)
    __getitem__ = asks(operator.getitem)
    __setitem__ = asks(operator.setitem)
    __len__ = asks(len)
    __bool__ = asks(bool)
    __str__ = asks(str)
    __repr__ = asks(repr)
    __iter__ = asks(iter)
    __next__ = asks(next)


def replace(old, new) -> None:
    """Give a list, set, dict or the like the contents of another one."""
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif hasattr(old, "clear"):
        old.clear()
        (old.extend if hasattr(old, "extend") else old.update)(new)


def exception_of(classes: list[str], arguments: list) -> Exception:
    """The built-in exception that is the nearest of an exception's classes."""
    kinds = [getattr(builtins, name, None) for name in classes]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)]
    return kinds[0](*arguments)

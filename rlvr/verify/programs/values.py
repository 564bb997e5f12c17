"""Convert what crosses the pipe to a program: plain values, and numbers for other objects.

Plain values are rebuilt by type, so that no code of the program arrives with them; those of a
subclass become the plain type. Any other object stays in the program's process, and a stand-in here
forwards whatever is done with it.
"""

import builtins
import importlib
import operator
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

SCALARS = {bool, int, float, str, type(None)}
SUBCLASSES = {str: str.__str__, int: int.__int__, float: float.__float__}  # -> the plain value
LARGEST = 2**53  # larger integers travel as hexadecimals, since JSON refuses very long ones
# Types that are built from a list of items, of bytes, or of pairs.
COLLECTIONS = [Counter, OrderedDict, dict, list, tuple, set, frozenset, deque, bytes, bytearray]
# Types that are built by a call -> its arguments, which __reduce__ returns for most of them.
BY_REDUCE = "builtins.range decimal.Decimal fractions.Fraction datetime.date datetime.datetime "
BY_REDUCE += "datetime.time datetime.timedelta datetime.timezone"
CALLED = {name: lambda value: value.__reduce__()[1] for name in BY_REDUCE.split()}
CALLED["builtins.int"] = lambda value: (hex(value), 16)
CALLED["builtins.complex"] = lambda value: (value.real, value.imag)


def encode(value, other: Callable):
    """Convert a value to a scalar of JSON or to [kind, *parts], and others by `other(value)`."""
    kind = type(value)
    if kind in SCALARS and not (kind is int and abs(value) > LARGEST):
        return value
    for base, plain in SUBCLASSES.items():
        if isinstance(value, base) and kind is not base:
            return encode(plain(value), other)
    for base in COLLECTIONS:
        if isinstance(value, base):
            parts = value.items() if isinstance(value, dict) else value
            return [base.__name__, *(encode(part, other) for part in parts)]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in CALLED:
        return [name, *(encode(part, other) for part in CALLED[name](value))]
    return other(value)


def decode(data, others: dict[str, Callable]):
    """Convert back what `encode` returned, and other kinds by others[kind](*parts)."""
    if not isinstance(data, list):
        return data
    name, *parts = data
    parts = [decode(part, others) for part in parts]
    for base in COLLECTIONS:
        if name == base.__name__:
            return base(dict(parts) if base is Counter else parts)
    if name in CALLED:
        module, _, kind = name.rpartition(".")
        return getattr(importlib.import_module(module), kind)(*parts)
    return others[name](*parts)


class Program:
    """The program behind a pipe. `send` takes a question to it and returns any JSON, untrusted."""

    def __init__(self, send: Callable):
        self.send = send
        self.was_asked = False
        self.remotes = {}  # number of an object there -> what stands for it here

    def ask(self, function, *arguments, **named):
        """Have the program call function(*arguments, **named), and return the result.

        Changes of lists, sets and dicts happen here, too, and so do exceptions, as built-in ones.
        """
        self.was_asked = True
        question = encode([function, arguments, named], self.refer)
        result, changed, raised, details = decode(self.send(question), {"object": self.remote})
        if raised:
            kind = getattr(builtins, raised)
            raise (kind if issubclass(kind, Exception) else RuntimeError)(*details)
        for position, value in changed.items():
            old = arguments[position]
            if isinstance(old, (list, set, dict, deque, bytearray)):
                old.clear()
                (old.update if isinstance(old, (set, dict)) else old.extend)(value)
        return result

    def module(self) -> "Remote":
        return self.ask(importlib.import_module, "solution")

    def refer(self, value) -> list:
        """Return what stands in a question for a value that is not plain."""
        if isinstance(value, Remote):
            return ["object", object.__getattribute__(value, "_number")]
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        if module in sys.stdlib_module_names and name:
            return ["global", module, name]
        raise TypeError(f"a {type(value).__name__} cannot be given to the program")

    def remote(self, number: int) -> "Remote":
        """Return the stand-in of an object, the same one for the same object."""
        return self.remotes.setdefault(number, Remote(self, number))


def asks(function):
    """Make a method that has the program call a function with the object behind `self`."""
    return lambda self, *given, **named: self._program.ask(function, self, *given, **named)


class Remote:
    """The stand-in of an object that is not a plain value: a function, a class, a generator.

    It equals only itself and has no order and no arithmetic, as the program would decide those.
    """

    def __init__(self, program: Program, number: int):
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def __instancecheck__(self, value):
        return self._program.ask(isinstance, value, self)

    __call__ = asks(operator.call)
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

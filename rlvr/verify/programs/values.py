"""Convert what crosses the pipe to a program: plain values, and numbers for other objects.

Plain values are rebuilt by type, so that no code of the program arrives with them; those of a
subclass become the plain type. Any other object stays in the program's process, and a stand-in here
forwards whatever is done with it.
"""

import builtins
import functools
import operator
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

SCALARS = {bool, int, float, str, type(None)}
REDUCED = [range, Decimal, Fraction, date, datetime, time, timedelta, timezone]
# Types of plain values -> what returns their parts: items, pairs, or the arguments of a call.
PARTS = {
    **dict.fromkeys([list, tuple, set, frozenset, deque, bytes, bytearray], iter),
    **dict.fromkeys([dict, OrderedDict, Counter], dict.items),
    **dict.fromkeys(REDUCED, lambda value: value.__reduce__()[1]),
    complex: lambda value: (value.real, value.imag),
    int: lambda value: (hex(value), 16),  # large ones, since JSON refuses very long ones
    float: float.__getnewargs__,
    str: str.__getnewargs__,
}
KINDS = {kind.__name__: kind for kind in PARTS}


def encode(value, other: Callable):
    """Convert a value to a scalar of JSON or to [kind, *parts], and others by `other(value)`."""
    kind = type(value)
    if kind in SCALARS and not (kind is int and abs(value) > 2**53):
        return value
    for base in kind.__mro__:
        if base in PARTS:
            return [base.__name__, *(encode(part, other) for part in PARTS[base](value))]
    return other(value)


def decode(data, others: dict[str, Callable]):
    """Convert back what `encode` returned, and other kinds by others[kind](*parts)."""
    if not isinstance(data, list):
        return data
    name, *parts = data
    parts = [decode(part, others) for part in parts]
    if name in others:
        return others[name](*parts)
    kind = KINDS[name]
    if PARTS[kind] is dict.items:
        return kind(dict(parts))
    return kind(parts) if PARTS[kind] is iter else kind(*parts)


class Program:
    """The program behind a pipe. `send` takes a question to it and returns any JSON, untrusted."""

    def __init__(self, send: Callable):
        self.send = send
        self.was_asked = False
        # an object always has the same stand-in, so that it equals itself
        self.others = {"object": functools.cache(functools.partial(Remote, self))}

    def ask(self, function, *arguments, **named):
        """Have the program call function(*arguments, **named), and return the result.

        Changes of lists, sets and dicts happen here, too, and so do exceptions, as built-in ones.
        """
        self.was_asked = True
        question = encode([function, arguments, named], self.refer)
        result, after, raised, details = decode(self.send(question), self.others)
        if raised:
            kind = getattr(builtins, raised)
            if kind is StopIteration and function is not next:
                kind = RuntimeError  # it would end a loop of the tests
            raise (kind if issubclass(kind, Exception) else RuntimeError)(*details)
        for old, new in zip(arguments, after, strict=False):
            if new is not None and isinstance(old, (list, set, dict, deque, bytearray)):
                old.clear()
                (old.update if isinstance(old, (set, dict)) else old.extend)(new)
        return result

    def refer(self, value) -> list:
        """Name in a question a stand-in, or a function or class of the standard library."""
        if isinstance(value, Remote):
            return ["object", value._number]
        return ["global", f"{value.__module__}:{value.__qualname__}"]


def asks(function):
    """Make a method that has the program call a function with the object behind `self`."""
    return lambda self, *given, **named: self._program.ask(function, self, *given, **named)


class Remote:
    """The stand-in of an object that is not a plain value: a function, a class, a generator.

    It equals only itself and has no order and no arithmetic, as the program would decide those.
    """

    def __init__(self, program: Program, number: int):
        vars(self).update(_program=program, _number=number)

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

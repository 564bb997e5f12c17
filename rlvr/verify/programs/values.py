"""Convert what crosses the pipe to a program: plain values, and numbers for other objects.

Plain values are rebuilt by type, so that no code of the program arrives with them; those of a
subclass become the plain type. Any other object stays in the program's process.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

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


def decode(data, other: Callable) -> Any:
    """Convert back what `encode` returned. `other` takes the name or number of an object."""
    if not isinstance(data, list):
        return data
    name, *parts = data
    parts = [decode(part, other) for part in parts]
    if name == "object":
        return other(*parts)
    kind = KINDS[name]
    if PARTS[kind] is dict.items:
        return kind(dict(parts))
    return kind(parts) if PARTS[kind] is iter else kind(*parts)


class Remote:
    """The stand-in for a function or another object that stays in the program's process.

    It has no order and no arithmetic and equals only itself, as the program would decide those.
    `send` takes a question to the program and returns any JSON, untrusted.
    """

    def __init__(self, send: Callable, key: str | int):
        self._send, self._key = send, key

    def _ask(self, action: str, /, *arguments, **named):
        """Have the program do something with the object, and return the result.

        Changes of lists among the arguments happen here, too.
        """
        question = [action, (self, *arguments), named]
        result, after = self._send(encode(question, lambda value: ["object", value._key]))
        other = partial(Remote, self._send)
        for old, new in zip(arguments, after, strict=True):
            if isinstance(old, list) and new is not None:
                old[:] = decode(new, other)
        return decode(result, other)

    def __call__(self, *arguments, **named):
        return self._ask("call", *arguments, **named)

    def __getattr__(self, name):
        return self._ask("getattr", name)

    def __bool__(self):
        return self._ask("bool")

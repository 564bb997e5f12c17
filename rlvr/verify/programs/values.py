"""Values that cross the pipe between a program and its check, as JSON.

Plain values cross: they are rebuilt by type, so that nothing of a program's own code arrives with
them. A subclass of int, str, list and the like arrives as the plain type. Everything else stays
where it is, and the caller says what stands for it.
"""

import importlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

SCALARS = {bool, int, float, str, type(None)}
SUBCLASSES = {str: str.__str__, int: int.__int__, float: float.__float__}  # -> the plain value
MAPPINGS = {"Counter": Counter, "OrderedDict": OrderedDict, "dict": dict}
COLLECTIONS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}
BYTES = {"bytes": bytes, "bytearray": bytearray}
# Types whose own __reduce__ tells the arguments that build an equal value.
REDUCED = {"builtins.range", "decimal.Decimal", "fractions.Fraction"}
REDUCED |= {f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")}
LARGEST = 2**53  # JSON's readers refuse to read very long integers: larger ones go as hexadecimals


def encode(value, other: Callable):
    """A value -> what JSON can hold; `other(value)` for what is not plain."""
    kind = type(value)
    if kind is int and abs(value) > LARGEST:
        return ["int", hex(value)]
    if kind in SCALARS:
        return value
    for base, plain in SUBCLASSES.items():
        if isinstance(value, base):
            return encode(plain(value), other)
    if kind is complex:
        return ["complex", value.real, value.imag]
    for name, base in BYTES.items():
        if isinstance(value, base):
            return [name, value.hex()]
    for name, base in COLLECTIONS.items():
        if isinstance(value, base):
            return [name, [encode(item, other) for item in value]]
    for name, base in MAPPINGS.items():
        if isinstance(value, base):
            pairs = [[encode(key, other), encode(item, other)] for key, item in value.items()]
            return [name, pairs]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in REDUCED:
        return [name, *(encode(part, other) for part in value.__reduce__()[1])]
    return other(value)


def decode(data, other: Callable):
    """What `encode` made -> the value; `other(name, *parts)` for what is not plain.

    The data may be anything that JSON holds: what no value was made into raises an exception.
    """
    if not isinstance(data, list):
        return data
    name, *parts = data
    if name == "int":
        return int(parts[0], 16)
    if name == "complex":
        return complex(*parts)
    if name in BYTES:
        return BYTES[name].fromhex(parts[0])
    if name in COLLECTIONS:
        return COLLECTIONS[name](decode(item, other) for item in parts[0])
    if name in MAPPINGS:
        return MAPPINGS[name]({decode(key, other): decode(item, other) for key, item in parts[0]})
    if name in REDUCED:
        module, _, kind = name.rpartition(".")
        build = getattr(importlib.import_module(module), kind)
        return build(*(decode(part, other) for part in parts))
    return other(name, *parts)

"""The matrix products of a piece of work, and the time that this machine needs for them alone."""

import time
from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm}
# operations a second in bf16 that a data sheet promises, without sparsity
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}


class Products(TorchDispatchMode):
    """Counts the products within it by their matrices; fused attention has none that it sees."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if function.overloadpacket in PRODUCTS:
            factors = [value for value in args if isinstance(value, torch.Tensor)][-2:]
            key = [(tuple(x.shape), x.stride(-1) != 1, x.dtype) for x in factors]
            self.counts[(*key, result.dtype, result.device)] += 1
        return result


def operations(counts: Counter) -> float:
    """Additions and multiplications of these products."""
    return sum(
        2.0 * count * torch.Size(first[0]).numel() * second[0][-1]
        for (first, second, *_), count in counts.items()
    )


def seconds_alone(counts: Counter) -> float:
    """The time of these products where nothing else is done, each at its best of five."""
    return sum(count * best_time(*key) for key, count in counts.items())


def best_time(first, second, dtype, device) -> float:
    """Seconds of one product of random matrices of these shapes."""
    factors = []
    for shape, is_transposed, given in (first, second):
        swapped = (*shape[:-2], shape[-1], shape[-2]) if is_transposed else shape
        factor = torch.rand(swapped, dtype=given, device=device)
        factors.append(factor.mT if is_transposed else factor)
    options = {} if dtype == first[2] else dict(out_dtype=dtype)
    multiply = torch.bmm if len(first[0]) == 3 else torch.mm
    times = []
    for _ in range(6):
        began = now()
        multiply(*factors, **options)
        times.append(now() - began)
    return min(times[1:])


def now() -> float:
    """Seconds on a clock, once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak() -> float | None:
    """Operations a second that this GPU's data sheet promises; None where it is not known."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((rate for known, rate in PEAKS.items() if known in name), None)

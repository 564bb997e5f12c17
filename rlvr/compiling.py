"""--compile: the policy's layers as fused kernels, by torch.compile."""

import time

from rlvr import world
from rlvr.errors import UserError
from rlvr.logprobs import completion_logprobs
from rlvr.records import Sample

import torch


def compile_layers(layers) -> None:
    """Have torch compile each layer when it is first used, for batches of any shape.

    What the layers have in common is compiled once. Completions are generated without this: their
    cache has another length at every token.
    """
    for layer in layers:
        layer.compile(dynamic=True)


def warm_up(policy) -> None:
    """Compile what log-probs and an update need, and print how long that has taken.

    Two rows stand for any batch but one of a single row, which is compiled when it comes. UserError
    where torch cannot compile, as without a C++ compiler. All ranks call it together.
    """
    started = time.perf_counter()
    samples = [Sample([1, 1, 1], [1] * length) for length in (5, 7)]
    try:
        with torch.no_grad():
            completion_logprobs(policy, samples, 1.0, 7)
        logprobs, _ = completion_logprobs(policy, samples, 1.0, 7)
        logprobs.sum().backward()
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--compile does not work here: {reason}") from error
    policy.zero_grad()
    if world.RANK == 0:
        seconds = time.perf_counter() - started
        print(f"--compile: the layers were compiled in {seconds:.0f} s")

"""--compile: the same numbers from compiled layers, and `generate` without them."""

import functools

from rlvr.flags.config import Config
from rlvr.policy.models import load_weights
from rlvr.rollout.samplers import Sampler

import pytest
import torch
from samples import some_samples
from torch._dynamo.utils import counters

import common
from common import token_logprobs


@pytest.fixture
def quick(monkeypatch):
    """torch traces the layers as always, and then leaves out to make a program of them."""
    compile_module = torch.nn.Module.compile
    traced_only = functools.partialmethod(compile_module, backend="eager")
    monkeypatch.setattr(torch.nn.Module, "compile", traced_only)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def graphs():
    """How many programs torch has made so far."""
    return counters["stats"]["unique_graphs"]


@pytest.mark.slow
def test_log_probs_are_the_same_and_one_program_is_enough(sharp, tmp_path, quick):
    """For batches of several shapes: it is made for the first one, with and without gradients."""
    sharp[0].save_pretrained(tmp_path)
    plain, compiled = (
        load_weights(str(tmp_path), Config(compile=wanted), torch.device("cpu"))
        for wanted in (False, True)
    )
    assert graphs() == 0
    samples, made = some_samples(sharp[1]), []
    for part in ([0, 1], [2, 3, 4], range(6)):
        with torch.no_grad():
            frozen, _ = token_logprobs(compiled, samples, part, 0.7)
        results = [token_logprobs(policy, samples, part, 0.7)[0] for policy in (plain, compiled)]
        for found in (frozen, results[1]):
            torch.testing.assert_close(found, results[0], rtol=0, atol=1e-5)
        gradients = [
            torch.autograd.grad(logprobs.sum(), policy.parameters())
            for logprobs, policy in zip(results, (plain, compiled), strict=True)
        ]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        made.append(graphs())
    assert made[0] >= 2 and {*made} == {made[0]}
    # completions are written without it, or each token would be compiled, as the cache has grown
    expected, found = (
        Sampler(policy, sharp[1], Config(), common.decode).generate([[3, 4], [5]], 0.0, 1.0, 8)
        for policy in (plain, compiled)
    )
    assert found == expected
    assert graphs() == made[0]

"""--compile: the same numbers from compiled layers, and `generate` without them."""

import copy
import functools

import rlvr.policy.models
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.policy.models import compile_layers, warm_up
from rlvr.policy.sharding import layers_of
from rlvr.rollout.samplers import GenerateSampler

import pytest
import torch
from samples import some_samples
from torch._dynamo.utils import counters

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


def compiled(policy):
    policy = copy.deepcopy(policy)
    compile_layers(layers_of(policy))
    return policy


@pytest.mark.slow
def test_log_probs_are_the_same_and_one_program_is_enough(sharp, quick, capsys):
    """For batches of several shapes: it is made in the warm-up, once with and without gradients."""
    policy, tokenizer = sharp
    other = compiled(policy)
    warm_up(other)
    assert "--compile: the layers were compiled in" in capsys.readouterr().out
    assert all(parameter.grad is None for parameter in other.parameters())
    made = graphs()
    assert made >= 2
    samples = some_samples(tokenizer)
    for part in ([0, 1], [2, 3, 4], range(6)):
        expected, _ = token_logprobs(policy, samples, part, 0.7)
        found, _ = token_logprobs(other, samples, part, 0.7)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        with torch.no_grad():
            frozen, _ = token_logprobs(other, samples, part, 0.7)
        torch.testing.assert_close(frozen, expected.detach(), rtol=0, atol=1e-5)
        gradients = [
            torch.autograd.grad(logprobs.sum(), model.parameters())
            for model, logprobs in ((policy, expected), (other, found))
        ]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    # completions are written without it, or each token would be compiled, as the cache has grown
    prompts = [[3, 4], [5]]
    expected = GenerateSampler(policy, tokenizer, Config()).generate(prompts, 0.0, 1.0, 8)
    assert GenerateSampler(other, tokenizer, Config()).generate(prompts, 0.0, 1.0, 8) == expected
    assert graphs() == made


@pytest.mark.parametrize("wanted", [False, True])
def test_the_flag(tiny, tmp_path, quick, wanted):
    tiny[0].save_pretrained(tmp_path)
    rlvr.policy.models.load_weights(str(tmp_path), Config(compile=wanted), torch.device("cpu"))
    assert (graphs() > 0) == wanted


def test_a_machine_without_a_compiler_is_told_in_one_line(sharp, monkeypatch):
    def missing(*given):
        raise RuntimeError("Failed to find a\nC++ compiler")

    monkeypatch.setattr("rlvr.policy.models.completion_logprobs", missing)
    with pytest.raises(UserError, match="--compile does not work here: Failed to find a C.. comp"):
        warm_up(sharp[0])

"""Log-probs and entropies: tiles against the textbook's definition, microbatches, padding."""

import functools
from unittest.mock import Mock

import rlvr.policy.logprobs
from rlvr.flags.config import Config
from rlvr.policy.logprobs import LinearLogProbs, frozen_logprobs, microbatches, tile_width
from rlvr.policy.models import load_weights
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.problems import Sample

import pytest
import torch
from groups import near
from samples import by_the_logits, some_samples
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

import common


def by_definition(hidden, weight, targets, temperature):
    """The log-probs and entropies of a softmax over all logits [M, V]."""
    softmax = torch.distributions.Categorical(logits=hidden @ weight.T / temperature)
    return softmax.log_prob(targets), softmax.entropy()


def results_of(function, hidden, weight, targets, temperature, factors):
    """Log-probs, entropies, and the gradients of both for hidden and weight, asked for twice."""
    logprobs, entropies = function(hidden, weight, targets, temperature)
    loss = (factors[0] * logprobs + factors[1] * entropies).sum()
    first, again = (
        torch.autograd.grad(loss, (hidden, weight), retain_graph=True) for _ in range(2)
    )
    return logprobs, entropies, *first, *again


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor that torch makes within it, in backward passes, too."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.parametrize("words", [50, 7, 1])
def test_linear_logprobs_in_tiles(monkeypatch, words):
    """A tile has at most 2**22 logits, so 9 tokens that claim to be 2**22 // 7 get 7 words."""
    torch.manual_seed(0)
    hidden = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 2, dtype=torch.float64, requires_grad=True)
    # so that one tile can hold nearly all of the probability, whichever it is
    weight = weight * 5
    targets = torch.tensor([0, 6, 7, 24, 25, 48, 49, 49, 13])
    factors = torch.randn(2, 9, dtype=torch.float64)
    factors[1, 3] = 0  # as of a token that is left out of the loss
    inputs = (hidden, weight, targets, 0.9, factors)
    expected = results_of(by_definition, *inputs)

    def claimed_length(value):
        return 2**22 // words if getattr(value, "shape", 0) == hidden.shape else len(value)

    monkeypatch.setattr(rlvr.policy.logprobs, "len", claimed_length, raising=False)
    with LargestResult() as largest:
        got = results_of(LinearLogProbs.apply, *inputs)
    # 2**22 tokens times 50 words are too many to keep
    found, _ = LinearLogProbs.apply(*inputs[:4])  # torch 2.11 drops what it saved without these
    saved = found.grad_fn.saved_tensors
    assert any(tensor.shape == (9, min(words, 50)) for tensor in saved) == (words > 1)
    assert largest.numel == max(9 * words, weight.numel())  # no [9, 50] was made
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("words", [26, 20_011, 151_936])
def test_float32_is_as_exact_as_log_softmax(monkeypatch, words):
    """Up to 4e-6, whatever the size and offset of the logits: the last bit of a number above 32.

    The logits are multiples of 2^-10, so that no product rounds them.
    """
    torch.manual_seed(0)
    monkeypatch.setattr(rlvr.policy.logprobs, "tile_width", lambda *_: 20_000)
    for size, offset in ((1, 0), (10, 0), (50, 0), (1, 300), (10, 300)):
        z = (torch.randn(words) * size * 2**10).round() / 2**10
        weight = torch.stack([z, torch.ones(words)], 1)  # [V, 2]
        hidden = torch.tensor([[scale, offset] for scale in (1, 0.5, 0.25, -1)] * 2)  # [8, 2]
        targets = torch.cat([torch.randint(words, (4,)), (hidden[:4] @ weight.T).argmax(1)])
        logp = (hidden @ weight.T).log_softmax(1)  # [8, V]
        plain = logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(1)
        exact = by_definition(hidden.double(), weight.double(), targets, 1.0)
        tiles = LinearLogProbs.apply(hidden, weight, targets, 1.0)
        for found, simple, right in zip(tiles, plain, exact, strict=True):
            limit = (simple - right).abs().max() + 4e-6
            assert (found - right).abs().max() < limit, (size, offset)


def test_the_width_of_a_tile():
    """At most 2**22 logits on a CPU. On a GPU 2**25, in rows of aligned lengths, or 256 words."""
    assert [tile_width(tokens, gpu=False) for tokens in (0, 1000, 2**23)] == [2**22, 4194, 1]
    assert [tile_width(tokens, gpu=True) for tokens in (1000, 2**20)] == [131 * 256, 256]


def test_a_token_without_any_probability():
    """exp(-1000) is 0, whose log is infinite; it adds nothing to the entropy or its gradient."""
    hidden, weight = torch.tensor([[1000.0]], requires_grad=True), torch.tensor([[1.0], [0.0]])
    weight.requires_grad_()
    factors = torch.ones(2, 1)
    found = results_of(LinearLogProbs.apply, hidden, weight, torch.tensor([0]), 1.0, factors)
    assert not any(each.any() for each in found)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_products_of_bfloat16_are_added_up_in_float32(monkeypatch, weight_dtype):
    """Rounded logits would be off by 0.03, and gradients by 0.5%. What is handed on is rounded."""
    torch.manual_seed(0)
    hidden = torch.randn(256, 256).bfloat16().requires_grad_()
    weight = (torch.randn(2048, 256) / 4).bfloat16().to(weight_dtype).requires_grad_()
    targets, factors = torch.randint(2048, (256,)), torch.randn(2, 256)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    expected = results_of(by_definition, *exact, targets, 1.0, factors)
    limits = {torch.bfloat16: 0.003, torch.float32: 0.002}
    for width in (2048, 100):
        monkeypatch.setattr(rlvr.policy.logprobs, "tile_width", lambda *_, width=width: width)
        found = results_of(LinearLogProbs.apply, hidden, weight, targets, 1.0, factors)
        near(found[0], expected[0], atol=1e-4)
        near(found[1], expected[1], atol=1e-4)
        dtypes = [torch.float32] * 2 + [torch.bfloat16, weight_dtype] * 2
        assert [values.dtype for values in found] == dtypes
        for gradient, right in zip(found[2:], expected[2:], strict=True):
            assert (gradient - right).norm() < limits[gradient.dtype] * right.norm()


@pytest.mark.parametrize("rows, temperature", [(None, 0.7), ([7, 2, 4], 1.0), ([], 1.0)])
def test_frozen_logprobs_equal_those_of_the_logits(sharp, rows, temperature):
    """In microbatches of any size. Beyond a row's end, and in rows not asked for, all are 0."""
    policy, tokenizer = sharp
    samples = some_samples(tokenizer, 9)
    expected = torch.zeros(2, 9, max(len(sample.completion_ids) for sample in samples))
    for i in range(9) if rows is None else rows:
        values = torch.stack(by_the_logits(policy, samples[i], temperature))
        expected[:, i, : values.shape[1]] = values
    for budget in (1, 100, 10**6):
        config = Config(temperature=temperature, microbatch_tokens=budget)
        frozen = torch.stack(frozen_logprobs(policy, samples, config, rows))
        assert not frozen.requires_grad
        torch.testing.assert_close(frozen, expected, rtol=0, atol=1e-5)


def test_a_rank_with_fewer_rows_makes_as_many_passes_as_the_others(sharp, monkeypatch):
    """In evaluations ranks have unequal shares. A pass that one leaves out would hang the rest."""
    samples, config = some_samples(sharp[1], 3), Config(temperature=0.7)
    expected = frozen_logprobs(sharp[0], samples, config)
    passes = Mock(wraps=rlvr.policy.logprobs.completion_logprobs)
    monkeypatch.setattr(rlvr.policy.logprobs, "completion_logprobs", passes)
    monkeypatch.setattr(rlvr.policy.logprobs, "global_max", lambda count: max(count, 5))
    torch.testing.assert_close(frozen_logprobs(sharp[0], samples, config), expected)
    assert passes.call_count == 5


@pytest.mark.parametrize(
    "budget, group_size, parts",
    [
        # each group of a prompt fits, and so its completions stay together
        (20, None, [[0, 1], [2, 3], [4, 5]]),
        (40, None, [[0, 1, 2, 3], [4, 5]]),
        # a group does not: rows by their lengths, of which one alone may be over the budget
        (18, None, [[0, 2, 4], [1], [3], [5]]),
        (1, None, [[0], [2], [4], [1], [3], [5]]),
        (19, 2, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_microbatches_by_hand(budget, group_size, parts):
    """Three prompts with two completions each: texts of 6 and of 10 tokens."""
    samples = [Sample([prompt] * 4, [7] * length) for prompt in (1, 2, 3) for length in (2, 6)]
    assert microbatches(samples, torch.arange(6), budget, group_size) == parts


def test_microbatches_are_as_many_as_those_of_the_rank_with_the_most(monkeypatch):
    """For the ranks gather sharded weights together, once a microbatch. All are of one prompt."""
    samples = [Sample([0], [0] * (length - 1)) for length in (3, 2, 9, 2, 2)]
    for of_another_rank, budget, count in ((0, 6, 3), (4, 6, 4), (5, 6, 5), (0, 45, 1), (5, 45, 5)):
        monkeypatch.setattr(
            rlvr.policy.logprobs, "global_max", lambda own, other=of_another_rank: max(own, other)
        )
        parts = microbatches(samples, range(5), budget)
        assert len(parts) == count and all(parts)
        assert sorted(row for part in parts for row in part) == [0, 1, 2, 3, 4]


def test_compiled_layers_give_the_same_and_one_program_is_enough(sharp, tmp_path, monkeypatch):
    """For batches of two shapes, of layers that torch traces, but makes no program of."""
    compile_module = torch.nn.Module.compile
    traced_only = functools.partialmethod(compile_module, backend="eager")
    monkeypatch.setattr(torch.nn.Module, "compile", traced_only)
    torch._dynamo.reset()
    counters.clear()
    sharp[0].save_pretrained(tmp_path)
    policy = load_weights(
        str(tmp_path), Config(compile=True, precision="fp32"), torch.device("cpu")
    )
    samples, made = some_samples(sharp[1]), []
    worth_it = rlvr.policy.logprobs.is_shorter_by_prompt  # lengths differ more then
    assert [worth_it(each, samples[:1] * 4) for each in (sharp[0], policy)] == [True, False]
    for part in ([0, 1], [2, 3, 4]):
        with torch.no_grad():
            frozen, _ = common.token_logprobs(policy, samples, part, 0.7)
        expected, found = (
            common.token_logprobs(each, samples, part, 0.7)[0] for each in (sharp[0], policy)
        )
        torch.testing.assert_close(frozen, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        found.sum().backward()
        made.append(counters["stats"]["unique_graphs"])
    # completions are written without it, or each token would be compiled, as the cache has grown
    Sampler(policy, sharp[1], Config(), common.decode).generate(
        [[3, 4], [5]], temperature=0.0, top_p=1.0, max_tokens=8
    )
    made.append(counters["stats"]["unique_graphs"])
    assert made[0] >= 2 and {*made} == {made[0]}
    torch._dynamo.reset()

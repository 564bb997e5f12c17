"""The decoding loop of common.py, its reader, the sampler: what is drawn, and how likely it was."""

import copy
import itertools
import weakref
from collections import Counter
from dataclasses import replace
from functools import partial
from unittest.mock import Mock, create_autospec

from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.policy.logprobs import is_shorter_by_prompt, states_by_prompt, states_one_by_one
from rlvr.policy.reader import Reader
from rlvr.policy.settings import Settings
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.problems import Sample, padded

import pytest
import torch
import transformers
from groups import near
from samples import PROMPTS, by_the_logits
from test_prompts import CHATML

import common
from common import decode, draw, nucleus, token_logprobs

STOP = 3  # of `four`
SHAPE = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=2)
SHAPE |= dict(num_attention_heads=2, num_key_value_heads=1)


@pytest.fixture(scope="module")
def four():
    """A policy of four words, in double precision; what it says next depends on what was said."""
    shape = transformers.Qwen2Config(vocab_size=4, initializer_range=1.0, **SHAPE)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return transformers.Qwen2ForCausalLM(shape).double().eval()


def endings(length):
    """All completions of four's words: they stop, or have the full length."""
    for size in range(1, length + 1):
        for words in itertools.product(range(3), repeat=size - 1):
            yield (*words, STOP)
    yield from itertools.product(range(3), repeat=length)


def sampler_of(policy, tokenizer, **flags):
    return Sampler(policy, tokenizer, Config(**flags), common.decode)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_completions_are_drawn_by_their_probabilities(four, temperature):
    """4,000 draws of two prompts against all probabilities, by chi-square at 1 in 1,000."""
    prompts, count = ([0, 1, 2], [2]), 4000
    torch.manual_seed(0)
    each = [prompt for prompt in prompts for _ in range(count)]
    found, logprobs = decode(four, each, stops={STOP}, max_tokens=2, temperature=temperature)
    for k, prompt in enumerate(prompts):
        own = slice(k * count, (k + 1) * count)
        seen = Counter(map(tuple, found[own]))
        samples = {words: Sample(prompt, [*words]) for words in endings(2)}
        likelihoods = [by_the_logits(four, s, temperature)[0].sum().exp() for s in samples.values()]
        expected = dict(zip(samples, torch.stack(likelihoods).tolist(), strict=True))
        assert seen.keys() <= expected.keys() and len(expected) == 13
        # few are expected of some: those stand together
        common = [words for words, p in expected.items() if p * count >= 10]
        rare = count - sum(seen[words] for words in common), 1 - sum(expected[w] for w in common)
        pairs = [(seen[words], expected[words]) for words in common] + [rare] * (rare[1] > 1e-9)
        chi_square = sum((n - count * p) ** 2 / (count * p) for n, p in pairs)
        assert chi_square < 32.9  # the quantile for 12 degrees of freedom; for fewer it is lower
        for words, values in zip(found[own][:50], logprobs[own], strict=False):
            wanted = expected[tuple(words)]
            assert torch.tensor(values).sum().exp().item() == pytest.approx(wanted, rel=1e-5)


KINDS = {
    "a sliding window": transformers.MistralConfig(vocab_size=40, sliding_window=3, **SHAPE),
    "learned positions": transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=40),
    "distances": transformers.BloomConfig(hidden_size=16, n_layer=2, n_head=2, vocab_size=40),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_see_positions_in_other_ways(kind):
    """Prompts of different lengths: greedy is that of generate, and log-probs are the loss's."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = transformers.AutoModelForCausalLM.from_config(KINDS[kind]).eval()
    for parameter in policy.parameters():
        parameter.data *= 5 if parameter.dim() > 1 else 1  # so that what stands before counts
    prompts = [[5, 6, 7, 8, 9, 10, 11, 12], [5, 6, 7, 8, 9, 10, 11, 12], [13], [14, 15, 16]]
    found, logprobs = decode(policy, prompts, stops={1}, max_tokens=9, temperature=0.0)
    samples = [Sample(*each) for each in zip(prompts, found, strict=True)]
    expected, _ = token_logprobs(policy, samples, range(4))
    for i, (prompt, tokens, values) in enumerate(zip(prompts, found, logprobs, strict=True)):
        ids = torch.tensor([prompt])
        settings = dict(do_sample=False, max_new_tokens=9, eos_token_id=1, pad_token_id=0)
        theirs = policy.generate(ids, attention_mask=torch.ones_like(ids), **settings)
        assert theirs[0, len(prompt) :].tolist() == tokens
        assert values == pytest.approx(expected[i, : len(tokens)].tolist(), abs=1e-4)
    own = torch.arange(9) < torch.tensor([len(tokens) for tokens in found])[:, None]
    once, again = states_by_prompt(policy, samples), states_one_by_one(policy, samples)
    longest = max(map(len, found))
    torch.testing.assert_close(once[own[:, :longest]], again[own[:, :longest]], rtol=0, atol=1e-4)


def test_a_prompt_is_read_once_and_ended_rows_leave(sharp, monkeypatch):
    policy, tokenizer = sharp
    forward = policy.base_model.forward

    def renamed(cache=None, **given):  # as transformers 5.24 names it
        return forward(past_key_values=cache, **given)

    passes = create_autospec(renamed, side_effect=renamed)
    monkeypatch.setattr(policy.base_model, "forward", passes)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS[:2] for _ in range(8)]
    torch.manual_seed(0)
    # rows end at different times
    found, logprobs = decode(policy, prompts, stops={*range(8)}, max_tokens=30)
    first, *others = (call.kwargs["input_ids"].shape for call in passes.call_args_list)
    rows, widths = zip(*others, strict=True)
    assert first == (2, max(map(len, prompts))) and {*widths} == {1}
    assert [*rows] == sorted(rows, reverse=True) and len({*rows}) > 2
    samples = [Sample(*each) for each in zip(prompts, found, strict=True)]
    near(padded(logprobs), token_logprobs(policy, samples, range(16))[0].detach(), atol=1e-4)
    passes.reset_mock()
    decode(policy, prompts, stops=set(), max_tokens=3)
    assert passes.call_count == 3  # none after the last token


@torch.no_grad()
def test_a_text_token_by_token_is_as_in_one_pass(four):
    """Also after rows have left, and two at once."""
    reader, text = Reader(four, [[1], [2], [3]]), torch.randint(4, (3, 70))
    for i in (*range(60), *range(60, 70, 2)):
        if i == 40:
            reader.select([2, 0])
            text = text[[2, 0]]
        reader.read(text[:, i : i + 1 + (i >= 60)])
    whole = torch.cat([torch.tensor([[3], [1]]), text], 1)
    expected = four.base_model(whole).last_hidden_state[:, -1]
    torch.testing.assert_close(reader.state, expected, rtol=0, atol=1e-9)
    cache = weakref.ref(reader.cache)
    del reader
    assert cache() is None  # its memory is free at once, not when Python looks for cycles


def test_nucleus(monkeypatch):
    """The likeliest that reach 0.6 together are .5 and .2; one token is always left."""
    probabilities = torch.tensor([[0.1, 0.5, 0.2, 0.2], [0.7, 0.1, 0.1, 0.1]])
    kept = nucleus(probabilities, 0.6)
    assert kept[0].sort().values.tolist() == pytest.approx([0, 0, 0.2, 0.5])
    assert kept[1].tolist() == pytest.approx([0.7, 0, 0, 0])
    assert nucleus(probabilities, 1e-9).count_nonzero(1).tolist() == [1, 1]
    assert nucleus(torch.tensor([[0.25, 0.5, 0.25]]), 0.5).tolist() == [[0, 0.5, 0]]
    # 5 of 7 draws are the likeliest then; the limit is 4 standard deviations
    torch.manual_seed(0)
    counts = draw(kept[:1].expand(7000, 4)).flatten().bincount(minlength=4)
    assert counts[1].item() == pytest.approx(5000, abs=151)
    # what is impossible is never drawn, and what is rare can be
    for point, pair in ((0.0, [0.0, 1.0]), (1 - 1e-12, [1.0, 1e-9])):
        monkeypatch.setattr(torch, "rand_like", partial(torch.full_like, fill_value=point))
        assert draw(nucleus(torch.tensor([pair]), 1.0)) == 1


def test_logits_that_are_nan_end_the_run(monkeypatch):
    logits = torch.tensor([[0.0, 1.0], [0.0, torch.nan]])
    monkeypatch.setattr(Reader, "__init__", lambda *given: None)
    monkeypatch.setattr(Reader, "logits", lambda reader: logits)
    with pytest.raises(UserError, match="NaN"):
        decode(None, [[8], [9]], stops={1}, max_tokens=4)


def test_decode_batch_size_changes_no_completion(sharp):
    """Nor does a temperature where top_p leaves the likeliest token alone."""
    prompts = [sharp[1].encode(prompt) for prompt in PROMPTS]
    found = set()
    for size, temperature, top_p in ((1, 0, 1.0), (3, 0, 1.0), (100, 0, 1.0), (100, 0.7, 1e-9)):
        sampler = sampler_of(*sharp, decode_batch_size=size)
        how = dict(temperature=temperature, top_p=top_p, max_tokens=8)
        found.add(str(sampler.generate(prompts, **how)[0]))
    assert len(found) == 1


def test_a_prompt_that_is_computed_once_gives_the_same_states_and_gradients(sharp, monkeypatch):
    """Prompts of 440 and 6 tokens, with three completions each. Norms are in single precision."""
    policy = copy.deepcopy(sharp[0]).double()
    completions = [[5, 6, 7, 1], [9, 8], [7, 7, 1], [3, 1], [4], [4, 5, 6, 7, 8]]
    prompts = [sharp[1].encode(PROMPTS[0] * 40)] * 3 + [sharp[1].encode(PROMPTS[5])] * 3
    samples = [Sample(*each) for each in zip(prompts, completions, strict=True)]
    assert is_shorter_by_prompt(policy, samples)
    assert is_shorter_by_prompt(policy, samples[3:])  # 21 tokens of 33
    assert not is_shorter_by_prompt(policy, samples[::3])
    assert not is_shorter_by_prompt(policy, [Sample(prompts[0], [1])] * 3)
    own = torch.arange(5) < torch.tensor([len(c) for c in completions])[:, None]
    factors = torch.linspace(-1, 1, own.sum() * 96).view(-1, 96).double()
    found = []
    for states in (states_one_by_one, states_by_prompt):
        policy.zero_grad()
        hidden = states(policy, samples)[own]
        (hidden * factors).sum().backward()
        gradients = {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}
        found.append((hidden.detach(), gradients))
    torch.testing.assert_close(*(hidden for hidden, _ in found), rtol=1e-6, atol=1e-6)
    for name, gradient in found[0][1].items():
        torch.testing.assert_close(found[1][1][name], gradient, rtol=1e-4, atol=1e-4)
    once = Mock(wraps=states_by_prompt)
    monkeypatch.setattr("rlvr.policy.logprobs.states_by_prompt", once)
    token_logprobs(policy, samples, range(6))
    assert once.call_count == 1
    for of_no_use in ("compiled", "gradient_checkpointing"):
        with monkeypatch.context() as patch:
            patch.setattr(policy, "settings", Settings(**{of_no_use: True}), raising=False)
            assert not is_shorter_by_prompt(policy, samples)
    with monkeypatch.context() as patch:
        patch.setattr(type(policy), "unshard", True, raising=False)  # as a sharded one has
        assert not is_shorter_by_prompt(policy, samples)
    different = [replace(s, prompt_ids=[i, *s.prompt_ids[1:]]) for i, s in enumerate(samples)]
    assert not is_shorter_by_prompt(policy, different)


END = 27  # the token <|im_end|> of a tokenizer that knows it


@pytest.mark.parametrize(
    "checkpoint, template, of_tokenizer, stops",
    [
        (0, None, "<eos>", [0]),  # a number like any other
        (None, None, "<eos>", [1]),  # the tokenizer's
        ([1, 5], CHATML, "<eos>", [1, 5, END]),  # base models: 1 ends a document, and not a turn
        (END, CHATML, "<eos>", [END]),  # instruct models
        (None, CHATML, None, [END]),
        (None, None, None, None),  # none would ever end
    ],
)
def test_stop_tokens(tiny, checkpoint, template, of_tokenizer, stops):
    policy, tokenizer = copy.deepcopy(tiny)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == END
    tokenizer.chat_template, tokenizer.eos_token = template, of_tokenizer
    policy.generation_config = transformers.GenerationConfig(eos_token_id=checkpoint)
    if stops:
        assert sampler_of(policy, tokenizer).stops == stops
    else:
        with pytest.raises(UserError, match="no end-of-text token"):
            sampler_of(policy, tokenizer)


@pytest.mark.parametrize(
    "bf16, given, cap", [(False, None, 0.0), (False, 3.0, 3.0), (True, None, 2.0), (True, 0.0, 0.0)]
)
def test_the_cap_of_the_importance_weights(tiny, bf16, given, cap):
    """In fp32 these log-probs are the trainer's. In bf16 both round, in kernels of their own."""
    policy = copy.copy(tiny[0])
    policy.settings = Settings(torch.bfloat16 if bf16 else torch.float32)
    sampler = sampler_of(policy, tiny[1], vllm_importance_sampling_cap=given)
    assert (sampler.cap, sampler.is_exact) == (cap, not bf16)

"""The bf16 twin of the policy, with which `generate` computes on a GPU."""

import copy

from rlvr.config import Config
from rlvr.memory import cached, policy_sizes
from rlvr.records import Sample
from rlvr.samplers import GenerateSampler, bf16_twin

import pytest
import torch
import transformers
from samples import PROMPTS
from torch.utils._python_dispatch import TorchDispatchMode

from common import token_logprobs


class Casts(TorchDispatchMode):
    """Counts the casts from fp32 to bf16 within it."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if function is torch.ops.aten._to_copy.default:
            self.count += args[0].dtype == torch.float32 and result.dtype == torch.bfloat16
        return result


@pytest.fixture
def sampler(sharp):
    """As on a GPU: it copies its policy, which is this test's own, at every `sync`."""
    sampler = GenerateSampler(copy.deepcopy(sharp[0]), sharp[1], Config())
    sampler.wants_twin = True
    return sampler


def rollout(sampler):
    """Prompts, completions and log-probs of a rollout."""
    prompts = [sampler.tokenizer.encode(prompt) for prompt in PROMPTS]
    torch.manual_seed(0)
    sampler.sync()
    completions, logprobs = sampler.generate(prompts, 0.7, 1.0, 12)
    sampler.sleep()
    return prompts, completions, logprobs


def test_a_rollout_is_that_of_a_bf16_copy(sampler):
    """Token by token and bit for bit, with log-probs near those of the fp32 policy."""
    prompts, completions, logprobs = rollout(sampler)
    plain = copy.deepcopy(sampler.policy)
    for parameter in plain.parameters():
        parameter.data = parameter.data.bfloat16()
    assert rollout(GenerateSampler(plain, sampler.tokenizer, Config())) == (
        prompts,
        completions,
        logprobs,
    )
    samples = [Sample(prompt, ids) for prompt, ids in zip(prompts, completions, strict=True)]
    in_fp32, _ = token_logprobs(sampler.policy, samples, range(len(samples)), 0.7)
    gaps = [
        (torch.tensor(found) - in_fp32[row, : len(found)]).abs()
        for row, found in enumerate(logprobs)
    ]
    assert 1e-4 < torch.cat(gaps).mean() < 0.1  # so the twin did compute in bf16


def test_the_twin_follows_an_update(sampler):
    before = rollout(sampler)
    assert before == rollout(sampler)
    with torch.no_grad():
        for parameter in sampler.policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    after = rollout(sampler)
    assert after != before


def test_the_twin_is_gone_after_the_rollout(sampler):
    """An update needs its memory, and trains the policy itself."""
    rollout(sampler)
    assert sampler.writer is sampler.policy
    assert {parameter.dtype for parameter in sampler.policy.parameters()} == {torch.float32}


def test_a_cpu_has_no_twin(sharp):
    sampler = GenerateSampler(*sharp, Config())
    sampler.sync()
    assert sampler.writer is sampler.policy


@pytest.mark.parametrize("tied", [True, False])
def test_the_twin_itself(tied):
    """All weights in bf16, rotary frequencies still in fp32, the head tied as in the policy."""
    shape = transformers.Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    policy = transformers.Qwen2ForCausalLM(shape)
    twin = bf16_twin(policy)
    theirs, ours = dict(twin.named_parameters()), dict(policy.named_parameters())
    assert theirs.keys() == ours.keys()
    for name, parameter in theirs.items():
        assert torch.equal(parameter, ours[name].bfloat16())
        assert not parameter.requires_grad
    head, embedding = twin.get_output_embeddings().weight, twin.get_input_embeddings().weight
    assert (head is embedding) == tied
    assert twin.model.rotary_emb.inv_freq.dtype == torch.float32
    assert twin.model.layers[0] is not policy.model.layers[0]


def test_what_the_twin_saves(sampler):
    """Under autocast every token casts the inputs of every product, and keeps its cache in fp32.

    The twin casts next to nothing and keeps half of the bytes, those of the memory estimate.
    """
    policy, prompt = sampler.policy, torch.full((4, 9), 5)
    sizes = policy_sizes(policy.config)

    def of_a_token(model, autocast):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            cache = model(prompt, use_cache=True).past_key_values
            with Casts() as casts:
                model(prompt[:, :1], past_key_values=cache, use_cache=True)
        kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
        return casts.count, kept

    before, after = of_a_token(policy, True), of_a_token(bf16_twin(policy), False)
    layers = policy.config.num_hidden_layers
    assert before[0] >= 7 * layers  # as many products of weights as a layer has
    assert after[0] <= 2 * layers + 3
    assert before[1] == 2 * after[1] == 4 * 10 * 2 * 4 * layers * sizes.keys
    config = Config(max_prompt_length=9, max_completion_length=1)
    of_one_layer = 2 * 2 * 10 * sizes.queries
    assert 4 * (cached(sizes, config, in_bf16=True) * 1e9 - of_one_layer) == pytest.approx(after[1])

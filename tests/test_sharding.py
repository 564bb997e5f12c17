"""FSDP in one process: what trains, and what stays gathered. tests/test_ranks.py has two ranks."""

from rlvr.policy.logprobs import completion_logprobs
from rlvr.policy.sharding import shard, unshard, whole
from rlvr.tasks.problems import Sample

import pytest
import torch
import transformers
from torch.distributed.tensor import DTensor

SAMPLES = [Sample([i + 1, 2], [3 + i, 7, 11 + i, 5 * i]) for i in range(4)]


def make_policy(tied):
    shape = transformers.Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        # in doubles: Adam divides by the gradient's size, which makes much of rounding
        return transformers.Qwen2ForCausalLM(shape).double()


def train(policy):
    """Two updates of two microbatches, after all that may come before one in a run."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.0)
    for _ in range(2):
        unshard(policy, True)  # a rollout
        policy(torch.tensor([[1, 2, 3]]))
        unshard(policy, False)
        with torch.no_grad():
            completion_logprobs(policy, SAMPLES, 1.0, 4)  # the old policy's
        for part in (SAMPLES[:2], SAMPLES[2:]):
            logprobs, _ = completion_logprobs(policy, part, 1.0, 4)
            (-logprobs.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: whole(value.detach()) for name, value in policy.named_parameters()}


@pytest.mark.parametrize("tied", [True, False])
def test_all_weights_train_as_without_sharding(alone, tied):
    policy = make_policy(tied)
    shard(policy)
    expected = train(make_policy(tied))
    assert ("lm_head.weight" in expected) != tied
    torch.testing.assert_close(train(policy), expected, rtol=0, atol=1e-12)
    for name, value in make_policy(tied).named_parameters():
        assert (value - expected[name]).abs().max() > 1e-3


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_policy_gives_everything_back(alone, frozen):
    """A reference policy has no backward pass after which embedding and head could go."""
    policy = make_policy(tied=False)
    shard(policy, frozen)
    with torch.no_grad():
        completion_logprobs(policy, SAMPLES, 1.0, 4)
    assert all(isinstance(value, DTensor) for value in policy.parameters()) == frozen

"""FSDP on four ranks: embedding and head train, and stay gathered for the backward pass."""

import functools
import sys

from rlvr import world
from rlvr.policy.logprobs import completion_logprobs
from rlvr.policy.sharding import add_up_gradients, is_sharded, shard, unshard, whole
from rlvr.tasks.problems import Sample

import pytest
import torch
import torch.distributed as dist
import transformers
from runs import free_port
from test_ranks import LAUNCH, finish
from torch.distributed.tensor import DTensor


def make_policy(tied):
    torch.manual_seed(0)
    shape = transformers.Qwen2Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    # in doubles: Adam divides by the gradient's size, which makes much of a small one's rounding
    return transformers.Qwen2ForCausalLM(shape).double()


def train(tied, within_nodes=False):
    """Two updates of two microbatches, after all that may come before one in a run.

    Returns the weights before and after, and the share of them that a rank has.
    """
    policy = make_policy(tied)
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    share, norm = 1.0, policy.model.norm.weight.numel()
    if world.WORLD_SIZE > 1:
        shard(policy, within_nodes=within_nodes)
        share = policy.model.norm.weight.to_local().numel() / norm
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, weight_decay=0.0)
    samples = [Sample([i + 1, 2], [3 + i, 7, 11 + i, 5 * i]) for i in range(8)]
    mine = samples[world.RANK :: world.WORLD_SIZE]
    half = len(mine) // 2
    for _ in range(2):
        unshard(policy, True)  # a rollout
        policy(torch.tensor([[1, 2, 3]]))
        unshard(policy, False)
        with torch.no_grad():
            completion_logprobs(policy, mine, 1.0, 4)  # the old policy's
        for part in (mine[:half], mine[half:]):
            logprobs, _ = completion_logprobs(policy, part, 1.0, 4)
            (-logprobs.sum() / len(samples)).backward()
        if is_sharded(policy):
            add_up_gradients(policy)
        optimizer.step()
        optimizer.zero_grad()
    after = {name: whole(value.detach()) for name, value in policy.named_parameters()}
    return before, after, share


def sharded_after_a_pass():
    """By kind of policy, whether all of its weights are sharded again after a forward pass."""
    found = {}
    for kind in ("trained", "frozen"):
        policy = make_policy(tied=False)
        shard(policy, frozen=kind == "frozen")
        with torch.no_grad():
            completion_logprobs(policy, [Sample([1, 2], [3, 7])], 1.0, 2)
        found[kind] = all(isinstance(value, DTensor) for value in policy.parameters())
    return found


RESULTS = {
    "tied": functools.partial(train, True),
    "untied, within nodes": functools.partial(train, False, within_nodes=True),
    "frozen": sharded_after_a_pass,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The RESULTS of four ranks, on two nodes. To start them takes longer than what they do."""
    folder = tmp_path_factory.mktemp("sharding")
    command = [*LAUNCH, "--nproc_per_node", 4, "--master_port", free_port(), __file__]
    finish([*command, folder / "found"], folder=folder)
    return torch.load(folder / "found")


@pytest.mark.slow
@pytest.mark.parametrize("name, share", [("tied", 1 / 4), ("untied, within nodes", 1 / 2)])
def test_all_weights_train_as_those_of_one_process(found, name, share):
    before, expected, _ = train(tied=name == "tied")
    _, after, share_found = found[name]
    assert ("lm_head.weight" in after) == (name != "tied")
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-12)
    assert all((value - before[weight]).abs().max() > 1e-3 for weight, value in after.items())
    assert share_found == share


@pytest.mark.slow
def test_a_frozen_policy_gives_everything_back(found):
    """A reference policy has no backward pass after which embedding and head could go."""
    assert found["frozen"] == {"trained": False, "frozen": True}


if __name__ == "__main__":
    world.LOCAL_WORLD_SIZE = 2
    dist.init_process_group("gloo")
    results = {name: function() for name, function in RESULTS.items()}
    if world.RANK == 0:
        torch.save(results, sys.argv[1])
    dist.barrier()  # a rank that left earlier could abort the other
    dist.destroy_process_group()

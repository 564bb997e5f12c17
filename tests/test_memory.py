"""The estimate of a run's memory, and what a run is told of it."""

import functools
import os
from dataclasses import replace
from types import SimpleNamespace

from rlvr import world
from rlvr.flags.config import Config
from rlvr.flags.presets import LARGE
from rlvr.policy.memory import memory_estimate, tell_memory

import pytest
import torch
import transformers

# Qwen2.5, by billions of parameters: a row a size; and one that is quickly made.
SHAPE_NAMES = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "vocab_size tie_word_embeddings"
).split()
QWEN = {
    "1.5 B": (1536, 8960, 28, 12, 2, 151936, True),
    "7 B": (3584, 18944, 28, 28, 4, 152064, False),
    "small": (128, 384, 4, 4, 2, 64, False),
}
LARGE_BY_HF = Config(**LARGE, engine="hf")


def qwen_shape(size):
    """The transformers configuration of a size."""
    return transformers.Qwen2Config(**dict(zip(SHAPE_NAMES, QWEN[size], strict=True)))


@functools.cache
def without_weights(size):
    """A policy of a size, whose weights take no memory."""
    with torch.device("meta"):
        return transformers.Qwen2ForCausalLM(qwen_shape(size))


def saved_gb(policy):
    """What autograd saves in a forward pass of four texts, beside the policy's weights."""
    weights = {tuple(sorted(parameter.shape)) for parameter in policy.parameters()}
    saved = {}

    def keep(tensor):
        if tuple(sorted(tensor.shape)) not in weights:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.base_model(input_ids=torch.zeros(4, 1024, dtype=torch.long), use_cache=False)
    return sum(storage.nbytes() for storage in saved.values()) / 1e9


def test_the_estimate_is_near_what_the_backward_pass_keeps():
    """It is within a quarter of the bytes that autograd saves, with and without checkpointing."""
    policy = transformers.Qwen2ForCausalLM(qwen_shape("small"))
    config = Config(microbatch_tokens=1, max_prompt_length=4000, max_completion_length=96)
    measured = saved_gb(policy)
    estimate = memory_estimate(policy, config, 0.0)
    assert estimate["activations"] - 0.5 == pytest.approx(measured, rel=0.25)
    # beside what is kept of all layers, one layer is computed again at a time
    one_layer = measured / policy.config.num_hidden_layers
    policy.gradient_checkpointing_enable()
    policy.train()
    estimate = memory_estimate(policy, replace(config, gradient_checkpointing=True), 0.0)
    assert estimate["activations"] - 0.5 == pytest.approx(one_layer + saved_gb(policy), rel=0.25)


def test_a_gpu_by_hand():
    """Qwen2.5-1.5B on one GPU of 80 GB, in 1e9 bytes, by what each byte is for."""
    parameters, head = 1.543714304, (151936 * 1536 + 1536) / 1e9
    activations = 16384 * (4 * 1536 * 28 + 40 * 1536 + 11 * 8960) / 1e9 + 0.5
    cache = 64 * 2048 * 2 * 2 * 28 * 2 * 128 / 1e9
    expected = {
        "weights, gradients and Adam": (4 + 4 + 8) * parameters,
        "bf16 weights": 2 * parameters,
        "head": 4 * head,  # its gradient of one microbatch
        "activations": activations,
        "cache": cache,
        "vLLM": 0.0,
        "an update": 18 * parameters + 4 * head + activations,
        "a rollout": (12 + 2) * parameters + cache,  # the gradients are gone by then
    }
    policy = without_weights("1.5 B")
    assert memory_estimate(policy, LARGE_BY_HF, 80.0) == pytest.approx(expected)
    for asleep in (False, True):
        config = replace(LARGE_BY_HF, engine="vllm", vllm_enable_sleep_mode=asleep)
        found = memory_estimate(policy, config, 80.0)
        assert (found["cache"], found["vLLM"]) == (0, pytest.approx(24))
        assert found["an update"] == pytest.approx(expected["an update"] + 24 * (not asleep))
        assert found["a rollout"] == pytest.approx(14 * parameters + 24)


@pytest.mark.parametrize("within, sharing", [(False, 16), (True, 8)])
def test_fsdp_by_hand(monkeypatch, within, sharing):
    """7 B on two nodes of 8: 16 bytes a parameter over 16 ranks, or over the 8 of each node.

    Of the 1.09e9 parameters of embedding and head, a GPU gathers 8 bytes each.
    """
    monkeypatch.setattr(world, "WORLD_SIZE", 16)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 8)
    config = replace(LARGE_BY_HF, shard_within_nodes=within)
    estimate = memory_estimate(without_weights("7 B"), config, 80.0)
    shared, gathered = 16 * 7.615616512 / sharing, 2 * 7.615616512
    assert estimate["head"] == pytest.approx(8 * (2 * 152064 * 3584 + 3584) / 1e9)
    # an update gathers a layer at a time, and a rollout all of them
    parts = shared + estimate["head"] + estimate["activations"]
    assert estimate["an update"] == pytest.approx(parts)
    assert estimate["a rollout"] == pytest.approx(shared * 12 / 16 + gathered + estimate["cache"])


@pytest.mark.parametrize("kind, gb", [("cuda", 40), ("cuda", 20), ("cpu", 40), ("cpu", 20)])
def test_a_run_that_does_not_fit_is_told_what_saves_memory(monkeypatch, capsys, kind, gb):
    """By the memory of the GPU, or a rank's half of the machine's: 1.5 B needs about 34 GB."""
    properties = SimpleNamespace(total_memory=gb * 1e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    pages = {"SC_PAGE_SIZE": 4000, "SC_PHYS_PAGES": 2 * gb * 10**9 // 4000}
    monkeypatch.setattr(os, "sysconf", pages.get)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 2)
    tell_memory(qwen_shape("1.5 B"), LARGE_BY_HF, SimpleNamespace(type=kind))
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("memory a rank: 24.7 GB weights, gradients and Adam; ")
    assert len(told) == 1 + (gb < 30)
    assert gb > 30 or "--gradient_checkpointing" in told[1]

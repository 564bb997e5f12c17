"""The estimate of a run's memory, and what a run is told of it."""

import functools
import os
from dataclasses import replace
from types import SimpleNamespace

from rlvr import world
from rlvr.flags.command_line import LARGE
from rlvr.flags.config import Config
from rlvr.policy.memory import memory_estimate, tell_memory

import pytest
import torch
import transformers

# Qwen2.5, by billions of parameters, and one that is quickly made
SHAPE_NAMES = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "vocab_size tie_word_embeddings"
).split()
QWEN = {
    "1.5 B": (1536, 8960, 28, 12, 2, 151936, True),
    "7 B": (3584, 18944, 28, 28, 4, 152064, False),
    "small": (128, 384, 4, 4, 2, 64, False),
}
LARGE_BY_HF = Config(**LARGE, engine="hf", bf16=True)


def qwen_shape(size):
    """The transformers configuration of a size."""
    return transformers.Qwen2Config(**dict(zip(SHAPE_NAMES, QWEN[size], strict=True)))


@functools.cache
def without_weights(size):
    """A policy of a size, whose weights take no memory."""
    with torch.device("meta"):
        return transformers.Qwen2ForCausalLM(qwen_shape(size))


LONG = dict(max_prompt_length=4000, max_completion_length=96)
TEXTS = dict(max_prompt_length=128, max_completion_length=128)


@pytest.mark.parametrize(
    "part, flags, gb, within",
    [
        # a microbatch holds at least one text, here of 4,096 tokens
        ("an update", dict(microbatch_tokens=1, **LONG), 42.6, 0.05),
        ("an update", dict(microbatch_tokens=8192), 56.3, 0.05),
        ("an update", dict(microbatch_tokens=16384, gradient_checkpointing=True), 31.3, 0.05),
        # there were no moments of Adam, which are 8 bytes a parameter
        ("a rollout", dict(rollout_batch_size=512, **TEXTS), 14.97 + 8 * 1.543714304, 0.02),
    ],
)
def test_peaks_as_they_were_on_an_h100(part, flags, gb, within):
    """Of Qwen2.5-1.5B's shape, by docs/gpu.md. vLLM's share comes on top of weights alone."""
    config, policy = Config(engine="hf", bf16=True, **flags), without_weights("1.5 B")
    estimate = memory_estimate(policy, config, 85.0)
    assert estimate[part] == pytest.approx(gb, rel=within)
    found = memory_estimate(policy, replace(config, engine="vllm"), 80.0)
    assert (found["cache"], found["logits"], found["vLLM"]) == (0, 0, pytest.approx(24))
    assert found["an update"] - estimate["an update"] == pytest.approx(24)
    by_loop = estimate["cache"] + estimate["logits"]
    assert found["a rollout"] - estimate["a rollout"] == pytest.approx(24 - by_loop)


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


def test_what_is_kept_is_what_is_there():
    """In fp32: the bytes of weights, gradients and Adam after an update, and those of the cache.

    In fp32 a rollout needs no copy of the weights, and the gradients are gone by then. Activations
    are within a quarter of the bytes that autograd saves, with and without checkpointing.
    """
    policy = transformers.Qwen2ForCausalLM(qwen_shape("small"))
    optimizer = torch.optim.AdamW(policy.parameters())
    read = policy(torch.arange(12).view(2, 6), use_cache=True)
    read.logits.sum().backward()
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in state if "exp" in name]
    cache = [each for layer in read.past_key_values.layers for each in (layer.keys, layer.values)]

    def gb(tensors):
        return sum(tensor.nbytes for tensor in tensors) / 1e9

    weights = gb(policy.parameters())
    kept = 2 * weights + gb(moments)  # with the reference policy
    gradients = gb(weight.grad for weight in policy.parameters())
    config = Config(beta=0.1, rollout_batch_size=2, max_prompt_length=4, max_completion_length=2)
    found = memory_estimate(policy, config, 0.0)
    assert found["weights, gradients and Adam"] == pytest.approx(kept + gradients)
    # two rows of log-probs and probabilities in fp32, and of two copies in fp64
    logits = 2 * (4 + 4 + 8 + 8) * policy.config.vocab_size / 1e9
    assert found["a rollout"] == pytest.approx(kept + gb(cache) + logits)
    head = gb([policy.lm_head.weight, policy.get_input_embeddings().weight])
    whole = kept + gradients + head + found["activations"]
    assert found["an update"] == pytest.approx(whole, rel=1e-3)  # a norm counts with the head
    without = memory_estimate(policy, replace(config, beta=0.0), 0.0)
    assert found["a rollout"] - without["a rollout"] == pytest.approx(weights)

    config = Config(microbatch_tokens=1, **LONG)
    measured = saved_gb(policy)
    for checkpointing in (False, True):
        config = replace(config, gradient_checkpointing=checkpointing)
        if checkpointing:
            policy.gradient_checkpointing_enable()
            policy.train()
            # beside what is kept of all layers, one layer is computed again at a time
            measured = measured / policy.config.num_hidden_layers + saved_gb(policy)
        found = memory_estimate(policy, config, 0.0)
        assert found["activations"] - 0.5 == pytest.approx(measured, rel=0.25)


def test_fsdp_by_hand(monkeypatch):
    """7 B on 16 ranks, which share 16 bytes a parameter.

    Of the 1.09e9 parameters of embedding and head, a GPU gathers 8 bytes each.
    """
    monkeypatch.setattr(world, "WORLD_SIZE", 16)
    estimate = memory_estimate(without_weights("7 B"), LARGE_BY_HF, 80.0)
    shared, gathered = 7.615616512, 2 * 7.615616512
    # an update gathers a layer at a time, and a rollout all of them
    head = 8 * (2 * 152064 * 3584 + 3584) / 1e9
    assert estimate["an update"] == pytest.approx(shared + head + estimate["activations"])
    rollout = estimate["cache"] + estimate["logits"]
    assert estimate["a rollout"] == pytest.approx(shared * 12 / 16 + gathered + rollout)


@pytest.mark.parametrize("kind, gb", [("cuda", 32), ("cuda", 28), ("cpu", 32), ("cpu", 28)])
def test_a_run_that_does_not_fit_is_told_what_saves_memory(monkeypatch, capsys, kind, gb):
    """By the memory of the GPU, or a rank's half of the machine's: 31 GB for an update."""
    properties = SimpleNamespace(total_memory=gb * 1e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    machine = 2 * gb * 10**9 if kind == "cpu" else 10**12
    pages = {"SC_PAGE_SIZE": 4000, "SC_PHYS_PAGES": machine // 4000}
    monkeypatch.setattr(os, "sysconf", pages.get)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 2)
    tell_memory(qwen_shape("1.5 B"), LARGE_BY_HF, SimpleNamespace(type=kind))
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 1 + (gb < 30)
    assert gb > 30 or "--gradient_checkpointing" in told[1]

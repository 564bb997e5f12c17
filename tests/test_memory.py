"""The estimate of a run's memory."""

from dataclasses import replace

from rlvr import world
from rlvr.flags.config import Config
from rlvr.flags.presets import LARGE
from rlvr.machine.devices import forward_passes
from rlvr.policy.memory import memory_estimate, policy_sizes

import pytest
import torch
import transformers
from shapes import qwen_shape

SHAPE = transformers.Qwen2Config(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def estimate_of(shape, config, gpu_memory=0.0):
    return memory_estimate(policy_sizes(shape), config, gpu_memory)


def saved_bytes(policy, texts, tokens, *numbers):
    """Bytes that autograd saves in a forward pass of so many texts, of so many tokens each.

    The policy's weights are not counted, nor their copies in bf16. `numbers` are what
    forward_passes takes beside the device.
    """
    weights = {tuple(sorted(parameter.shape)) for parameter in policy.parameters()}
    saved = {}

    def keep(tensor):
        if tuple(sorted(tensor.shape)) not in weights:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ids = torch.zeros(texts, tokens, dtype=torch.long)
        with forward_passes(ids.device, *numbers):
            policy.base_model(input_ids=ids, use_cache=False)
    return sum(storage.nbytes() for storage in saved.values())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("bf16, tokens", [(False, 1024), (True, 64), (True, 1024)])
def test_the_estimate_is_near_what_the_backward_pass_keeps(bf16, tokens, checkpointing):
    """It is within a quarter of the bytes that autograd saves, of short texts and of long ones."""
    policy = transformers.Qwen2ForCausalLM(SHAPE)
    how = (4096 // tokens, tokens, bf16, checkpointing)
    measured = saved_bytes(policy, *how) / 1e9
    if checkpointing:
        # beside what is kept of all layers, one layer is computed again at a time
        one_layer = measured / policy.config.num_hidden_layers
        policy.gradient_checkpointing_enable()
        policy.train()
        measured = one_layer + saved_bytes(policy, *how) / 1e9
    config = Config(
        bf16=bf16,
        microbatch_tokens=4096,
        max_prompt_length=tokens // 2,
        max_completion_length=tokens // 2,
        gradient_checkpointing=checkpointing,
    )
    estimate = estimate_of(policy.config, config)
    assert estimate["activations"] - 0.5 == pytest.approx(measured, rel=0.25)
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    assert estimate["weights, gradients and Adam"] == pytest.approx(16 * parameters / 1e9)


def test_a_gpu_by_hand():
    """Qwen2.5-1.5B on one GPU of 80 GB, in 1e9 bytes, by what each byte is for."""
    shape, parameters, head = qwen_shape("1.5 B"), 1.543714304, 151936 * 1536 / 1e9
    config = Config(**LARGE, engine="hf", vllm_gpu_memory_utilization=0.3)
    estimate = estimate_of(shape, config, 80.0)
    activations = 16384 * (4 * 1536 * 28 + 40 * 1536 + 11 * 8960) / 1e9 + 0.5
    cache = 64 * 2048 * 2 * 2 * (28 * 2 * 128 + 12 * 128) / 1e9
    assert estimate == pytest.approx(
        {
            "weights, gradients and Adam": (4 + 4 + 8) * parameters,
            "bf16 weights": 2 * parameters,
            "head": 4 * head,  # its gradient of one microbatch
            "activations": activations,
            "cache": cache,
            "vLLM": 0.0,
            "an update": 18 * parameters + 4 * head + activations,
            "a rollout": (12 + 2) * parameters + cache,  # the gradients are gone by then
        }
    )
    vllm = estimate_of(shape, replace(config, engine="vllm"), 80.0)
    assert vllm["cache"] == 0
    assert vllm["vLLM"] == pytest.approx(24)
    assert vllm["an update"] == pytest.approx(estimate["an update"] + 24)
    assert vllm["a rollout"] == pytest.approx(14 * parameters + 24)
    asleep = replace(config, engine="vllm", vllm_enable_sleep_mode=True)
    asleep = estimate_of(shape, asleep, 80.0)
    assert asleep["an update"] == pytest.approx(estimate["an update"] + 2)  # its CUDA graphs
    assert asleep["a rollout"] == pytest.approx(vllm["a rollout"])


def test_what_fsdp_gathers_at_once(monkeypatch):
    """Embedding and head of Qwen2.5-7B: 1.09e9 parameters, of which a GPU holds 8 bytes each."""
    monkeypatch.setattr(world, "WORLD_SIZE", 8)
    estimate = estimate_of(qwen_shape("7 B"), Config(**LARGE, engine="hf"), 80.0)
    assert estimate["head"] == pytest.approx(8 * (2 * 152064 * 3584 + 3584) / 1e9)
    shared = 16 * 7.615616512 / 8
    gathered = 2 * 7.615616512
    assert estimate["bf16 weights"] == pytest.approx(gathered)
    # an update gathers a layer at a time, and a rollout all of them
    parts = shared + estimate["head"] + estimate["activations"]
    assert estimate["an update"] == pytest.approx(parts)
    assert estimate["a rollout"] == pytest.approx(shared * 12 / 16 + gathered + estimate["cache"])


def test_what_the_ranks_of_a_node_share(monkeypatch):
    """Of 7 B on two nodes of 8: 16 bytes a parameter over 16 ranks, or over the 8 of each node."""
    monkeypatch.setattr(world, "WORLD_SIZE", 16)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 8)
    for within, ranks in ((False, 16), (True, 8)):
        config = Config(**LARGE, engine="hf", shard_within_nodes=within)
        estimate = estimate_of(qwen_shape("7 B"), config, 80.0)
        kept = estimate["weights, gradients and Adam"]
        assert kept == pytest.approx(16 * 7.615616512 / ranks)

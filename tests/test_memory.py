"""The estimate of a run's memory, and the flags that it gets so that it fits."""

from dataclasses import replace
from types import SimpleNamespace

import rlvr.policy.memory
from rlvr import world
from rlvr.flags.config import Config
from rlvr.flags.presets import CHOSEN_BY_MEMORY, LARGE
from rlvr.machine.devices import forward_passes
from rlvr.policy.memory import (
    USABLE,
    USABLE_WITHOUT_GPU,
    choose_flags,
    fit_to_memory,
    memory_estimate,
    peak,
    policy_sizes,
    share_of_main_memory,
    smallest_gpu,
    vllm_share,
)

import pytest
import torch
import transformers

# Qwen2.5, by billions of parameters: a row a size; and one that is quickly made.
SHAPE_NAMES = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
    "vocab_size tie_word_embeddings"
).split()
QWEN = {
    "0.5 B": (896, 4864, 24, 14, 2, 151936, True),
    "1.5 B": (1536, 8960, 28, 12, 2, 151936, True),
    "3 B": (2048, 11008, 36, 16, 2, 151936, True),
    "7 B": (3584, 18944, 28, 28, 4, 152064, False),
    "small": (128, 384, 4, 4, 2, 64, False),
}


def qwen_shape(size):
    """The transformers configuration of a size."""
    return transformers.Qwen2Config(**dict(zip(SHAPE_NAMES, QWEN[size], strict=True)))


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
    policy = transformers.Qwen2ForCausalLM(qwen_shape("small"))
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


@pytest.mark.parametrize("within, ranks", [(False, 16), (True, 8)])
def test_what_the_ranks_of_a_node_share(monkeypatch, within, ranks):
    """Of 7 B on two nodes of 8: 16 bytes a parameter over 16 ranks, or over the 8 of each node."""
    monkeypatch.setattr(world, "WORLD_SIZE", 16)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 8)
    config = Config(**LARGE, engine="hf", shard_within_nodes=within)
    kept = estimate_of(qwen_shape("7 B"), config, 80.0)["weights, gradients and Adam"]
    assert kept == pytest.approx(16 * 7.615616512 / ranks)


# ----------------------------------------------------------------------------------- flags that fit


SIZES = {size: policy_sizes(qwen_shape(size)) for size in QWEN}


def chosen_for(size, gpu_memory, engine, free=CHOSEN_BY_MEMORY, **flags):
    config = Config(**{**LARGE, "engine": engine, **flags})
    return config, choose_flags(SIZES[size], config, gpu_memory, free)


def test_flags_for_a_gpu_by_hand():
    """1.5 B on 80 GB, of which 73.6 are used.

    Weights, gradients, Adam, bf16 copies and the head are 24.7 + 3.1 + 0.9 = 28.7 GB, and
    activations 4.57 MB a token without checkpointing. 8,192 tokens make it 66.0, 16,384 would make
    it 103. vLLM needs 3.1 for its weights, 15.0 for the cache of 256 completions and 4 more, 0.3 of
    80 GB; it has to sleep, since 66.0 + 24 is too much.
    """
    assert chosen_for("1.5 B", 80, "vllm")[1] == dict(
        gradient_checkpointing=False,
        microbatch_tokens=8192,
        vllm_enable_sleep_mode=True,
        vllm_gpu_memory_utilization=0.3,
    )


@pytest.mark.parametrize("engine", ["hf", "vllm"])
@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("gpu_memory", [24, 40, 80])
@pytest.mark.parametrize("size", [*QWEN][:4])
def test_what_is_chosen_fits(monkeypatch, size, gpu_memory, ranks, engine):
    """What is faster does not; and where nothing is chosen, the most frugal flags do not fit."""
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    config, chosen = chosen_for(size, gpu_memory, engine)

    def fits(**flags):
        needed = peak(SIZES[size], replace(config, **chosen | flags), gpu_memory)
        return needed <= USABLE * gpu_memory

    share = vllm_share(SIZES[size], config, gpu_memory, 16)
    least = dict(gradient_checkpointing=True, microbatch_tokens=4096, rollout_batch_size=16)
    least |= dict(vllm_enable_sleep_mode=True, vllm_gpu_memory_utilization=share)
    assert fits(**{} if chosen else least) == bool(chosen)
    if chosen.get("gradient_checkpointing"):
        assert not fits(gradient_checkpointing=False, microbatch_tokens=4096)
    if chosen.get("vllm_enable_sleep_mode"):
        assert not fits(vllm_enable_sleep_mode=False)


@pytest.mark.parametrize(
    "ranks, flags, expected",
    [
        (1, {}, 0.45),
        (1, dict(vllm_tensor_parallel_size=2), 0.35),
        (8, {}, 0.35),
        (8, dict(eval_problems=0), 0.45),
    ],
)
def test_vllms_share_by_hand(monkeypatch, ranks, flags, expected):
    """7 B on 80 GB: 15.2 GB of weights, alone or by halves, a cache of 128 x 2048 x 57 kB, and 4.

    They are 34.3 and 26.6 GB, 0.43 and 0.33 of the GPU. A rank of 8 has fewer completions: 32 x 8 /
    8 of a rollout, or the 64 of an evaluation, 16 of 128 problems x 4. Their cache has 7.5 GB,
    which makes 26.7. Of a whole set it is not known how many problems it has.
    """
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    assert vllm_share(SIZES["7 B"], Config(**LARGE, **flags), 80, 128) == expected


def test_a_given_flag_is_kept():
    """Even where another value would be faster."""
    free = CHOSEN_BY_MEMORY - {"gradient_checkpointing"}
    _, chosen = chosen_for("0.5 B", 80, "hf", free, gradient_checkpointing=True)
    assert chosen == dict(microbatch_tokens=16384, rollout_batch_size=256)


@pytest.mark.parametrize(
    "line, given",
    [
        ("--microbatch_tokens 4096", {"microbatch_tokens"}),  # which is the default, too
        ("--no_gradient_checkpointing", {"gradient_checkpointing"}),
    ],
)
def test_what_the_command_line_leaves_free(parsed, line, given):
    assert parsed("grpo", *line.split()).free == CHOSEN_BY_MEMORY - given


# Without a GPU, of so many GB 0.75 are used. For example 0.5 B: weights, gradients and Adam are
# 7.9 GB, the head and the libraries 0.5 each. A microbatch is at least a text of 2,048 tokens, at
# 2.73 MB each, which makes an update 15.0 GB; with checkpointing it is 9.9. A completion's cache
# takes 0.065 GB, and a rollout of 64 has 6.4 GB beside it, 10.6 together.
@pytest.mark.parametrize(
    "size, memory, expected",
    [
        ("0.5 B", 24, (False, 1024, 128)),
        ("0.5 B", 16, (True, 1024, 64)),
        ("0.5 B", 8, None),
        ("1.5 B", 64, (False, 1024, 128)),
    ],
)
def test_flags_without_a_gpu(size, memory, expected):
    config = Config(**LARGE)
    chosen = choose_flags(SIZES[size], config, 0.0, CHOSEN_BY_MEMORY, memory)
    assert (tuple(chosen.values()) or None) == expected
    if chosen:
        assert peak(SIZES[size], replace(config, **chosen), 0.0) <= USABLE_WITHOUT_GPU * memory


def test_a_share_of_the_main_memory(monkeypatch, tmp_path):
    """Of the machine's pages, or of the container's bytes where they are fewer."""
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 * 10**6}
    monkeypatch.setattr(rlvr.policy.memory.os, "sysconf", pages.get)
    monkeypatch.setattr(rlvr.policy.memory, "CONTAINER", tmp_path / "memory.max")
    assert share_of_main_memory() == 16.384
    for limit, expected in (("max", 16.384), (str(8 * 10**9), 8), (str(10**12), 16.384)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert share_of_main_memory() == expected
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 4)
    assert share_of_main_memory() == 4.096


def test_the_smallest_gpu_of_all_ranks_counts(monkeypatch):
    device = SimpleNamespace(type="cuda")
    properties = SimpleNamespace(total_memory=80e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert smallest_gpu(device) == 80
    monkeypatch.setattr(rlvr.policy.memory, "gather", lambda own: [*own, 24.0])
    assert smallest_gpu(device) == 24


def told_of(capsys, size, gpu_memory, main_memory, free, **flags):
    """The config of a run once its flags are chosen, and the lines that it prints."""
    config = Config(**{**LARGE, "engine": "hf", **flags})
    config.free = free
    fit_to_memory(qwen_shape(size), config, gpu_memory, main_memory)
    return config, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "size, memory, free, told",
    [
        ("3 B", (24.0, 0.0), frozenset(), "each GPU's 24"),  # nobody has left a flag free
        ("0.5 B", (0.0, 8.0), CHOSEN_BY_MEMORY, "this machine's 8"),  # no value is enough
    ],
)
def test_a_run_that_does_not_fit_is_told_what_saves_memory(capsys, size, memory, free, told):
    config, lines = told_of(capsys, size, *memory, free)
    needed = peak(SIZES[size], config, memory[0])
    assert needed > max(memory)
    assert lines[-1].startswith(f"this run needs about {needed:.0f} GB of {told}: ")
    assert all(f"--{name}" in lines[-1] for name in CHOSEN_BY_MEMORY)


def test_what_is_printed_and_chosen(capsys):
    config, lines = told_of(capsys, "0.5 B", 24.0, 0.0, CHOSEN_BY_MEMORY - {"rollout_batch_size"})
    assert (config.gradient_checkpointing, config.microbatch_tokens) == (False, 4096)
    chosen = "--gradient_checkpointing False --microbatch_tokens 4096"
    estimate = memory_estimate(SIZES["0.5 B"], config, 24.0)
    parts = "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items())
    assert lines == [f"chosen for a GPU of 24 GB: {chosen}", f"memory a rank: {parts}"]

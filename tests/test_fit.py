"""The flags that a run gets so that it fits into a GPU."""

from dataclasses import replace
from types import SimpleNamespace

import rlvr.flags.command_line
import rlvr.policy.memory
from rlvr import world
from rlvr.flags.config import Config
from rlvr.flags.presets import CHOSEN_BY_MEMORY, LARGE
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
from shapes import QWEN, qwen_shape

import grpo

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
@pytest.mark.parametrize("size", QWEN)
def test_what_is_chosen_fits_and_is_the_fastest_that_does(
    monkeypatch, size, gpu_memory, ranks, engine
):
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    config, chosen = chosen_for(size, gpu_memory, engine)
    usable = USABLE * gpu_memory
    if not chosen:  # not even the most frugal flags fit
        least = dict(
            gradient_checkpointing=True,
            microbatch_tokens=4096,
            rollout_batch_size=16,
            vllm_enable_sleep_mode=True,
            vllm_gpu_memory_utilization=vllm_share(SIZES[size], config, gpu_memory, 16),
        )
        assert peak(SIZES[size], replace(config, **least), gpu_memory) > usable
        return
    fitting = replace(config, **chosen)
    assert peak(SIZES[size], fitting, gpu_memory) <= usable
    if fitting.gradient_checkpointing:
        without = replace(fitting, gradient_checkpointing=False, microbatch_tokens=4096)
        assert peak(SIZES[size], without, gpu_memory) > usable
    if engine == "vllm":
        assert "rollout_batch_size" not in chosen
        if fitting.vllm_enable_sleep_mode:
            awake = replace(fitting, vllm_enable_sleep_mode=False)
            assert peak(SIZES[size], awake, gpu_memory) > usable
        # vLLM has room for its own weights and for some completions beside its workspace
        share = fitting.vllm_gpu_memory_utilization * gpu_memory
        assert share > 2 * SIZES[size].parameters + rlvr.policy.memory.VLLM_WORKSPACE
    else:
        assert not any(name.startswith("vllm_") for name in chosen)


@pytest.mark.parametrize("ranks_an_engine, expected", [(1, 0.45), (2, 0.35)])
def test_vllms_share_by_hand(ranks_an_engine, expected):
    """7 B on 80 GB: 15.2 GB of weights, alone or by halves, a cache of 128 x 2048 x 57 kB, and 4.

    They are 34.3 and 26.6 GB, 0.43 and 0.33 of the GPU.
    """
    config = Config(**LARGE, vllm_tensor_parallel_size=ranks_an_engine)
    assert vllm_share(SIZES["7 B"], config, 80, 128) == expected


@pytest.mark.parametrize(
    "ranks, flags, expected", [(1, {}, 0.45), (8, {}, 0.35), (8, dict(eval_problems=0), 0.45)]
)
def test_vllm_has_no_room_for_more_than_a_rank_has(monkeypatch, ranks, flags, expected):
    """7 B: 128 completions as above, or the 64 of an evaluation, 16 of 128 problems x 4.

    Their cache has 7.5 GB, which makes 26.7 of 80 GB. A rollout has 32 x 8 / 8 of them. Of a whole
    set it is not known how many problems it has.
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
        ("", set()),
        ("--microbatch_tokens 4096", {"microbatch_tokens"}),  # which is the default, too
        ("--microbatch-tokens=4096", {"microbatch_tokens"}),
        ("--no_gradient_checkpointing", {"gradient_checkpointing"}),
    ],
)
def test_what_the_command_line_leaves_free(monkeypatch, line, given):
    monkeypatch.setattr("sys.argv", ["grpo.py", *line.split()])
    config = rlvr.flags.command_line.parse_flags(grpo.Config, grpo.VARIANTS)
    assert config.free == CHOSEN_BY_MEMORY - given


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


@pytest.mark.parametrize(
    "size, memory, flags",
    [
        ("3 B", (80.0, 0.0), dict(engine="vllm", vllm_gpu_memory_utilization=0.5)),
        ("0.5 B", (0.0, 8.0), dict()),
    ],
)
def test_a_run_that_does_not_fit_is_told_what_saves_memory(capsys, size, memory, flags):
    """Where nobody has left a flag free, and where no value of them is enough."""
    config = Config(**{**LARGE, "engine": "hf", **flags})
    config.free = CHOSEN_BY_MEMORY if not flags else frozenset()
    fit_to_memory(qwen_shape(size), config, *memory)
    needed = peak(SIZES[size], config, memory[0])
    assert needed > max(memory)
    last = capsys.readouterr().out.splitlines()[-1]
    whose = "each GPU's" if memory[0] else "this machine's"
    assert last.startswith(f"this run needs about {needed:.0f} GB of {whose} {max(memory):.0f}: ")
    assert all(f"--{name}" in last for name in CHOSEN_BY_MEMORY)


def test_what_is_printed_and_chosen(capsys):
    config = Config(**LARGE, engine="hf")
    config.free = CHOSEN_BY_MEMORY - {"rollout_batch_size"}
    fit_to_memory(qwen_shape("0.5 B"), config, 24.0)
    assert (config.gradient_checkpointing, config.microbatch_tokens) == (False, 4096)
    first, second = capsys.readouterr().out.splitlines()
    chosen = "--gradient_checkpointing False --microbatch_tokens 4096"
    assert first == f"chosen for a GPU of 24 GB: {chosen}"
    estimate = memory_estimate(SIZES["0.5 B"], config, 24.0)
    parts = "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items())
    assert second == f"memory a rank: {parts}"

"""Flags with which a run fits into a GPU's memory."""

import math
from dataclasses import replace
from itertools import product

from rlvr import world
from rlvr.memory import PolicySizes, memory_estimate, policy_sizes
from rlvr.presets import CHOSEN_BY_MEMORY
from rlvr.ranks import gather

import torch

# What a chosen run may fill; the rest is for CUDA's context, for NCCL and for gaps.
USABLE = 0.92
# GB that vLLM takes beside its weights and its cache: the pass that it measures itself by, and its
# CUDA graphs.
VLLM_WORKSPACE = 4.0

# What is tried, the fastest first. Few completions at a time cost the most, then activations that
# are computed twice, then small microbatches, then sleep mode.
COMPLETIONS_AT_ONCE = (256, 128, 64, 32, 16)
UPDATES = ((False, 16384), (False, 8192), (False, 4096), (True, 16384), (True, 8192), (True, 4096))


def choose_flags(sizes: PolicySizes, config, gpu_memory: float, free) -> dict:
    """The fastest values of the flags `free` with which a run fits; none where it does not fit."""
    sleeping = (False, True) if config.uses_vllm(gpu=True) else (False,)
    for completions, (checkpointing, tokens), sleep in product(
        COMPLETIONS_AT_ONCE, UPDATES, sleeping
    ):
        values = dict(
            gradient_checkpointing=checkpointing,
            microbatch_tokens=tokens,
            rollout_batch_size=completions,
            vllm_enable_sleep_mode=sleep,
            vllm_gpu_memory_utilization=vllm_share(sizes, config, gpu_memory, completions),
        )
        unused = "rollout_batch_size" if config.uses_vllm(gpu=True) else "vllm_"
        chosen = {
            name: value
            for name, value in values.items()
            if name in free and not name.startswith(unused)
        }
        if peak(sizes, replace(config, **chosen), gpu_memory) <= USABLE * gpu_memory:
            return chosen
    return {}


def vllm_share(sizes: PolicySizes, config, gpu_memory: float, completions: int) -> float:
    """The share of a GPU's memory, in steps of 0.05, that vLLM needs for so many completions.

    Ranks that share an engine share its weights, and bring as many completions each.
    """
    weights = 2 * sizes.parameters / config.vllm_tensor_parallel_size  # in bf16, as the cache is
    cache = completions * 4 * sizes.layers * sizes.keys * config.longest / 1e9
    return math.ceil(20 * (weights + cache + VLLM_WORKSPACE) / gpu_memory) / 20


def peak(sizes: PolicySizes, config, gpu_memory: float) -> float:
    """GB that a run needs at most."""
    estimate = memory_estimate(sizes, config, gpu_memory)
    return max(estimate["an update"], estimate["a rollout"])


def advice(sizes: PolicySizes, config, gpu_memory: float) -> str:
    """What to change so that a run fits: one flag if that is enough, or else several."""
    for engine in dict.fromkeys((config.engine, "hf")):
        with_engine = replace(config, engine=engine)
        chosen = choose_flags(sizes, with_engine, gpu_memory, CHOSEN_BY_MEMORY)
        if chosen:
            chosen["engine"] = engine
            break
    changes = {name: value for name, value in chosen.items() if getattr(config, name) != value}
    if not changes:
        return "give it more GPUs by torchrun, or take a smaller --model"
    for name, value in changes.items():
        if peak(sizes, replace(config, **{name: value}), gpu_memory) <= USABLE * gpu_memory:
            return as_flag(name, value)
    return " ".join(as_flag(name, value) for name, value in changes.items())


def as_flag(name: str, value) -> str:
    """A flag as it stands on a command line."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no_{name}"
    return f"--{name} {value}"


def fit_to_gpu(shape, config, gpu_memory: float) -> None:
    """Choose the flags that nobody has given, and tell what memory the run needs.

    `gpu_memory` is what each GPU has, in GB, and 0 on a CPU.
    """
    sizes = policy_sizes(shape, config.trust_remote_code)
    lines = []
    if gpu_memory:
        chosen = choose_flags(sizes, config, gpu_memory, config.free)
        for name, value in chosen.items():
            setattr(config, name, value)
        flags = " ".join(as_flag(name, value) for name, value in chosen.items())
        if chosen:
            lines.append(f"chosen for a GPU of {gpu_memory:.0f} GB: {flags}")
    estimate = memory_estimate(sizes, config, gpu_memory)
    parts = "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items())
    lines.append(f"memory a rank: {parts}")
    needed = peak(sizes, config, gpu_memory)
    if 0 < gpu_memory < needed:
        lines.append(
            f"this run needs about {needed:.0f} GB of each GPU's {gpu_memory:.0f}: "
            + advice(sizes, config, gpu_memory)
        )
    if world.RANK == 0:
        print(*lines, sep="\n")


def smallest_gpu(device: torch.device) -> float:
    """GB of the smallest GPU of all ranks, which call it together; 0 on a CPU."""
    own = 0.0
    if device.type == "cuda":
        own = torch.cuda.get_device_properties(device).total_memory / 1e9
    return min(gather([own]))

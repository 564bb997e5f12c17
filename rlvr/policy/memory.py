"""How much memory a run takes on each rank, and flags with which it fits.

It is computed before anything is loaded, for a GPU or for a machine without one.
"""

import math
import os
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from rlvr import world
from rlvr.machine import gather
from rlvr.policy.sharding import layers_of

import torch


@dataclass(frozen=True)
class PolicySizes:
    """What the memory of a policy follows from. Parameters are counted in 1e9."""

    parameters: float
    root: float  # parameters outside of the layers, which FSDP gathers together
    head: float  # parameters of the head, V * H, also where it is the embedding, too
    hidden: int
    intermediate: int
    layers: int
    heads: int  # of a layer
    queries: int  # width of all heads of a layer
    keys: int  # width of its key heads, and of its value heads


def policy_sizes(shape, trust_remote_code: bool = False) -> PolicySizes:
    """The sizes of a policy, from its transformers configuration."""
    from rlvr.policy.images import model_class

    with torch.device("meta"):
        policy = model_class(shape).from_config(shape, trust_remote_code=trust_remote_code)
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    in_layers = sum(p.numel() for layer in layers_of(policy) for p in layer.parameters())
    shape = shape.get_text_config()  # a vision tower counts as parameters alone
    hidden, heads = shape.hidden_size, shape.num_attention_heads
    head_size = getattr(shape, "head_dim", None) or hidden // heads
    return PolicySizes(
        parameters=parameters / 1e9,
        root=(parameters - in_layers) / 1e9,
        head=shape.vocab_size * hidden / 1e9,
        hidden=hidden,
        intermediate=getattr(shape, "intermediate_size", 4 * hidden),
        layers=shape.num_hidden_layers,
        heads=heads,
        queries=heads * head_size,
        keys=getattr(shape, "num_key_value_heads", heads) * head_size,
    )


def memory_estimate(sizes: PolicySizes, config, gpu_memory: float) -> dict[str, float]:
    """About how many GB a rank needs, by what for; last come the two peaks of a step.

    `gpu_memory` is what its GPU has, in GB, and 0 on a CPU.
    """
    gpu, sharded = gpu_memory > 0, world.WORLD_SIZE > 1 and config.fsdp
    in_bf16 = gpu or config.bf16
    sharing_ranks = 1
    if sharded:
        sharing_ranks = world.LOCAL_WORLD_SIZE if config.shard_within_nodes else world.WORLD_SIZE
    # fp32 weights and Adam's two moments; the reference policy is one more copy of the weights
    kept = (16 if config.beta else 12) * sizes.parameters / sharing_ranks
    gradients = 4 * sizes.parameters / sharing_ranks
    # What computes in bf16 needs copies of an unsharded policy's weights.
    bf16_copies = 2 * sizes.parameters if in_bf16 and not sharded else 0.0
    gathered = (2 if in_bf16 else 4) * sizes.parameters if sharded else 0.0

    # The head's gradient is whole before it is added to the others: 4 bytes of fp32. FSDP does so
    # with all that is not in a layer, and has gathered it and its gradient.
    head = (4 + 2 * (2 if in_bf16 else 4)) * sizes.root if sharded else 4 * sizes.head
    activations = kept_activations(sizes, config, gpu)
    uses_vllm = config.uses_vllm(gpu)
    vllm = config.vllm_gpu_memory_utilization * gpu_memory if uses_vllm else 0.0
    cache = 0.0 if uses_vllm else config.rollout_batch_size * cached(sizes, config, in_bf16)
    # Measured: torch and the other libraries, which are in the main memory.
    libraries = {} if gpu else {"libraries": 0.5}
    always = kept + bf16_copies + sum(libraries.values())
    in_updates = min(vllm, VLLM_ASLEEP) if config.vllm_enable_sleep_mode else vllm
    return {
        "weights, gradients and Adam": kept + gradients,
        "bf16 weights": bf16_copies + gathered,
        "head": head,
        "activations": activations,
        "cache": cache,
        "vLLM": vllm,
        **libraries,
        "an update": always + gradients + head + activations + in_updates,
        "a rollout": always + gathered + cache + vllm,
    }


def kept_activations(sizes: PolicySizes, config, gpu: bool) -> float:
    """GB that a microbatch keeps for its backward pass, and the tiles of the log-probs."""
    in_bf16 = gpu or config.bf16
    # Measured: what a layer of Llama's shape keeps of a token, in bytes.
    layer = 40 * sizes.hidden + (11 if in_bf16 else 16) * sizes.intermediate
    if in_bf16 and not gpu and not config.gradient_checkpointing:
        # attention is not fused here (forward_passes): each token's weights of its text are kept
        layer += 4 * sizes.heads * (config.max_prompt_length + config.max_completion_length)
    token = layer * sizes.layers
    if config.gradient_checkpointing:
        token = 4 * sizes.hidden * sizes.layers + layer
    return tokens_of_a_microbatch(config) * token / 1e9 + 0.5


def tokens_of_a_microbatch(config) -> int:
    """The most tokens of a forward pass: at least one whole text, at most a minibatch."""
    text = config.max_prompt_length + config.max_completion_length
    texts = config.minibatch_size // world.WORLD_SIZE
    return min(max(config.microbatch_tokens, text), texts * text)


def cached(sizes: PolicySizes, config, in_bf16: bool) -> float:
    """GB of keys and values that `generate` keeps of a completion of full length.

    In one layer at a time they are repeated for all heads.
    """
    width = sizes.layers * sizes.keys + sizes.queries
    return 2 * (2 if in_bf16 else 4) * width * config.longest / 1e9


# What a chosen run may fill; the rest is for CUDA's context, for NCCL and for gaps, and without a
# GPU for the system, the libraries and other programs.
USABLE = 0.92
USABLE_WITHOUT_GPU = 0.75
# GB that vLLM takes beside its weights and its cache: the pass that it measures itself by, and its
# CUDA graphs.
VLLM_WORKSPACE = 4.0
VLLM_ASLEEP = 2.0  # GB that it keeps in sleep mode: its CUDA graphs

LESS_MEMORY = (
    "give --gradient_checkpointing or --vllm_enable_sleep_mode, lower --microbatch_tokens, "
    "--rollout_batch_size or --vllm_gpu_memory_utilization, or take more GPUs or a smaller --model"
)
CONTAINER = Path("/sys/fs/cgroup/memory.max")  # where Linux tells a container's limit, in bytes

# What is tried, the fastest first. Few completions at a time cost the most, then activations that
# are computed twice, then small microbatches, then sleep mode.
COMPLETIONS_AT_ONCE = (256, 128, 64, 32, 16)
UPDATES = ((False, 16384), (False, 8192), (False, 4096), (True, 16384), (True, 8192), (True, 4096))
# A CPU gains nothing from larger microbatches.
UPDATES_WITHOUT_GPU = ((False, 1024), (False, 256), (True, 1024), (True, 256))


def choose_flags(
    sizes: PolicySizes, config, gpu_memory: float, free, main_memory: float = 0.0
) -> dict:
    """The fastest values of the flags `free` with which a run fits; none where it does not fit.

    Memory is in GB: that of a GPU, and, where that is 0, what a rank has of the machine's.
    """
    gpu = gpu_memory > 0
    vllm = config.uses_vllm(gpu)
    usable = USABLE * gpu_memory if gpu else USABLE_WITHOUT_GPU * main_memory
    for completions, (checkpointing, tokens), sleep in product(
        COMPLETIONS_AT_ONCE, UPDATES if gpu else UPDATES_WITHOUT_GPU, (False, True)
    ):
        values = dict(gradient_checkpointing=checkpointing, microbatch_tokens=tokens)
        if vllm and gpu:
            values["vllm_enable_sleep_mode"] = sleep
            values["vllm_gpu_memory_utilization"] = vllm_share(
                sizes, config, gpu_memory, completions
            )
        elif not vllm:
            values["rollout_batch_size"] = completions
        chosen = {name: value for name, value in values.items() if name in free}
        if peak(sizes, replace(config, **chosen), gpu_memory) <= usable:
            return chosen
    return {}


def vllm_share(sizes: PolicySizes, config, gpu_memory: float, completions: int) -> float:
    """The share of a GPU's memory, in steps of 0.05, that vLLM needs for so many completions.

    There are no more of them than a rank has at a time, in a rollout or an evaluation. Ranks that
    share an engine share its weights, and bring as many completions each.
    """
    completions = min(completions, max(completions_of_a_rank(config)))
    weights = 2 * sizes.parameters / config.vllm_tensor_parallel_size  # in bf16, as the cache is
    cache = completions * 4 * sizes.layers * sizes.keys * config.longest / 1e9
    return math.ceil(20 * (weights + cache + VLLM_WORKSPACE) / gpu_memory) / 20


def completions_of_a_rank(config) -> tuple[float, float]:
    """How many a rollout and the evaluation of a data set have; a whole set may have any number."""
    rollout = config.prompts_per_step * config.num_generations / world.WORLD_SIZE
    problems = math.ceil(config.eval_problems / world.WORLD_SIZE) or math.inf
    return rollout, problems * config.eval_samples


def peak(sizes: PolicySizes, config, gpu_memory: float) -> float:
    """GB that a run needs at most."""
    estimate = memory_estimate(sizes, config, gpu_memory)
    return max(estimate["an update"], estimate["a rollout"])


def fit_to_memory(shape, config, gpu_memory: float, main_memory: float = 0.0) -> None:
    """Choose the flags that nobody has given, and tell what memory the run needs.

    `gpu_memory` is what each GPU has, in GB, and 0 on a CPU; `main_memory` is a rank's share then.
    """
    sizes = policy_sizes(shape, config.trust_remote_code)
    chosen = choose_flags(sizes, config, gpu_memory, config.free, main_memory)
    for name, value in chosen.items():
        setattr(config, name, value)
    lines = []
    if chosen:
        flags = " ".join(f"--{name} {value}" for name, value in chosen.items())
        memory = f"a GPU of {gpu_memory:.0f}" if gpu_memory else f"a memory of {main_memory:.0f}"
        lines.append(f"chosen for {memory} GB: {flags}")
    estimate = memory_estimate(sizes, config, gpu_memory)
    parts = "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items())
    lines.append(f"memory a rank: {parts}")
    needed, there = peak(sizes, config, gpu_memory), gpu_memory or main_memory
    if there < needed:
        whose = "each GPU's" if gpu_memory else "this machine's"
        lines.append(f"this run needs about {needed:.0f} GB of {whose} {there:.0f}: {LESS_MEMORY}")
    if world.RANK == 0:
        print(*lines, sep="\n")


def smallest_gpu(device: torch.device) -> float:
    """GB of the smallest GPU of all ranks, which call it together; 0 on a CPU."""
    own = 0.0
    if device.type == "cuda":
        own = torch.cuda.get_device_properties(device).total_memory / 1e9
    return min(gather([own]))


def share_of_main_memory() -> float:
    """GB that each rank on this machine has, or in this container where that has less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if CONTAINER.exists():
        limit = CONTAINER.read_text().strip()
        limits += [int(limit)] if limit.isdigit() else []  # "max" where there is none
    return min(limits) / 1e9 / world.LOCAL_WORLD_SIZE

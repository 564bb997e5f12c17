"""An estimate of the memory of a run on each rank, printed before anything is loaded."""

import os

from rlvr import status, world
from rlvr.policy.images import model_class
from rlvr.policy.sharding import layers_of

import torch


def tell_memory(shape, config, device: torch.device) -> None:
    """Print what a rank needs for a model of this shape, and what to do if it is too much."""
    gpu_memory = 0.0
    # on a CPU, its share of the machine's memory
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / world.LOCAL_WORLD_SIZE / 1e9
    if device.type == "cuda":
        there = gpu_memory = torch.cuda.get_device_properties(device).total_memory / 1e9
    with torch.device("meta"):
        policy = model_class(shape).from_config(shape, trust_remote_code=False)
    estimate = memory_estimate(policy, config, gpu_memory)
    sizes = "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items())
    status.tell(f"memory a rank: {sizes}")
    needed = max(estimate["an update"], estimate["a rollout"])
    if there < needed:
        status.tell(
            f"this run needs about {needed:.0f} GB, and there are {there:.0f}: give "
            "--gradient_checkpointing, lower --microbatch_tokens, --rollout_batch_size or "
            "--vllm_gpu_memory_utilization, or take more GPUs or a smaller --model"
        )


def memory_estimate(policy, config, gpu_memory: float) -> dict[str, float]:
    """Return about how many GB a rank needs, by what for; last come the two peaks of a step.

    The policy may be on the device "meta". `gpu_memory` is what the rank's GPU has, in GB, and 0 on
    a CPU.
    """
    sharded = world.WORLD_SIZE > 1 and config.fsdp != "no_shard"
    computed = 2 if config.bf16 else 4  # bytes of a number in a forward pass
    parameters = sum(p.numel() for p in policy.parameters()) / 1e9
    in_layers = sum(p.numel() for layer in layers_of(policy) for p in layer.parameters()) / 1e9
    ranks = world.WORLD_SIZE if sharded else 1  # that share the weights

    # fp32 weights and Adam's two moments; the reference policy is one more copy of the weights
    kept = (16 if config.beta else 12) * parameters / ranks
    gradients = 4 * parameters / ranks
    # in bf16 for one rank, and what several gather for a rollout
    copies = computed * parameters if config.bf16 or sharded else 0.0
    # Embedding and head are whole in an update: their gradient, and what several ranks gather.
    head = (4 + 2 * computed * sharded) * (parameters - in_layers)

    shape = policy.config.get_text_config()  # a vision tower counts as parameters alone
    hidden, layers = shape.hidden_size, shape.num_hidden_layers
    # What a layer of Llama's shape keeps of a token, in bytes: in bf16 measured on an H100.
    inner = shape.intermediate_size
    layer = 31 * hidden + 8 * inner if config.bf16 else 40 * hidden + 16 * inner
    of_a_token = 4 * hidden * layers + layer if config.gradient_checkpointing else layer * layers
    text = config.max_prompt_length + config.max_completion_length  # a microbatch has at least one
    # 0.5 GB for the tiles of the log-probs
    activations = max(config.microbatch_tokens, text) * of_a_token / 1e9 + 0.5

    cache = logits = vllm = 0.0
    if config.uses_vllm(gpu_memory > 0):
        vllm = config.vllm_gpu_memory_utilization * gpu_memory
    else:
        width = shape.num_key_value_heads * hidden / shape.num_attention_heads  # of a layer's keys
        tokens = config.rollout_batch_size * config.longest
        cache = tokens * 2 * computed * width * layers / 1e9
        # log-probs and probabilities in fp32, and both copies in fp64 that their sums take
        logits = 24 * config.rollout_batch_size * shape.vocab_size / 1e9
    update = kept + gradients + head + activations
    # A backward pass that computes layers again casts their weights one layer at a time.
    if not (sharded or config.gradient_checkpointing):
        update += copies
    return {
        "weights, gradients and Adam": kept + gradients,
        "bf16 weights": copies,
        "head": head,
        "activations": activations,
        "cache": cache,
        "logits": logits,
        "vLLM": vllm,
        "an update": update + vllm,
        "a rollout": kept + copies + cache + logits + vllm,
    }

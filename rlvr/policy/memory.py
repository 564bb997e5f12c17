"""About how much memory a run takes on each rank, told before anything is loaded."""

import os

from rlvr import world
from rlvr.policy.images import model_class
from rlvr.policy.sharding import layers_of

import torch

VLLM_ASLEEP = 2.0  # GB that vLLM keeps in sleep mode: its CUDA graphs
LESS_MEMORY = (
    "give --gradient_checkpointing or --vllm_enable_sleep_mode, lower --microbatch_tokens, "
    "--rollout_batch_size or --vllm_gpu_memory_utilization, or take more GPUs or a smaller --model"
)


def tell_memory(shape, config, device: torch.device) -> None:
    """Print what a run with a model of this configuration needs, and what to do if it is too much.

    On a GPU it is this rank's, and on a CPU its share of the machine's memory.
    """
    gpu_memory = 0.0
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / world.LOCAL_WORLD_SIZE / 1e9
    if device.type == "cuda":
        there = gpu_memory = torch.cuda.get_device_properties(device).total_memory / 1e9
    with torch.device("meta"):
        policy = model_class(shape).from_config(shape, trust_remote_code=config.trust_remote_code)
    estimate = memory_estimate(policy, config, gpu_memory)
    print("memory a rank:", "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items()))
    needed = max(estimate["an update"], estimate["a rollout"])
    if there < needed:
        print(f"this run needs about {needed:.0f} GB, and there are {there:.0f}: {LESS_MEMORY}")


def memory_estimate(policy, config, gpu_memory: float) -> dict[str, float]:
    """About how many GB a rank needs, by what for; last come the two peaks of a step.

    The policy may be on the device "meta". `gpu_memory` is what the rank's GPU has, in GB, and 0 on
    a CPU.
    """
    gpu, sharded = gpu_memory > 0, world.WORLD_SIZE > 1 and config.fsdp
    in_bf16 = gpu or config.bf16
    computed = 2 if in_bf16 else 4  # bytes of a number in a forward pass
    parameters = sum(parameter.numel() for parameter in policy.parameters()) / 1e9
    sharing_ranks = 1
    if sharded:
        sharing_ranks = world.LOCAL_WORLD_SIZE if config.shard_within_nodes else world.WORLD_SIZE

    # fp32 weights and Adam's two moments; the reference policy is one more copy of the weights
    kept = (16 if config.beta else 12) * parameters / sharing_ranks
    gradients = 4 * parameters / sharing_ranks
    # What computes in bf16 needs copies of an unsharded policy's weights.
    bf16_copies = 2 * parameters if in_bf16 and not sharded else 0.0
    gathered = computed * parameters if sharded else 0.0

    # The head's gradient is whole before it is added to the others: 4 bytes of fp32. FSDP does so
    # with all that is not in a layer, and has gathered it and its gradient.
    head = 4 * policy.get_output_embeddings().weight.numel() / 1e9
    if sharded:
        in_layers = sum(p.numel() for layer in layers_of(policy) for p in layer.parameters()) / 1e9
        head = (4 + 2 * computed) * (parameters - in_layers)

    shape = policy.config.get_text_config()  # a vision tower counts as parameters alone
    activations = kept_activations(shape, config, in_bf16)
    cache = vllm = 0.0
    if config.uses_vllm(gpu):
        vllm = config.vllm_gpu_memory_utilization * gpu_memory
    else:
        # keys and values of completions of full length; in one layer at a time they are repeated
        # for all heads
        heads = shape.num_attention_heads
        head_size = getattr(shape, "head_dim", None) or shape.hidden_size // heads
        key_heads = getattr(shape, "num_key_value_heads", heads)
        width = (shape.num_hidden_layers * key_heads + heads) * head_size
        cache = config.rollout_batch_size * config.longest * 2 * computed * width / 1e9

    libraries = 0.0 if gpu else 0.5  # measured: torch and the others, in the main memory
    always = kept + bf16_copies + libraries
    vllm_in_updates = min(vllm, VLLM_ASLEEP) if config.vllm_enable_sleep_mode else vllm
    return {
        "weights, gradients and Adam": kept + gradients,
        "bf16 weights": bf16_copies + gathered,
        "head": head,
        "activations": activations,
        "cache": cache,
        "vLLM": vllm,
        "libraries": libraries,
        "an update": always + gradients + head + activations + vllm_in_updates,
        "a rollout": always + gathered + cache + vllm,
    }


def kept_activations(shape, config, in_bf16: bool) -> float:
    """GB that a microbatch keeps for its backward pass, and the tiles of the log-probs."""
    hidden, layers = shape.hidden_size, shape.num_hidden_layers
    intermediate = getattr(shape, "intermediate_size", 4 * hidden)
    # Measured: what a layer of Llama's shape keeps of a token, in bytes.
    layer = 40 * hidden + (11 if in_bf16 else 16) * intermediate
    of_a_token = layer * layers
    if config.gradient_checkpointing:
        of_a_token = 4 * hidden * layers + layer
    # A microbatch has at least one whole text, and at most a minibatch.
    text = config.max_prompt_length + config.max_completion_length
    texts = config.minibatch_size // world.WORLD_SIZE
    tokens = min(max(config.microbatch_tokens, text), texts * text)
    return tokens * of_a_token / 1e9 + 0.5

"""How much memory a run takes on each rank, computed before anything is loaded."""

from dataclasses import dataclass

from rlvr import world
from rlvr.sharding import layers_of

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
    from rlvr.images import model_class  # imports transformers

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
    sharing_ranks = world.WORLD_SIZE if sharded else 1
    # fp32 weights and Adam's two moments; the reference policy is one more copy of the weights
    kept = (16 if config.beta else 12) * sizes.parameters / sharing_ranks
    gradients = 4 * sizes.parameters / sharing_ranks
    # What computes in bf16 needs copies of an unsharded policy's weights.
    bf16_copies = 2 * sizes.parameters if in_bf16 and not sharded else 0.0
    gathered = (2 if in_bf16 else 4) * sizes.parameters if sharded else 0.0

    # The head's gradient is whole before it is added to the others: 4 bytes of fp32. FSDP does so
    # with all that is not in a layer, and has gathered it and its gradient.
    head = 4 * sizes.head
    if sharded:
        head = (4 + 2 * (2 if in_bf16 else 4)) * sizes.root

    # Measured: what a layer of Llama's shape keeps of a token for the backward pass, in bytes, with
    # and without bf16 autocast.
    layer = 40 * sizes.hidden + (11 if in_bf16 else 16) * sizes.intermediate
    if in_bf16 and not gpu and not config.gradient_checkpointing:
        # attention is not fused here (forward_passes): each token's weights of its text are kept
        layer += 4 * sizes.heads * tokens_of_a_text(config)
    checkpointed = 4 * sizes.hidden * sizes.layers + layer
    token = checkpointed if config.gradient_checkpointing else layer * sizes.layers
    tiles = 0.5  # of the log-probs
    activations = tokens_of_a_microbatch(config) * token / 1e9 + tiles

    vllm = config.vllm_gpu_memory_utilization * gpu_memory if config.uses_vllm(gpu) else 0.0
    of_a_completion = 0.0 if config.uses_vllm(gpu) else cached(sizes, config, in_bf16)
    cache = config.rollout_batch_size * of_a_completion
    # Measured: torch and the other libraries, which are in the main memory.
    libraries = {} if gpu else {"libraries": 0.5}
    update_parts = kept, gradients, bf16_copies, head, activations, *libraries.values()
    in_updates = 0.0 if config.vllm_enable_sleep_mode else vllm
    return {
        "weights, gradients and Adam": kept + gradients,
        "bf16 weights": bf16_copies + gathered,
        "head": head,
        "activations": activations,
        "cache": cache,
        "vLLM": vllm,
        **libraries,
        "an update": sum(update_parts) + in_updates,
        "a rollout": kept + bf16_copies + gathered + cache + vllm + sum(libraries.values()),
    }


def tokens_of_a_microbatch(config) -> int:
    """The most tokens of a forward pass: at least one whole text, at most a minibatch."""
    text = tokens_of_a_text(config)
    texts = config.minibatch_size // world.WORLD_SIZE
    return min(max(config.microbatch_tokens, text), texts * text)


def tokens_of_a_text(config) -> int:
    """The most tokens of a prompt and its completion in training."""
    return config.max_prompt_length + config.max_completion_length


def cached(sizes: PolicySizes, config, in_bf16: bool) -> float:
    """GB of keys and values that `generate` keeps of a completion of full length.

    In one layer at a time they are repeated for all heads.
    """
    width = sizes.layers * sizes.keys + sizes.queries
    return 2 * (2 if in_bf16 else 4) * width * config.longest / 1e9

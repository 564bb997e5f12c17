"""The policy, the frozen reference policy and the tokenizer."""

import contextlib
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError, loading
from rlvr.policy.images import model_class, prepare_tokenizer, read_image_reader, reads_images
from rlvr.policy.memory import tell_memory
from rlvr.policy.reader import Reader
from rlvr.policy.sharding import layers_of, shard
from rlvr.policy.tiny import tiny_folder
from rlvr.tasks import EMBEDDED, source_of

import huggingface_hub
import torch
import transformers

transformers.utils.logging.disable_progress_bar()


def load_policy(config, device: torch.device):
    """The policy, in fp32 whatever dtype its checkpoint has, and its tokenizer.

    UserError for a model that is not there, is damaged, or does not read what a data set shows.
    """
    source = tiny_folder(config) if config.model == "tiny" else config.model
    absent = (
        "" if Path(source).is_dir() else " (no folder here, so from the hub; a folder works, too)"
    )
    with loading(f"--model {config.model}{absent}"):
        shape = read_shape(source, config)
        # AutoTokenizer gives every Qwen2 folder Qwen's own pre-tokenizer, the tiny policy too.
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(source)
        if reads_images(shape):
            prepare_tokenizer(tokenizer, source, shape)
    check_images(shape, config)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # Llama's has none
    if tokenizer.pad_token is None:
        raise UserError(f"--model {config.model}: its tokenizer has no end-of-text token")
    if not config.tie_word_embeddings and config.uses_vllm(device.type == "cuda"):
        raise UserError("--no_tie_word_embeddings is for --engine hf")
    if config.model != "tiny" and world.RANK == 0:
        with contextlib.suppress(Exception):  # some models have configurations of their own kind
            tell_memory(shape, config, device)
    return load_weights(source, config, device), tokenizer


def read_shape(source, config):
    """The model's configuration, from a folder or the hub."""
    if not Path(source).is_dir():
        if not huggingface_hub.try_to_load_from_cache(source, "config.json"):
            # fails at once, where from_pretrained tries again for minutes
            huggingface_hub.model_info(source, timeout=10)
    return transformers.AutoConfig.from_pretrained(
        source, trust_remote_code=config.trust_remote_code
    )


def check_images(shape, config) -> None:
    """UserError where a data set has images, and the policy reads text alone."""
    for name in (config.dataset, *config.eval_names):
        has_images = name not in EMBEDDED and source_of(name, config).images
        if has_images and not reads_images(shape):
            raise UserError(
                f"the data set {name} has images, which --model {config.model} does not read; "
                "one that does is Qwen/Qwen2.5-VL-3B-Instruct"
            )


def load_weights(source, config, device: torch.device, frozen: bool = False):
    """A policy in fp32, sharded over the ranks unless there is one or --no-fsdp is given."""
    with loading(f"--model {config.model}"):
        shape = without_dropout(read_shape(source, config))
        policy = model_class(shape).from_pretrained(
            source, config=shape, dtype=torch.float32, trust_remote_code=config.trust_remote_code
        )
        if reads_images(shape):
            policy.image_reader = read_image_reader(source, shape)
    if not config.tie_word_embeddings:  # the head gets a matrix of its own
        weight = policy.get_input_embeddings().weight.detach().clone()
        policy.get_output_embeddings().weight = torch.nn.Parameter(weight)
        policy.config.tie_word_embeddings = False
    check_model(policy, config, reads=not config.uses_vllm(device.type == "cuda"))
    policy.bf16 = config.bf16 or device.type == "cuda"
    keep_what_can_be_saved(policy)
    if config.gradient_checkpointing:
        policy.gradient_checkpointing_enable()
    if config.compile:
        for layer in layers_of(policy):  # each when it is first used, for batches of any shape
            layer.compile(dynamic=True)
        policy.is_compiled = True
    if world.WORLD_SIZE == 1 or not config.fsdp:
        policy = policy.to(device)
    else:
        shard(policy, frozen, config.shard_within_nodes)
    return policy


def without_dropout(shape):
    """The configuration with all of its dropout set to 0.

    With dropout two passes over a text have different log-probs, and their ratio would not be 1.
    Gradient checkpointing needs training mode, in which dropout would act.
    """
    for part in (shape, shape.get_text_config()):
        for name, value in vars(part).items():
            if isinstance(value, float) and ("dropout" in name or "pdrop" in name):
                setattr(part, name, 0.0)
    return shape


@torch.no_grad()
def check_model(policy, config, reads: bool) -> None:
    """UserError for a model whose log-probs would be those of another policy.

    Its logits have to be its hidden states times the output head: a scale, a cap or a bias is left
    out here. Where the decoding loop `reads`, its memory of the tokens before has to be a cache of
    keys and values: the loop pads it and drops rows, which linear attention does not allow.
    """
    ids = torch.arange(6)[None]
    logits = policy(input_ids=ids, use_cache=False).logits[:, -1]
    hidden = policy.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
    if not is_near(hidden @ policy.get_output_embeddings().weight.T, logits):
        raise UserError(
            f"--model {config.model}: its logits are NaN, or not its hidden states times its head; "
            "an output head with a scale, a cap or a bias is not supported"
        )
    if not reads:
        return
    try:
        reader = Reader(policy, [[0, 1, 2], [0, 1, 2, 3, 4]])
        reader.select([1])
        reader.read(ids[:, -1:])
        found = reader.logits()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        found = torch.full_like(logits, torch.nan)
    if not is_near(found, logits):
        raise UserError(
            f"--model {config.model}: its layers keep no cache of keys and values, which the "
            "decoding loop needs; --engine vllm can draw its completions"
        )


def is_near(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether they are the same but for rounding, whatever their size; NaN is never the same."""
    size = expected.abs()
    return bool(((found - expected).abs() <= 1e-3 * (size + size.max())).all())


def keep_what_can_be_saved(policy) -> None:
    """Drop the checkpoint's generation_config, all but its tokens, where it contradicts itself.

    Some do, as by a temperature without sampling. transformers reads them, but refuses to save them
    with the trained policy.
    """
    own = policy.generation_config
    try:
        own.validate(strict=True)
    except ValueError:
        policy.generation_config = transformers.GenerationConfig(
            bos_token_id=own.bos_token_id,
            eos_token_id=own.eos_token_id,
            pad_token_id=own.pad_token_id,
        )


def load_reference(policy, config):
    """The frozen starting policy, for the KL penalty; None where --beta is 0."""
    if config.beta == 0:
        return None
    return load_weights(policy.name_or_path, config, policy.device, frozen=True)

"""The policy, the frozen reference policy and the tokenizer."""

from pathlib import Path
from typing import Any

from rlvr import progress, world
from rlvr.errors import UserError, loading
from rlvr.flags import TAUGHT, TINY, Config
from rlvr.machine import choose_device
from rlvr.policy.reader import Reader
from rlvr.policy.settings import Settings
from rlvr.policy.sharding import layers_of, shard

import torch
from safetensors import SafetensorError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
POLICIES = Path(__file__).parent / "policies"  # what studies/papers/make_bases.py has taught


def load_policies(config: Config):
    """Return the policy, the reference policy for the KL penalty, and the tokenizer.

    Both are in fp32, whatever dtype the checkpoint has. The reference is None if --beta is 0.
    A --precision of auto becomes fp32 or bf16. UserError for a model that is not there, or is
    damaged.
    """
    import transformers

    device = choose_device(config.device)
    if config.precision == "auto":
        gpu = device.type == "cuda"
        has_bf16 = gpu and torch.cuda.get_device_capability(device) >= (8, 0)
        config.precision = "bf16" if has_bf16 else "fp32"
        if gpu and not has_bf16:
            progress.write("in fp32, since this GPU has no bf16; --precision fp16 may be faster")
    transformers.utils.logging.disable_progress_bar()
    source = tiny_folder(config) if config.model in TINY else config.model
    absent = ", which is not a folder, from the hub" * (not Path(source).is_dir())
    hint = "; without a network, leave --model out, or see docs/language-model.md" * bool(absent)
    with loading(f"--model {config.model}{absent}", hint=hint):
        # trust_remote_code=None would ask
        transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    others = {*config.train_names, *config.eval_names} - {"countdown"}
    if config.model in TINY and others and config.verifier == "math":
        hint = "give another --model, or --verifier countdown for a file of such problems"
        progress.write(f"the tiny policies know Countdown alone: {hint}")
    if not config.tie_word_embeddings and config.uses_vllm(device.type == "cuda"):
        raise UserError("--no_tie_word_embeddings is for --engine hf")
    policy = load_weights(source, config, device)
    rows, largest = len(policy.get_input_embeddings().weight), max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise UserError(
            f"--model {config.model}: its tokenizer has ids up to {largest}, and its embedding "
            f"{rows} rows: enlarge it by resize_token_embeddings, or remove the added tokens"
        )
    reference = load_weights(source, config, device, frozen=True) if config.beta > 0 else None
    return policy, reference, tokenizer


def tiny_folder(config) -> Path:
    """Return the folder of the tiny policy that a run starts from."""
    return POLICIES / (TAUGHT[config.numbers] if config.model == "tiny" else config.model)


def load_weights(source, config: Config, device: torch.device, frozen: bool = False):
    """A policy in fp32, sharded over the ranks unless there is one or --fsdp no_shard is given."""
    import transformers

    with loading(f"--model {config.model}", RuntimeError, SafetensorError):
        model_config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        policy: Any = transformers.AutoModelForCausalLM.from_pretrained(
            source,
            config=without_dropout(model_config),
            dtype=torch.float32,
            trust_remote_code=False,
        )
    policy.settings = Settings(DTYPES[config.precision], compiled=config.compile)
    if not config.tie_word_embeddings:  # the head gets a matrix of its own
        weight = policy.get_input_embeddings().weight.detach().clone()
        policy.get_output_embeddings().weight = torch.nn.Parameter(weight)
        policy.config.tie_word_embeddings = False
    check_model(policy, config, reads=not config.uses_vllm(device.type == "cuda"))
    own = policy.generation_config
    try:
        own.validate(strict=True)
    except ValueError:  # such as a temperature without sampling, which can be read but not saved
        tokens = {name: ids for name, ids in vars(own).items() if name.endswith("_token_id")}
        policy.generation_config = type(own)(**tokens)
    if config.gradient_checkpointing:
        checkpoint_gradients(policy)
    if config.compile:
        for layer in layers_of(policy):  # each when it is first used, for batches of any shape
            layer.compile(dynamic=True)
    if world.WORLD_SIZE == 1 or config.fsdp == "no_shard":
        policy = policy.to(device)
    else:
        shard(policy, frozen, device.type)
    return policy


def checkpoint_gradients(policy) -> None:
    """Let the backward pass compute activations again. transformers 5.24 has renamed it."""
    enable = getattr(policy, "activation_checkpointing_enable", None)
    (enable or policy.gradient_checkpointing_enable)()
    policy.settings.gradient_checkpointing = True


def without_dropout(model_config):
    """Return the configuration with all dropout set to 0.

    With dropout, two passes over a text have different log-probs, and their ratio would not be 1.
    Gradient checkpointing needs training mode, in which dropout would act.
    """
    for part in (model_config, model_config.get_text_config()):
        for name, value in vars(part).items():
            if isinstance(value, float) and ("dropout" in name or "pdrop" in name):
                setattr(part, name, 0.0)
    return model_config


@torch.no_grad()
def check_model(policy, config, reads: bool) -> None:
    """Raise a UserError for a model whose log-probs would be those of another policy.

    - Its rotary factors must not change when a text grows beyond some length. Keys in a cache keep
      the factors of the shorter text, and vLLM takes those of the longest one for all texts.
    - Its logits have to be its hidden states times the output head.
    - Where the decoding loop `reads`, the model has to keep a cache of keys and values. The loop
      pads it and drops rows, which linear attention does not allow, nor a model that counts
      positions by itself. A small model is tried at the length of the run, a large one with a few
      tokens.
    """
    name, text_config = f"--model {config.model}", policy.config.get_text_config()
    ropes = getattr(text_config, "rope_parameters", None) or {}
    for rope in (ropes, *ropes.values()):  # of all layers, or of each kind of layer
        if isinstance(rope, dict) and rope.get("rope_type") in ("dynamic", "longrope"):
            switch = rope.get(
                "original_max_position_embeddings", text_config.max_position_embeddings
            )
            if config.longest > switch:
                raise UserError(
                    f"{name}: its rotary factors change beyond {switch} tokens, and prompt and "
                    f"completion may have {config.longest} here: lower --max_prompt_length and "
                    "--max_completion_length"
                )
    if getattr(text_config, "final_logit_softcapping", None):
        raise UserError(f"{name}: its output head has a soft cap, which is not supported")
    if policy.base_model is policy:
        raise UserError(f"{name}: its hidden states are not to be had without its logits")
    affordable = 10**10 // sum(parameter.numel() for parameter in policy.parameters())
    context = getattr(text_config, "max_position_embeddings", None) or config.longest
    count = max(6, min(affordable, config.longest, context, 2048))
    ids = torch.arange(count)[None] % text_config.vocab_size
    logits = policy(input_ids=ids, use_cache=False, logits_to_keep=1).logits[:, -1]
    hidden = policy.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
    if not is_near(hidden @ policy.get_output_embeddings().weight.T, logits):
        raise UserError(
            f"{name}: its logits are NaN, or not its hidden states times its head; an output head "
            "with a scale, a cap or a bias is not supported"
        )
    if not reads:
        return
    failure = None
    try:
        reader = Reader(policy, [[0] * 7, [0, 1, 2, 3, 4]])  # of which the second is padded
        reader.select([1])
        reader.read(ids[:, 5:])
        cached = reader.logits()
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # each model without such a cache fails in its own way
        cached, failure = torch.full_like(logits, torch.nan), error
    if not is_near(cached, logits):
        cause = f" ({type(failure).__name__}: {failure})" if failure else ""
        raise UserError(
            f"{name}: the decoding loop cannot read it token by token: its layers keep no cache of "
            "keys and values, or count padding as tokens; --engine vllm can draw its completions"
            f"{cause}"
        ) from failure


def is_near(values: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors of any size are equal up to rounding; NaN never is."""
    size = expected.abs()
    return bool(((values - expected).abs() <= 1e-3 * (size + size.max())).all())

"""The tiny policies of 0.3 M parameters that are shipped, and their shape."""

from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.errors import UserError

if TYPE_CHECKING:
    import transformers

POLICIES = Path(__file__).parent / "policies"  # what studies/make_bases.py has taught
FOR_NUMBERS = {"3": "middle", "4": "weak", "3,4": "weak"}  # which of them starts with --numbers
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def build_tiny() -> "tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]":
    """Return a random Qwen2 and its character-level tokenizer, in which a tag is one token."""
    import transformers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = ["<pad>", "<eos>", "<unk>", *TAGS, *"0123456789+-*/()=: "]
    numbers = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("</?(think|answer)>|."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    shape = transformers.Qwen2Config(
        vocab_size=len(words),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return transformers.Qwen2ForCausalLM(shape), transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def tiny_folder(config) -> Path:
    """Return the folder of the tiny policy that a run starts from.

    UserError if none of them was taught problems of --numbers.
    """
    name = FOR_NUMBERS.get(config.numbers) if config.model == "tiny" else config.model
    if name is None:
        raise UserError(
            f"--numbers {config.numbers}: no shipped policy was taught such problems; teach one by "
            f"python studies/make_bases.py weak --numbers {config.numbers} --out bases, and give "
            "--model bases/weak"
        )
    return POLICIES / name

"""The tiny policy of 0.3 M parameters: built, taught the format once, kept in the cache."""

import os
import random
import tempfile
from pathlib import Path

from rlvr import world
from rlvr.checkpoints import is_whole, remove, save_folder
from rlvr.errors import writing
from rlvr.logprobs import completion_logprobs
from rlvr.ranks import gather
from rlvr.records import Sample
from rlvr.tasks.countdown import make_countdown

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm

VERSION = 1  # of the cached policy: raise it when a change below, or in make_countdown, alters it
BATCH_SIZE = 128  # solutions a supervised step
LEARNING_RATE = 2e-3  # the peak of its schedule
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def build_tiny() -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    """A randomly initialised Qwen2 and its character-level tokenizer, where a tag is one token."""
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


def warmed_up_tiny(config) -> Path:
    """The folder in --cache_dir of the tiny policy after --sft_steps supervised steps.

    Rank 0 teaches it where the folder does not exist yet, or is damaged. The folder's name tells
    the settings that shape it, so that others have a folder of their own. Runs that start together
    each teach it, and the first one to finish is kept: they are the same.
    """
    settings = f"steps{config.sft_steps}-numbers{config.numbers.replace(',', '')}"
    libraries = f"torch{torch.__version__}-transformers{transformers.__version__}"
    name = f"tiny-v{VERSION}-{settings}-{libraries}"
    folder = Path(os.path.expanduser(config.cache_dir), name)
    with writing(f"the tiny policy to --cache_dir {config.cache_dir}"):
        if world.RANK == 0 and folder.exists() and not is_whole(folder):
            print(f"{folder} is damaged; teaching the tiny policy again")
            remove(folder)
        is_new = world.RANK == 0 and not folder.exists()
        if is_new:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # found out before the warm-up, which takes minutes
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-").cleanup()
    if is_new:
        save_folder(folder, *warm_up(config), keep_whole=True)
    gather([])  # the other ranks wait here
    return folder


def warm_up(config):
    """The tiny policy after supervised steps on Countdown solutions, and its tokenizer."""
    sizes = [int(size) for size in config.numbers.split(",")]
    rng = random.Random(0)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        policy, tokenizer = build_tiny()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, config.sft_steps + 1, cycle_momentum=False
    )
    for _ in tqdm(range(config.sft_steps), desc="warming up the tiny policy, once"):
        examples = [make_countdown(rng, rng.choice(sizes)) for _ in range(BATCH_SIZE)]
        samples = [
            Sample(
                tokenizer.encode(problem.prompt), tokenizer.encode(solution + tokenizer.eos_token)
            )
            for problem, solution in examples
        ]
        lengths = [len(sample.completion_ids) for sample in samples]
        logprobs, _ = completion_logprobs(policy, samples, 1.0, max(lengths))  # [n, T]
        (-logprobs.sum() / sum(lengths)).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return policy, tokenizer

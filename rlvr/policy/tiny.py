"""The tiny policy of 0.3 M parameters: shipped, or taught the format once and kept in the cache."""

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import world
from rlvr.errors import using
from rlvr.machine import gather, is_whole
from rlvr.policy.logprobs import completion_logprobs
from rlvr.policy.saving import save_folder
from rlvr.tasks import Problem, Sample, find_call_ends, find_replies, make_countdown

import torch

if TYPE_CHECKING:
    import transformers

VERSION = 1  # of the cached policy: raise it when a change below, or in make_countdown, alters it
SFT_STEPS = 400  # supervised steps without --sft_steps if no policy is shipped
BATCH_SIZE = 128  # solutions per supervised step
LEARNING_RATE = 2e-3  # the peak of its schedule
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
    """Return the folder of the tiny policy that a run starts from, shipped or cached."""
    base = config.model
    if base == "tiny":
        base = FOR_NUMBERS.get(config.numbers) if config.sft_steps is None else None
    return POLICIES / base if base else warmed_up_tiny(config)


def sft_steps(config) -> int:
    """Return how many supervised steps teach the tiny policy."""
    return SFT_STEPS if config.sft_steps is None else config.sft_steps


def warmed_up_tiny(config) -> Path:
    """Return the folder in --cache_dir of the tiny policy after its supervised steps.

    Rank 0 teaches it if the folder does not exist yet, or is damaged. The folder's name contains
    the settings that shape the policy. Runs that start together each teach it, all alike.
    """
    import transformers

    libraries = f"torch{torch.__version__}-transformers{transformers.__version__}"
    numbers = config.numbers.replace(",", "")
    name = (
        f"tiny-v{VERSION}-steps{sft_steps(config)}-numbers{numbers}-tool-{config.tool}-{libraries}"
    )
    folder = Path(os.path.expanduser(config.cache_dir), name)
    if world.RANK == 0:
        with using(f"--cache_dir {config.cache_dir}"):
            folder.parent.mkdir(parents=True, exist_ok=True)
            is_there = is_whole(folder)
        if not is_there:
            save_folder(folder, *warm_up(config))
    gather([])  # the other ranks wait here
    return folder


def warm_up(config, draw=make_countdown):
    """Return the tiny policy after supervised steps on Countdown solutions, and its tokenizer.

    `draw` takes a generator and a number of numbers, and returns a problem and a solution. A step
    such as 7*8= is a call of the calculator: with --tool it is learned, and the 56 after it is not.
    """
    from tqdm import tqdm

    steps = sft_steps(config)
    sizes = [int(size) for size in config.numbers.split(",")]
    rng = random.Random(0)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        policy, tokenizer = build_tiny()
    call_ends = find_call_ends(tokenizer, config.tool)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, steps + 1, cycle_momentum=False
    )
    for _ in tqdm(range(steps), desc="teaching the tiny policy, once"):
        examples = [draw(rng, rng.choice(sizes)) for _ in range(BATCH_SIZE)]
        samples = [make_sample(tokenizer, config.tool, call_ends, *each) for each in examples]
        width = max(len(sample.completion_ids) for sample in samples)
        logprobs, _ = completion_logprobs(policy, samples, 1.0, width)  # [n, T]
        (-logprobs.sum() / sum(sample.own_length for sample in samples)).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return policy, tokenizer


def make_sample(
    tokenizer, tool: str, call_ends: list[int], problem: Problem, solution: str
) -> Sample:
    """Return a solution as tokens. What the tool would have written is not the policy's own."""
    ids = tokenizer.encode(solution + tokenizer.eos_token)
    replies = find_replies(tokenizer, tool, call_ends, ids)
    return Sample(tokenizer.encode(problem.prompt), ids, replies=replies)

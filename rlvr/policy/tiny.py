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
from rlvr.tasks import Sample, exchange_target, find_call_ends, find_replies, make_countdown

import torch

if TYPE_CHECKING:
    import transformers

VERSION = 1  # of the cached policy: raise it when a change below, or in make_countdown, alters it
SFT_STEPS = 400  # supervised steps where neither --sft_steps is given nor a policy is shipped
BATCH_SIZE = 128  # solutions a supervised step
LEARNING_RATE = 2e-3  # the peak of its schedule
POLICIES = Path(__file__).parent / "policies"  # what studies/make_bases.py has taught
FOR_NUMBERS = {"3": "middle", "4": "weak", "3,4": "weak"}  # which of them starts with --numbers
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def build_tiny() -> "tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]":
    """A randomly initialised Qwen2 and its character-level tokenizer, where a tag is one token."""
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


def shipped_base(config) -> str | None:
    """The name of the shipped policy that a run starts from, or None where one is taught."""
    if config.model != "tiny":
        return config.model
    return FOR_NUMBERS.get(config.numbers) if config.sft_steps is None else None


def sft_steps(config) -> int:
    """How many supervised steps teach the tiny policy."""
    return SFT_STEPS if config.sft_steps is None else config.sft_steps


def tiny_folder(config) -> Path:
    """The folder of the tiny policy that a run starts from: a shipped one, or one of the cache."""
    base = shipped_base(config)
    return POLICIES / base if base else warmed_up_tiny(config)


def warmed_up_tiny(config) -> Path:
    """The folder in --cache_dir of the tiny policy after its supervised steps.

    Rank 0 teaches it where the folder does not exist yet, or is damaged. The folder's name tells
    the settings that shape it, so that others have a folder of their own. Runs that start together
    each teach it, and the last one to finish is kept: they are the same.
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


def warm_up(config, exchanged: float = 0.0):
    """The tiny policy after supervised steps on Countdown solutions, and its tokenizer.

    A share `exchanged` of the solutions is honest but ends at another value than the
    target. So the policy learns to compute rightly, and to choose at random. A step such as 7*8= is
    a call of the calculator: with --tool it is learned, and the 56 behind it is not.
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
        examples = [draw_example(rng, sizes, exchanged) for _ in range(BATCH_SIZE)]
        samples = [make_sample(tokenizer, config.tool, call_ends, *each) for each in examples]
        width = max(len(sample.completion_ids) for sample in samples)
        logprobs, _ = completion_logprobs(policy, samples, 1.0, width)  # [n, T]
        (-logprobs.sum() / sum(sample.own_length for sample in samples)).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return policy, tokenizer


def make_sample(tokenizer, tool: str, call_ends: list[int], prompt: str, solution: str) -> Sample:
    """A solution as tokens. What the tool would have written in it is not the policy's own."""
    ids = tokenizer.encode(solution + tokenizer.eos_token)
    replies = find_replies(tokenizer, tool, call_ends, ids)
    return Sample(tokenizer.encode(prompt), ids, replies=replies)


def draw_example(rng: random.Random, sizes: list[int], exchanged: float) -> tuple[str, str]:
    """The prompt of a training problem, and a completion that ends at its target or elsewhere."""
    problem, solution = make_countdown(rng, rng.choice(sizes))
    if exchanged and rng.random() < exchanged:
        solution = exchange_target(rng, problem)
    return problem.prompt, solution

"""The tiny policies that are shipped, made again: their failures are wrong choices, not slips.

    python studies/papers/make_bases.py weak middle strong    # up to an hour of one core each
    python studies/papers/make_bases.py weak --numbers 2 --steps 400 --out bases   # one of your own

A share of the solutions that teach them ends honestly at another value than the target. So they
compute rightly and choose at random, as a language model does that knows more ways than the right
one. After few steps, a policy writes false equations such as 8*4=48 instead. The same versions of
torch and transformers give the same weights on one kind of processor.
"""

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from rlvr.policy import completion_logprobs
from rlvr.policy.models import POLICIES
from rlvr.tasks import Problem, Sample, make_countdown
from rlvr.tasks.embedded import join_at_random
from rlvr.training import save_folder

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from tqdm import tqdm

# numbers of the problems, supervised steps, and the share of solutions with another target
RECIPES = {
    "weak": ("3,4", 4000, 0.5),
    "middle": ("3", 3000, 0.4),
    "strong": ("3", 3000, 0.25),
    "novice": ("3,4", 4000, 0.9),
}
BATCH_SIZE = 128  # solutions per supervised step
LEARNING_RATE = 2e-3  # the peak of its schedule
TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def build_tiny() -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerFast]:
    """Return a random Qwen2 and its character-level tokenizer, in which a tag is one token.

    It is a Qwen2-MoE without experts, which computes the same. AutoTokenizer reads a folder of
    Qwen2 itself with Qwen's tokenizer, whatever the folder has.
    """
    words = ["<pad>", "<eos>", "<unk>", *TAGS, *"0123456789+-*/()=: "]
    numbers = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("</?(think|answer)>|."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    shape = transformers.Qwen2MoeConfig(
        vocab_size=len(words),
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_experts=0,
        router_aux_loss_coef=0.0,  # TRL would balance experts that are not there
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    return transformers.Qwen2MoeForCausalLM(shape), transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",  # as generate() needs it
    )


def exchange_target(rng: random.Random, problem: Problem) -> str:
    """Return a completion that correctly joins a problem's numbers, to any value."""
    numbers = [int(number) for number in problem.prompt.split(":")[0].split()]
    while True:
        value, completion = join_at_random(rng, numbers)
        if value:
            return completion


def draw_example(share: float, rng: random.Random, size: int) -> tuple[Problem, str]:
    """Return a problem, and a completion that with this chance ends at any value."""
    problem, solution = make_countdown(rng, size)
    if rng.random() < share:
        solution = exchange_target(rng, problem)
    return problem, solution


def teach(numbers: str, steps: int, share: float):
    """Return a tiny policy after supervised steps on Countdown solutions, and its tokenizer."""
    sizes = [int(size) for size in numbers.split(",")]
    rng = random.Random(0)
    torch.manual_seed(0)
    policy, tokenizer = build_tiny()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, steps + 1, cycle_momentum=False
    )
    for _ in tqdm(range(steps)):
        examples = [draw_example(share, rng, rng.choice(sizes)) for _ in range(BATCH_SIZE)]
        samples = [
            Sample(tokenizer.encode(problem.prompt), tokenizer.encode(f"{solution}<eos>"))
            for problem, solution in examples
        ]
        width = max(len(sample.completion_ids) for sample in samples)
        logprobs, _ = completion_logprobs(policy, samples, 1.0, width)  # [n, T]
        (-logprobs.sum() / sum(sample.own_length for sample in samples)).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return policy, tokenizer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=RECIPES, help="which policies")
    parser.add_argument("--numbers", help="of the problems, instead of those of the recipe")
    parser.add_argument("--steps", type=int, help="instead of those of the recipe")
    parser.add_argument("--out", type=Path, default=POLICIES, help="folder for them")
    given = parser.parse_args()
    torch.set_num_threads(1)  # another number of threads rounds differently
    given.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after an hour
    for name in given.names:
        numbers, steps, share = RECIPES[name]
        save_folder(given.out / name, *teach(given.numbers or numbers, given.steps or steps, share))
        print(f"wrote {given.out / name}")

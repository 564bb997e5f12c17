"""The tiny policies that are shipped, made again: their failures are wrong choices, not slips.

    python studies/make_bases.py weak middle strong    # up to an hour of one core each

A share of the solutions that teach them ends honestly at another value than the target. So they
compute rightly and choose at random, as a language model does that knows more ways than the right
one. The same versions of torch and transformers give the same weights on one kind of processor.
"""

import argparse
import random
from functools import partial
from pathlib import Path

import project  # noqa: F401

from rlvr.flags import Config
from rlvr.policy import save_folder
from rlvr.policy.tiny import POLICIES, warm_up
from rlvr.tasks import Problem, make_countdown
from rlvr.tasks.embedded import join_at_random

import torch

RECIPES = {  # the flags of each one's warm-up, and the share of solutions with another target
    "weak": (dict(sft_steps=4000, numbers="3,4"), 0.5),
    "middle": (dict(sft_steps=3000, numbers="3"), 0.4),
    "strong": (dict(sft_steps=3000, numbers="3"), 0.25),
}


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=RECIPES, help="which policies")
    parser.add_argument("--out", type=Path, default=POLICIES, help="folder for them")
    given = parser.parse_args()
    torch.set_num_threads(1)  # another number of threads rounds differently
    given.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after an hour
    for name in given.names:
        flags, share = RECIPES[name]
        policy, tokenizer = warm_up(Config(**flags), partial(draw_example, share))
        save_folder(given.out / name, policy, tokenizer)
        print(f"wrote {given.out / name}")

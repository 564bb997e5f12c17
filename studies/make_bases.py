"""The tiny policies that are shipped, made again: their failures are wrong choices, not slips.

    python studies/make_bases.py weak middle strong            # up to an hour of one core each
    python studies/make_bases.py weak middle strong --measure  # only measures what is there

A share of the solutions that teach them ends honestly at another value than the target. So they
compute rightly and choose at random, as a language model does that knows more ways than the right
one. The same versions of torch and transformers give the same weights on one kind of processor.
"""

import argparse
import re
import statistics
from pathlib import Path

import project  # noqa: F401

import rlvr
import rlvr.policy.tiny
from rlvr.flags import Config
from rlvr.tasks.embedded import draw_countdown
from rlvr.verify.answers.expressions import OPERATORS

import torch

import common

RECIPES = {  # the flags of each one's warm-up
    "weak": dict(sft_steps=4000, numbers="3,4", exchanged_targets=0.5),
    "middle": dict(sft_steps=3000, numbers="3", exchanged_targets=0.4),
    "strong": dict(sft_steps=3000, numbers="3", exchanged_targets=0.25),
}
SAMPLES = 32  # of a held-out problem


def make(name: str, out: Path) -> None:
    """Teach a policy by its recipe, and write it to a folder of its name."""
    out.mkdir(parents=True, exist_ok=True)  # fails now rather than after an hour
    rlvr.policy.save_folder(out / name, *rlvr.policy.tiny.warm_up(Config(**RECIPES[name])))
    print(f"wrote {out / name}")


def has_false_step(text: str) -> bool:
    """Is an equation of a Countdown completion, such as 9*5=45, wrong?"""
    for left, sign, right, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", text):
        if sign == "/" and int(right) == 0:
            return True
        if OPERATORS[sign](int(left), int(right)) != int(result):
            return True
    return False


def measure(folder: Path, name: str, count: int) -> dict[str, float]:
    """What a policy should be like, on `count` held-out problems of its recipe's sizes.

    `false` is the share of the wrong completions that hold a false equation.
    """
    flags = dict(model=str(folder / name), numbers=RECIPES[name]["numbers"])
    config = Config(**flags, eval_problems=count, max_steps=0)
    policy, tokenizer = rlvr.policy.load_policy(config, torch.device("cpu"))
    sampler = rlvr.rollout.make_sampler(policy, tokenizer, config, common.decode)
    problems = draw_countdown(config)[1]
    torch.manual_seed(0)
    groups = rlvr.rollout.sample_groups(sampler, problems, SAMPLES, 1.0, 64)
    greedy = rlvr.rollout.sample_groups(sampler, problems, 1, 0.0, 64)
    right = [sum(sample.success for sample in group) for group in groups]
    wrong = [sample.text for group in groups for sample in group if not sample.success]
    found = {
        f"pass@{k}": statistics.mean(common.pass_at_k(SAMPLES, c, k) for c in right)
        for k in (1, 16, 32)
    }
    found["greedy"] = statistics.mean(sample.success for (sample,) in greedy)
    found["false"] = statistics.mean(map(has_false_step, wrong))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=RECIPES, help="which policies")
    parser.add_argument("--measure", action="store_true", help="make none")
    parser.add_argument(
        "--out", type=Path, default=rlvr.policy.tiny.POLICIES, help="folder for them"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)  # another number of threads rounds differently
    for name in given.names:
        if not given.measure:
            make(name, given.out)
        numbers = measure(given.out, name, 128)
        print(name, *(f"{key} {value:.3f}" for key, value in numbers.items()), sep=" | ")

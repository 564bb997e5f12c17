"""Completions that are judged a second: this project beside math-verify itself and TRL's reward.

    pip install trl==1.16.0             # for its column alone; without it the column is empty
    python studies/verify_load.py       # 25 minutes on 2 CPU cores
    python studies/verify_load.py --completions 100 --programs 20 --rounds 1     # two minutes

A completion has 2,000 characters and ends with an answer in a box, or with a program. There are 8
completions of a problem, half of them right. With hostile ones, 1 completion in 100 has an answer
that no computer can work out, such as a tower of powers or an integral, or a program that never
ends.

The sides take turns. Each turn has new completions, since math-verify's parser and sympy remember
what they have seen; the numbers are medians over the rounds, after a turn to warm up. An answer has
5 seconds here and in math-verify; TRL allows 10 to read it and 5 to compare it. "right" is on how
many of the completions that are not hostile a side tells the truth.
"""

import argparse
import importlib.util
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import project  # noqa: F401

from rlvr.tasks.boxes import boxed
from rlvr.tasks.pool import grade, in_threads

import math_verify

LENGTH = 2000  # characters of a completion
ONE_IN = 100  # completions is hostile
OF_A_PROBLEM = 8  # completions
WORDS = "so we add both sides and get that the term is then at most equal to one of these".split()
# gold, the same in other words, and something else; of a number with three digits
ANSWERS = {
    "math": [
        ("%d", "%d", "%d0"),
        (r"\frac{%d}{7}", r"\dfrac{%d}{7}", r"\frac{%d}{9}"),
        (r"%d\sqrt{2}", r"\sqrt{2} \cdot %d", r"%d\sqrt{3}"),
        (r"(%d, \pi)", r"\left(%d, \pi\right)", r"(%d, 2\pi)"),
        (r"\{%d, 2\}", r"\{2, %d\}", r"\{%d, 3\}"),
        ("x^2 + %dx + 1", "1 + x^2 + %dx", "x^2 - %dx + 1"),
    ],
    "number": [("%d", "%d.00", "%d1"), ("%d000", "%d,000", "%d100"), ("%d", r"\$%d", "-%d")],
}
NEVER_WORKED_OUT = [
    "9^{9^{9^{9}}}",
    "(10^{9})!",
    r"\binom{10^{9}}{10^{8}}",
    "123456789^{987654321}",
    r"\int_0^{\infty} e^{-x^2} \sin(x^3) \cos(x^5) dx",
    "(x+y+z)^{500}",
]
PROGRAM = "```python\nnumber = int(input())\nprint({})\n```"
TESTS = json.dumps({"inputs": ["1", "5", "70"], "outputs": ["2", "10", "140"]})
NEVER_OVER = ["[0 for _ in iter(int, 1)]", "'a' * 10**12", "__import__('time').sleep(1000)"]


class Answer(NamedTuple):
    """A completion, what it is compared with, and the truth."""

    verifier: str
    text: str
    gold: str
    truth: float | None  # the reward that is true; None for a hostile completion


def in_prose(rng: random.Random, ending: str) -> str:
    """A completion that ends so."""
    words = rng.choices(WORDS, k=LENGTH)
    return f"{' '.join(words)[: LENGTH - len(ending)]}\n{ending}"


def make_answers(verifier: str, count: int, with_hostile: bool, seed: str = "") -> list[Answer]:
    """Completions for a verifier; every seed has other problems."""
    rng = random.Random(seed)
    found = []
    for i in range(count):
        truth = float(rng.random() < 0.5)
        if verifier == "code":
            gold, ending = TESTS, PROGRAM.format("2 * number" if truth else "3 * number")
            hostile = PROGRAM.format(NEVER_OVER[i // ONE_IN % len(NEVER_OVER)])
        else:
            if i % OF_A_PROBLEM == 0:
                number, problem = rng.randint(100, 999), rng.choice(ANSWERS[verifier])
            gold, same, other = (text % number for text in problem)
            ending = boxed(same if truth else other)
            hostile = boxed(NEVER_WORKED_OUT[i // ONE_IN % len(NEVER_WORKED_OUT)])
        if with_hostile and i % ONE_IN == ONE_IN // 2:
            ending, truth = hostile, None
        found.append(Answer(verifier, in_prose(rng, ending), gold, truth))
    return found


def ours(answers: list[Answer]) -> list[float]:
    """The rewards by the pool, as a rollout gets them."""
    grades = in_threads(lambda answer: grade(answer[:3]), answers)
    return [reward for reward, _ in grades]


def math_verify_itself(answers: list[Answer]) -> list[float]:
    """The rewards by math-verify with its own settings and deadlines."""
    rewards = []
    for answer in answers:
        gold = math_verify.parse(f"${answer.gold}$")
        rewards.append(float(math_verify.verify(gold, math_verify.parse(answer.text))))
    return rewards


def trl(answers: list[Answer]) -> list[float]:
    """The rewards by TRL's accuracy_reward."""
    from trl.rewards import accuracy_reward

    completions = [[dict(role="assistant", content=answer.text)] for answer in answers]
    return accuracy_reward(completions, [f"${answer.gold}$" for answer in answers])


def sides_of(verifier: str) -> dict[str, Callable]:
    """What can judge such completions here."""
    sides = {"here": ours}
    if verifier != "code":
        sides["math-verify"] = math_verify_itself
        if importlib.util.find_spec("trl"):
            sides["TRL"] = trl
    return sides


def measure(
    verifier: str, count: int, with_hostile: bool, rounds: int
) -> dict[str, tuple[float, float]]:
    """Side -> completions a second, median of the rounds, and the share on which it is right."""
    sides = sides_of(verifier)
    for side, judge in sides.items():
        judge(make_answers(verifier, count // 5, False, seed=f"{side} warms up"))
    seconds = {side: [] for side in sides}
    right = {side: [] for side in sides}
    for turn in range(rounds):
        for side, judge in sides.items():
            answers = make_answers(verifier, count, with_hostile, f"{side} {turn} {with_hostile}")
            started = time.perf_counter()
            rewards = judge(answers)
            seconds[side].append(time.perf_counter() - started)
            right[side] += [
                reward == answer.truth
                for reward, answer in zip(rewards, answers, strict=True)
                if answer.truth is not None
            ]
    return {
        side: (count / statistics.median(seconds[side]), statistics.mean(right[side]))
        for side in sides
    }


def main() -> None:
    """Print a table: a row for each verifier, clean and with hostile completions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--completions", type=int, default=1000, help="of mathematics and numbers")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if not importlib.util.find_spec("trl"):
        print("TRL is not installed: its column is empty\n")
    print("| completions a second (right) | here | math-verify | TRL | here / best other |")
    print("|---|---|---|---|---|")
    for verifier in ("math", "number", "code"):
        count = args.programs if verifier == "code" else args.completions
        for with_hostile in (False, True):
            found = measure(verifier, count, with_hostile, args.rounds)
            cells = [
                f"{found[side][0]:.3g} ({found[side][1]:.0%})" if side in found else ""
                for side in ("here", "math-verify", "TRL")
            ]
            others = [speed for side, (speed, _) in found.items() if side != "here"]
            ratio = f"{found['here'][0] / max(others):.2f}" if others else ""
            what = f"{verifier}, {'1% hostile' if with_hostile else 'clean'}"
            print(f"| {' | '.join([what, *cells, ratio])} |", flush=True)


if __name__ == "__main__":
    main()

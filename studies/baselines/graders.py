"""Rewards of this project beside those of Math-Verify, on the same answers.

    pip install math-verify==0.9.0
    python studies/baselines/graders.py               # the table of answers in tests/answers.py
    python studies/baselines/graders.py FILE.jsonl    # {"text": ..., "gold": ..., "want": 0 or 1}

A wrong one rewards a wrong answer; a wrong zero misses a right one. An exception counts as 0.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, markdown_table

from rlvr.verify.answers import boxed, verify_math

try:
    from math_verify import parse, verify
except ImportError:
    raise SystemExit("Math-Verify is not installed: pip install math-verify==0.9.0") from None

sys.path.append(str(ROOT / "tests"))
from answers import MATH, answers


def read_cases(path: str | None) -> Iterator[tuple[str, str, float]]:
    """Yield (text, gold, the right reward) of each row of a file, or of the tests' table."""
    if path is None:
        yield from ((boxed(text), gold, want or 0.0) for text, gold, want in answers(MATH))
        return
    with open(path, encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row.get("verifier", "math") == "math":
                yield row["text"], row["gold"], float(row["want"])


def by_math_verify(text: str, gold: str) -> float:
    """Grade with Math-Verify's defaults; the gold is in a box, too."""
    return float(verify(parse(boxed(gold)), parse(text)))


def count(grade: Callable, cases: list) -> list[str]:
    """Return the cells of a grader: wrong ones, wrong zeros, and milliseconds per answer."""
    wrong, began = [], time.process_time()
    for text, gold, want in cases:
        try:
            reward = grade(text, gold) or 0.0
        except Exception:  # sympy's and latex2sympy's are of every kind
            reward = 0.0
        wrong += [want] if reward != want else []
    milliseconds = 1000 * (time.process_time() - began) / len(cases)
    return [str(wrong.count(0.0)), str(wrong.count(1.0)), f"{milliseconds:.1f}"]


if __name__ == "__main__":
    cases = [*read_cases(*sys.argv[1:2] or [None])]
    graders = {"this project": verify_math, "Math-Verify": by_math_verify}
    rows = [[name, str(len(cases)), *count(grade, cases)] for name, grade in graders.items()]
    head = ["grader", "answers", "wrong ones", "wrong zeros", "ms per answer"]
    print("\n".join(markdown_table(head, rows)))

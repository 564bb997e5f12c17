"""`python -m rlvr.verify FILE.jsonl` grades each line of a file and shows why a reward is 0.

A line is {"verifier": ..., "text": ..., "gold": ...}. The command prints the reward and the status
of each line, then how often each status occurred. The status is empty where an answer was judged.
"""

import json
import sys
from collections import Counter

from rlvr.errors import UserError, fail, using
from rlvr.verify.pool import grade, in_threads
from rlvr.verify.programs.isolation import describe
from rlvr.verify.verifiers import VERIFIERS


def main(arguments: list[str]) -> None:
    """Grade the file named by the arguments; exit with code 2 and one line if it is unusable."""
    try:
        if len(arguments) != 1:
            raise UserError("give one .jsonl file with the columns verifier, text and gold")
        with using(arguments[0]), open(arguments[0], "rb") as file:
            lines = {number: line for number, line in enumerate(file, 1) if line.strip()}
        questions = [read_question(line, f"{arguments[0]}, line {n}") for n, line in lines.items()]
        if any(verifier == "code" for verifier, _, _ in questions):
            print(describe())
        grades = in_threads(grade, questions, "graded")
    except UserError as error:
        fail(str(error))
    for number, (reward, status) in zip(lines, grades, strict=True):
        print(f"line {number}: {reward:g} {status}".rstrip())
    counts = Counter(status or "judged" for _, status in grades)
    told = ", ".join(f"{counts[status]} {status}" for status in ("judged", "unparsed", "timeout"))
    mean = sum(reward for reward, _ in grades) / max(1, len(grades))
    print(f"{len(grades)} lines: mean reward {mean:.3g}; {told}")


def read_question(line: bytes, place: str) -> tuple:
    """Return (verifier, text, gold), where gold is a text or a list of alternatives."""
    try:
        row = json.loads(line)
        verifier, text, gold = row["verifier"], row["text"], row["gold"]
        golds = gold if isinstance(gold, list) else [gold]
        if not all(isinstance(value, str) for value in (verifier, text, *golds)):
            raise TypeError
        if verifier == "countdown" and not all(map(VERIFIERS[verifier].gold, golds)):
            raise ValueError
    except (ValueError, TypeError, KeyError):
        raise UserError(f"{place}: no JSON with texts for verifier, text, gold") from None
    return verifier, text, gold


if __name__ == "__main__":
    main(sys.argv[1:])

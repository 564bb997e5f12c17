"""`python -m rlvr.verify FILE.jsonl` grades each line of a file: why is a reward 0?

A line is {"verifier": ..., "text": ..., "gold": ...}. Its reward and status are printed, then how
many there were of each. The status is empty where an answer was read and judged.
"""

import json
import sys
from collections import Counter

from rlvr.errors import UserError, fail, using
from rlvr.verify.pool import grade, in_threads
from rlvr.verify.programs import describe
from rlvr.verify.verifiers import VERIFIERS


def main(arguments: list[str]) -> None:
    """Grade the file that the arguments name; exit code 2 and one line for what cannot work."""
    try:
        if len(arguments) != 1:
            raise UserError("give one .jsonl file with the columns verifier, text and gold")
        questions = read_questions(arguments[0])
        if any(verifier == "code" for verifier, _, _ in questions):
            print(describe())
        grades = in_threads(grade, questions, "graded")
    except UserError as error:
        fail(str(error))
    for number, (reward, status) in enumerate(grades, 1):
        print(f"line {number}: {reward:g} {status}".rstrip())
    counts = Counter(status or "judged" for _, status in grades)
    told = ", ".join(f"{counts[status]} {status}" for status in ("judged", "unparsed", "timeout"))
    mean = sum(reward for reward, _ in grades) / max(1, len(grades))
    print(f"{len(grades)} lines: mean reward {mean:.3g}; {told}")


def read_questions(path: str) -> list[tuple]:
    """(verifier, text, gold) of each line; UserError for what is no such line.

    The gold is a text, or a list of alternatives. That of countdown is a problem, as 3 9 5 : 48.
    """
    questions = []
    with using(path), open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                verifier, text, gold = row["verifier"], row["text"], row["gold"]
                golds = gold if isinstance(gold, list) else [gold]
                if not all(isinstance(value, str) for value in (verifier, text, *golds)):
                    raise TypeError
                if verifier == "countdown" and not all(map(VERIFIERS[verifier].gold, golds)):
                    raise ValueError
            except (ValueError, TypeError, KeyError):
                raise UserError(
                    f"{path}, line {number}: no JSON with texts for verifier, text, gold"
                ) from None
            questions.append((verifier, text, gold))
    return questions


if __name__ == "__main__":
    main(sys.argv[1:])

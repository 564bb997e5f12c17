"""`python -m rlvr.verify FILE.jsonl` grades each line of a file: why is a reward 0?

A line is {"verifier": ..., "text": ..., "gold": ...}. Its reward and status are printed, then how
many there were of each. The status is empty where an answer was read and judged.
"""

import json
import sys
from collections import Counter

import rlvr.verify.programs.isolation as isolation
from rlvr.errors import UserError, fail, reading
from rlvr.verify.answers import countdown_text
from rlvr.verify.pool import grade, in_threads

COLUMNS = ("verifier", "text", "gold")


def main(arguments: list[str]) -> None:
    """Grade the file that the arguments name; exit code 2 and one line for what cannot work."""
    try:
        if len(arguments) != 1:
            raise UserError("give one .jsonl file with the columns verifier, text and gold")
        questions = read_questions(arguments[0])
        if any(verifier == "code" for verifier, _, _ in questions):
            print(isolation.describe())
        grades = in_threads(grade, questions, "graded")
    except UserError as error:
        fail(str(error))
    for number, (reward, status) in enumerate(grades, 1):
        print(f"line {number}: {reward:g} {status}".rstrip())
    counts = Counter(status or "judged" for _, status in grades)
    told = ", ".join(f"{counts[status]} {status}" for status in ("judged", "unparsed", "timeout"))
    mean = sum(reward for reward, _ in grades) / max(1, len(grades))
    print(f"{len(grades)} lines: mean reward {mean:.3g}; {told}")


def read_questions(path: str) -> list[tuple[str, str, str]]:
    """(verifier, text, gold) of each line; UserError for what is no such line."""
    questions = []
    with reading(path), open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                questions.append(tuple(row[column] for column in COLUMNS))
                if not is_question(*questions[-1]):
                    raise ValueError
            except (ValueError, TypeError, KeyError):
                raise UserError(
                    f"{path}, line {number}: no JSON with texts for {', '.join(COLUMNS)}"
                ) from None
    return questions


def is_question(verifier, text, gold) -> bool:
    """Whether a verifier can be asked this: the gold is a text, or a list of alternatives.

    That of countdown is a problem, as 3 9 5 : 48.
    """
    golds = gold if isinstance(gold, list) else [gold]
    if not all(isinstance(value, str) for value in (verifier, text, *golds)):
        return False
    return verifier != "countdown" or all(map(countdown_text, golds))


if __name__ == "__main__":
    main(sys.argv[1:])

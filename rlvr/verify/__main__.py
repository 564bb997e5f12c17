"""`python -m rlvr.verify FILE.jsonl` prints the reward and the status of each line of a file.

A line is {"verifier": ..., "text": ..., "gold": ...}, where gold may be a list of alternatives. The
verifier may be a function of yours, my_reward.py:score. The status is empty where an answer was
judged. The samples.jsonl of a run is such a file: a reward or verdict that differs is shown, too.
"""

import argparse
import json
import os
import sys

from rlvr.errors import UserError, fail, using
from rlvr.verify.pool import grade_all
from rlvr.verify.verifiers import find_verifier


def main(arguments: list[str]) -> None:
    """Grade the file named by the arguments; exit with code 2 and one line if it is unusable."""
    parser = argparse.ArgumentParser("python -m rlvr.verify", description=__doc__)
    parser.add_argument("path", metavar="FILE.jsonl")
    path, questions, logged, number = parser.parse_args(arguments).path, {}, {}, 0
    try:
        with using(path, UnicodeError), open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    verifier, text, gold = row["verifier"], row["text"], row["gold"]
                    usable = isinstance(text, str)
                    if ":" in verifier:
                        verifier = os.path.abspath(verifier)  # it takes any gold
                    else:
                        has_several = isinstance(gold, list) and verifier != "code"
                        golds = gold if has_several else [gold]
                        gold = [*map(find_verifier(verifier).gold, golds)]
                        usable &= all(gold)
                    if not usable:
                        raise ValueError("no text, or no usable gold")
                    questions[number] = verifier, text, gold
                    logged[number] = row.get("reward"), row.get("verdict")  # of samples.jsonl
        grades = grade_all([*questions.values()])
    except UserError as error:
        fail(error)
    except (ValueError, TypeError, KeyError) as error:
        fail(f"{path}, line {number}: no usable verifier, text and gold: {error!r}")
    for number, (reward, status) in zip(questions, grades, strict=True):
        old, verdict = logged[number]
        verdicts = [status] if status else ["right", "wrong"]
        is_same = old in (None, reward) and verdict in (None, *verdicts)
        before = "" if is_same else f"(was {old} {verdict or ''}".rstrip() + ")"
        print(" ".join(filter(None, (f"line {number}: {reward:g}", status, before))))
    print(f"mean reward: {sum(reward for reward, _ in grades) / max(1, len(grades)):.3g}")


if __name__ == "__main__":
    main(sys.argv[1:])

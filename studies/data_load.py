"""Seconds from a data set's file to problems that can be trained on, by the number of its rows.

    python studies/data_load.py                                       # a minute
    python studies/data_load.py --rows 100000 --beside ../older       # and for another checkout

A row has a question of 350 characters, which the tiny policy's tokenizer and a chat template make a
prompt of, and a short answer: mostly an integer, else a fraction, a root, a pair or a polynomial.
128 problems are held out. Each measurement has a process and a cache of its own. With another
checkout the two take turns; the numbers are medians over the rounds. The seconds are those of
load_problems: reading the file, writing and measuring the prompts, and reading the answers.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve()
WORDS = "a train leaves the station and Mary has some apples of which she gives a few".split()
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


def write_rows(path: Path, count: int, only_integers: bool) -> None:
    """A .jsonl file with so many rows."""
    rng = random.Random(0)
    kinds = ["{}"] * 6 + [r"\frac{{{}}}{{{}}}", r"{}\sqrt{{{}}}", "({}, {})", "x^2 + {}x - {}"]
    with open(path, "w") as file:
        for i in range(count):
            question = f"{i}. {' '.join(rng.choices(WORDS, k=120))}"[:350]
            kind = "{}" if only_integers else rng.choice(kinds)
            answer = kind.format(rng.randint(0, 2000), rng.randint(2, 50))
            file.write(json.dumps(dict(prompt=question, answer=answer)) + "\n")


def measure(checkout: str, path: str, verifier: str) -> None:
    """In a process of its own: print the seconds and the number of problems, as JSON."""
    sys.path.insert(0, checkout)
    import rlvr.config
    import rlvr.tasks.datasets
    import rlvr.tiny

    import datasets

    datasets.config.HF_DATASETS_CACHE = Path(path).parent
    _, tokenizer = rlvr.tiny.build_tiny()
    tokenizer.chat_template = CHATML
    config = rlvr.config.Config(dataset=path, verifier=verifier)
    started = time.perf_counter()
    training, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    print(json.dumps([time.perf_counter() - started, len(training)]))


def run(checkout: Path, rows: int, verifier: str) -> tuple[float, int]:
    """Seconds and problems, with a file and a cache of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        write_rows(path, rows, only_integers=verifier == "number")
        command = [sys.executable, HERE, "--measure", checkout, path, verifier]
        # its graders look for the project in the folder that they are started from
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=checkout)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print a table, or measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10000, 100000])
    parser.add_argument("--verifiers", nargs="+", default=["number", "math"])
    parser.add_argument("--beside", type=Path, help="folder of another checkout of this project")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        return
    checkouts = [HERE.parent.parent, *filter(None, [args.beside])]
    print("| verifier | rows | problems | seconds |" + (" beside | ratio |" * len(checkouts[1:])))
    print("|---" * (4 + 2 * len(checkouts[1:])) + "|")
    for verifier in args.verifiers:
        for rows in args.rows:
            turns = [[run(each, rows, verifier) for each in checkouts] for _ in range(args.rounds)]
            seconds = [
                statistics.median(turn[side][0] for turn in turns) for side in range(len(checkouts))
            ]
            cells = [verifier, f"{rows:,}", f"{turns[0][0][1]:,}", *(f"{s:.3g}" for s in seconds)]
            if args.beside:
                cells.append(f"{seconds[0] / seconds[1]:.2f}")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

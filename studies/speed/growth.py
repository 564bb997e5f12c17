"""How time and memory grow with the work: each kind of it in some sizes, and the exponents.

    python studies/speed/growth.py                      # ten minutes on 2 CPU cores that are idle
    python studies/speed/growth.py --only ranks steps   # some kinds of work
    python studies/speed/growth.py --quick              # without the largest size of each

Each size has a process of its own, and one thread. Seconds are those of the CPU, except for answers
and ranks, which are waited for. Memory is the process's peak above what it held before the work; of
ranks it is what they send. An exponent is that between the last two sizes: 1 where twice as much
work takes twice as long. No time is quoted where other processes use the machine meanwhile.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, markdown_table

import rlvr
import rlvr.policy.logprobs
import rlvr.rollout.samplers
import rlvr.show
import rlvr.tasks.datasets
from rlvr.tasks import Problem, Sample
from rlvr.verify.pool import grade, in_threads

import datasets
import torch
import transformers

import common
import grpo
from studies.papers.make_bases import build_tiny
from studies.speed import machine
from studies.speed.throughput import SPAWN, peak_memory, start_peak

# Each kind of work is a function: how much of it, and a folder -> the function that does it. That
# one may return the seconds and the bytes that count in place of the CPU's and the memory's.


def rollout_and_update(part: str, completions: int, length: int, vocabulary: int = 55):
    """A part of a step of a random policy in the tiny policy's shape."""
    torch.manual_seed(0)
    shape = build_tiny()[0].config
    shape.vocab_size = vocabulary
    policy = transformers.Qwen2MoeForCausalLM(shape)
    prompt = [*range(3, 19)]

    def rollout():
        for start in range(0, completions, 512):
            count = min(512, completions - start)
            common.decode(policy, [prompt] * count, stops=(), max_tokens=length)

    def update():
        samples = [Sample(prompt, [*range(3, 43)] * (length // 40)) for _ in range(completions)]
        for rows in rlvr.policy.logprobs.microbatches(samples, range(completions), 4096):
            chosen = [samples[i] for i in rows]
            logprobs, _ = rlvr.policy.completion_logprobs(policy, chosen, 1.0, length)
            logprobs.sum().backward()

    return rollout if part == "rollout" else update


def longer_completions(part: str, size: int, folder: Path):
    """Eight completions of so many tokens."""
    return rollout_and_update(part, 8, size)


def more_completions(part: str, size: int, folder: Path):
    """Completions of 40 tokens."""
    return rollout_and_update(part, size, 40)


def larger_vocabulary(part: str, size: int, folder: Path):
    """128 completions of 40 tokens."""
    return rollout_and_update(part, 128, 40, size)


def more_problems(size: int, folder: Path):
    """Load a file of questions of 150 characters, of which 128 are evaluated."""
    file = folder / "rows.jsonl"
    with open(file, "w") as opened:
        for i in range(size):
            opened.write(json.dumps({"prompt": f"{i:150d}", "answer": str(i % 1000)}) + "\n")
    datasets.config.HF_DATASETS_CACHE = folder
    config = grpo.Config(dataset=str(file), verifier="number")
    tokenizer = build_tiny()[1]

    def load():
        rlvr.tasks.datasets.load_problems(config, tokenizer)

    return load


def more_evaluation(size: int, folder: Path):
    """Evaluate so many problems, four completions and a greedy one of each."""
    policy, tokenizer = build_tiny()
    config = grpo.Config(eval_samples=4, max_completion_length=40)
    sampler = rlvr.rollout.make_sampler(policy, tokenizer, config, common.decode)
    problems = [Problem("3 9 5 : 48 ", "3 9 5:48") for _ in range(size)]
    return partial(common.evaluate, sampler, {"problems": problems}, config)


def more_answers(size: int, folder: Path):
    """Grade answers, each hundredth a tower of powers that a grader gives up after a second."""
    questions = [("math", rf"\boxed{{{i}/2}}", str(i / 2)) for i in range(size)]
    questions[::100] = [("math", r"\boxed{9^{9^{9^{9}}}}", "7")] * len(questions[::100])

    def run():
        floor, began = start_peak(), time.perf_counter()
        in_threads(partial(grade, seconds=1.0), questions, "grading")
        return time.perf_counter() - began, peak_memory() - floor

    return run


def more_steps(work: str, size: int, folder: Path):
    """The logs of so many steps, with an evaluation after each tenth."""
    numbers = {f"metric_{i}": 0.123456789 * i for i in range(20)}
    metrics = dict.fromkeys(["reward", "entropy", "length", "seconds_rollout"], 0.5) | numbers
    evaluation = {f"pass@{2**i}": 0.1 * i for i in range(5)} | {"greedy": 0.5}
    for name, row, every in (("metrics", metrics, 1), ("eval", evaluation, 10)):
        rows = [json.dumps({"step": step, **row}) for step in range(0, size + 1, every)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    if work == "curves":
        return partial(rlvr.show.draw_curves, folder)
    return partial(rlvr.show.drop_rows_after, folder, size // 2)


def more_ranks(size: int, folder: Path):
    """A median step of `torchrun grpo.py`, 32 x 16 completions over all ranks, and its bytes sent.

    They are those of all processes over the loopback device, start included.
    """
    flags = "--max_steps 4 --eval_problems 4 --eval_samples 1 --num_threads 1".split()
    start = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={size}"]
    command = [*start, str(ROOT / "grpo.py"), *flags, f"--output_dir={folder}"]

    def run():
        before = sent()
        subprocess.run(command, check=True, capture_output=True)
        rows = rlvr.show.read_rows(folder, "metrics")
        times = [row["seconds_rollout"] + row["seconds_update"] for row in rows]
        return statistics.median(times), (sent() - before) / len(rows)

    return run


def sent() -> int:
    """The bytes that the loopback device has sent."""
    fields = Path("/proc/net/dev").read_text().partition("lo:")[2].split()
    return int(fields[8])


KINDS = {
    "length: rollout": (partial(longer_completions, "rollout"), (120, 520, 2080, 4080)),
    "length: update": (partial(longer_completions, "update"), (120, 520, 2080, 4080)),
    "completions: rollout": (partial(more_completions, "rollout"), (64, 512, 4096)),
    "completions: update": (partial(more_completions, "update"), (64, 512, 4096)),
    "vocabulary: rollout": (partial(larger_vocabulary, "rollout"), (1000, 32000, 151936)),
    "vocabulary: update": (partial(larger_vocabulary, "update"), (1000, 32000, 151936)),
    "problems": (more_problems, (10**3, 10**4, 10**5, 10**6)),
    "evaluation problems": (more_evaluation, (10**2, 10**3, 10**4)),
    "answers": (more_answers, (10**2, 10**3, 4 * 10**3)),
    "steps: curves": (partial(more_steps, "curves"), (10**2, 10**3, 10**4, 10**5)),
    "steps: resume": (partial(more_steps, "resume"), (10**2, 10**3, 10**4, 10**5)),
    "ranks": (more_ranks, (1, 2, 4)),
}


def measure(kind: str, size: int, pipe) -> None:
    """What a size's process does: send its seconds, and its bytes of memory."""
    torch.set_num_threads(1)
    sys.stdout = open(os.devnull, "w")
    with tempfile.TemporaryDirectory() as folder:
        work = KINDS[kind][0](size, Path(folder))
        floor, began = start_peak(), time.process_time()
        found = work()
        used = time.process_time() - began
        pipe.send(found if isinstance(found, tuple) else (used, peak_memory() - floor))


def measure_apart(kind: str, size: int) -> tuple[float, int]:
    """measure() by a process of its own."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=measure, args=(kind, size, theirs))
    process.start()
    theirs.close()
    found = ours.recv()
    process.join()
    return found


def exponent(sizes, values) -> str:
    """Of the power by which the values grow between the last two sizes."""
    if min(values[-2:]) <= 0:
        return ""
    return f"{math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2]):.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--only", nargs="+", default=[""], help="kinds that begin so")
    parser.add_argument("--quick", action="store_true", help="without the largest sizes")
    parser.add_argument("--busy", action="store_true", help="quote times on a machine in use")
    given = parser.parse_args()
    neighbours, rows = machine.Neighbours(time.perf_counter), []
    for kind in (kind for kind in KINDS if kind.startswith(tuple(given.only))):
        sizes = KINDS[kind][1][: -1 if given.quick else None]
        times, memory = zip(*(measure_apart(kind, size) for size in sizes), strict=True)
        cells = [f"{sizes[0]:,} to {sizes[-1]:,}", " ".join(f"{each:.3g}" for each in times)]
        cells += [exponent(sizes, times), " ".join(f"{each / 1e6:.3g}" for each in memory)]
        rows.append([kind, *cells, exponent(sizes, memory)])
        print(*rows[-1], sep="  ", file=sys.stderr)
    print(f"{machine.describe(1)}; {neighbours.told(given.busy)}")
    head = ["", "sizes", "seconds", "exponent", "MB", "exponent"]
    print(*markdown_table(head, rows), sep="\n")

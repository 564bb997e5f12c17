"""Grade the assignment: python docs/assignment/grade.py answers.py

Each function runs in a process of its own, and has four checks, worth one point each. This file
needs torch and numpy, and nothing else of the project. Its exit code is 1 if points are missing.
"""

import argparse
import copy
import csv
import json
import multiprocessing
import os
import runpy
import sys
from math import inf, sqrt
from pathlib import Path

import torch
import torch._dynamo  # an optimizer does so, which takes each process a second

PROJECT = ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo", "common", "rlvr")  # not to be imported

ONE_OF_4 = [sqrt(3), -sqrt(1 / 3), -sqrt(1 / 3), -sqrt(1 / 3)]
GRADED = [2 / sqrt(2.5), -1 / sqrt(2.5), -2 / sqrt(2.5), 1 / sqrt(2.5)]
TOKENS = torch.tensor([[1.0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [1, 0, 0, 0, 0]])
FEW = torch.tensor([[0.0, 0, 0], [1, 1, 0]])  # of which one row is empty

# Three completions. Two of their tokens are off the mask.
RATIO = torch.tensor([[1.5, 0.5, 1.1, 0.9], [1.5, 0.5, 0.2, 4], [1.25, 0.7, 0.2, 1]])
OLD = torch.tensor([[0.25, 0.5, 0.75, 0.5], [0.5, 0.25, 0.5, 0.2], [0.5, 0.5, 0.5, 0.5]]).log()
NEW = OLD + RATIO.log()
MASK = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]])
WEIGHTS = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0, 0.2], [0.2, 0.3, 0.4, 0]])
SIGNS = torch.tensor([[2.0], [-1], [1]])
LOSS = dict(logprobs=NEW, old_logprobs=OLD, advantages=SIGNS, loss_mask=MASK, token_weights=WEIGHTS)
PADDED = dict(old_logprobs=OLD.masked_fill(MASK == 0, -inf))
PADDED |= dict(advantages=torch.tensor([[2.0, 2, -1, -1], [-1, -1, 1, 1], [1, -2, 1, 1]]))
BOTH_PADDED = PADDED | dict(logprobs=NEW.masked_fill(MASK == 0, -inf))
FEATURES = torch.tensor([[1.0, -1, 2, 1], [2, 1, 1, -1], [1, 1, -1, 1]])  # of a linear policy
# What is right for these: the loss, its gradient with respect to logprobs, clip_low, clip_high
PARTS = ("", "gradient ", "clip_low ", "clip_high ")
NONE, FIRST, SECOND = [0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]
AT_1 = -2.1, -SIGNS * WEIGHTS, [NONE] * 3, [NONE] * 3
LOWER, UPPER = [0.75, 0, 0, 0.8], [0, -0.21, -0.08, 0]
LOW, HIGH = [NONE, SECOND, NONE], [FIRST, NONE, FIRST]
MIDDLE = -0.72, [[0, -0.2, -0.66, -0.72], LOWER, UPPER], LOW, HIGH
WIDE = -0.75, [MIDDLE[1][0], LOWER, [-0.25, *UPPER[1:]]], LOW, [FIRST, NONE, NONE]
NARROW = [[0, -0.2, 0, -0.72], LOWER, UPPER], LOW, [[1, 0, 1, 0], NONE, FIRST]
OF_TOKENS = [[0, -0.2, 0.33, 0.36], [0.75, 0, 0, 0], [0, 0, -0.08, 0]]
OF_TOKENS = 1.0, OF_TOKENS, [NONE, SECOND, SECOND], [FIRST, [0, 0, 0, 1], FIRST]
MOVED = [1 / 6, 0.5 - 1 / 12 + 0.7 / 9, 0.5 + 4.4 / 12 - 0.2 / 9, 0.65 + 4 / 9]  # by an update

# function -> rows: what the check is about, the arguments, the right value
CHECKS = {
    "grpo_advantage": [
        ("successes", ([[1.0, 0, 0, 0], [1, 1, 0, 0]],), [ONE_OF_4, [1, 1, -1, -1]]),
        ("graded rewards", ([[3.0, 0, -1, 2], [1e-6, 0, 0, 0]],), [GRADED, ONE_OF_4]),
        ("graded rewards", ([[1.0, 0], [3, 4]],), [[1, -1], [-1, 1]]),
        ("equal rewards", ([[0.9] * 3, [900.1] * 3],), [[0] * 3] * 2),
        ("equal rewards", ([[0.1] * 8, [4] * 4 + [2] * 4],), [[0] * 8, [1] * 4 + [-1] * 4]),
        ("equal rewards", ([[0.3], [1.0]],), [[0], [0]]),
        ("no scale_rewards", ([[3.0, 0, -1, 2]], False), [[2, -1, -2, 1]]),
        ("no scale_rewards", ([[0.9] * 3, [4, 2, -3]], False), [[0] * 3, [3, 1, -4]]),
    ],
    "token_weights": [
        ("sequence", (TOKENS, "sequence", 8), TOKENS / torch.tensor([[8], [20], [12], [4]])),
        ("token", (TOKENS, "token", 8), TOKENS / 11),
        ("constant", (TOKENS, "constant", 8), TOKENS / 32),
        ("empty rows", (FEW, "sequence"), FEW / 4),
        ("empty rows", (FEW, "constant", 4), FEW / 8),
        ("empty rows", (0 * FEW, "token"), 0 * FEW),
    ],
    "ppo_clip_loss": [
        ("a ratio of 1", dict(logprobs=OLD.clone()), AT_1),
        ("ratios on both sides of the range", {}, MIDDLE),
        ("the epsilons", dict(epsilon=0.05), (-0.615, *NARROW)),
        ("the epsilons", dict(epsilon_high=0.0), (-0.58, *NARROW)),
        ("the epsilons", dict(epsilon_high=0.3), WIDE),
        ("padding, advantages per token", PADDED, OF_TOKENS),
        ("padding, advantages per token", BOTH_PADDED, OF_TOKENS),
    ],
    "pass_at_k": [
        ("k is 1", (16, 3, 1), 3 / 16),
        ("a larger k", (16, 3, 4), 1 - 715 / 1820),
        ("a larger k", (4, 2, 2), 5 / 6),
        ("fewer than k are wrong", (4, 2, 3), 1),
        ("none is correct", (16, 0, 16), 0),
    ],
    "update": [
        ("one microbatch", ([[0, 1, 2]], 0.0), MOVED),
        ("microbatches of one size", ([[2], [0], [1]], 0.0), MOVED),
        ("microbatches of two sizes", ([[1], [2, 0]], 0.0), MOVED),
        ("gradients left from before", ([[0, 1, 2]], 1.0), MOVED),
    ],
}
# What --variant asks for, and the right value, made from the one above
VARIANT = {
    "grpo_advantage": (
        "a std that divides by G - 1",
        lambda x, r, s=True: x * sqrt(1 - 1 / len(r[0])) ** s,
    ),
    "token_weights": ("n times as large", lambda x, mask, *_: x * len(mask)),
    "ppo_clip_loss": ("minus the loss, to be maximized", lambda x, *_: -x),
    "pass_at_k": ("the probability that none is correct", lambda x, *_: 1 - x),
    "update": ("as before, but with these two functions", lambda x, *_: 3 * x - 1),
}


def values_of(function, name: str, given) -> list:
    """Return what a student's function gives, as lists. Its tensors are made for this call."""
    given = copy.deepcopy(LOSS | given if name == "ppo_clip_loss" else given)
    if name == "update":
        return [weights_after(function, *given)]
    if name != "ppo_clip_loss":
        given = [torch.tensor(each) if isinstance(each, list) else each for each in given]
        return [torch.as_tensor(function(*given)).tolist()]
    logprobs, mask = given["logprobs"].requires_grad_(), given["loss_mask"] > 0
    found = function(**given | dict(logprobs=logprobs.clone()))
    assert isinstance(found, tuple), "it must return the loss and a dict"
    assert found[1]["kl"].tolist() == [NONE] * 3, "kl must be [m, T], and all 0"
    (gradient,) = torch.autograd.grad(found[0], logprobs)
    marks = [torch.where(mask, found[1][which], 0) for which in ("clip_low", "clip_high")]
    return [each.tolist() for each in (found[0], gradient, *marks)]


def weights_after(update, microbatches: list, left: float) -> list:
    """Return the weights of a linear policy after a student's update; before it, they are 1."""
    weights = torch.ones(4, requires_grad=True)
    weights.grad = torch.full((4,), left)
    optimizer = torch.optim.SGD([weights], lr=1.0, momentum=0.9, weight_decay=0.5)

    def policy(rows):
        assert len(rows) <= max(map(len, microbatches)), "more rows than a microbatch has"
        return NEW[rows] + FEATURES[rows] * (weights - 1)

    update(policy, optimizer, OLD.clone(), SIGNS.clone(), MASK.clone(), microbatches)
    return weights.tolist()


def work(path: Path, name: str, pipe) -> None:
    """Send what a file's function gives for each row, or one line that says why there is none."""
    sys.stdout = sys.stderr = open(os.devnull, "w")
    sys.modules.update(dict.fromkeys(PROJECT))  # to import one of them fails
    found = []
    for _, arguments, _ in CHECKS[name]:
        try:
            function = runpy.run_path(str(path)).get(name)
            found.append(values_of(function, name, arguments) if function else "missing")
        except NotImplementedError:
            found.append("not written yet")
        except BaseException as error:  # also of sys.exit()
            found.append(" ".join(f"{type(error).__name__}: {error}".split()))
    pipe.send_bytes(json.dumps(found).encode())


def ask(path: Path, name: str, seconds: float) -> list:
    """Return what `work` sends from a process of its own, which gets so much time."""
    processes = multiprocessing.get_context("fork")
    ours, theirs = processes.Pipe(duplex=False)
    process = processes.Process(target=work, args=(path, name, theirs))
    process.start()
    theirs.close()
    try:
        if ours.poll(seconds):
            return json.loads(ours.recv_bytes())
        return [f"no result after {seconds:g} seconds"] * len(CHECKS[name])
    except (EOFError, ValueError):
        return ["it ended without a result"] * len(CHECKS[name])
    finally:
        process.kill()


def difference(found: list | str, right: list[torch.Tensor], tolerance: float) -> str:
    """Return the first value of a student's that is not right, or an empty text."""
    if isinstance(found, str):
        return found
    for part, value, expected in zip(PARTS, found, right, strict=False):
        value = torch.tensor(value, dtype=torch.float64)
        if value.numel() == expected.numel() == 1:
            value = value.reshape(expected.shape)
        if value.shape != expected.shape:
            return f"{part}shape {[*value.shape]}, expected {[*expected.shape]}"
        for place in (~value.isclose(expected, 1e-4, tolerance)).nonzero().tolist():
            got, right = value[tuple(place)], expected[tuple(place)]
            return f"{part}{got:.4g} at {place}, expected {right:.4g}"
    return ""


def grade(path: Path, is_variant: bool, seconds: float) -> list[int]:
    """Print what is wrong with a file, and return the points of each function, and their sum."""
    print(path)
    points = []
    for name, rows in CHECKS.items():
        found = ask(path, name, seconds)
        flaws = {}  # what a check is about -> the first thing that is wrong
        for (about, arguments, right), values in zip(rows, found, strict=True):
            right = right if isinstance(right, tuple) else (right,)
            right = [torch.as_tensor(each, dtype=torch.float64) for each in right]
            if is_variant:
                for part in range(1 + (name == "ppo_clip_loss")):  # its gradient, too
                    right[part] = VARIANT[name][1](right[part], *arguments)
            tolerance = 0 if name == "grpo_advantage" else 1e-6  # it must give exactly 0
            flaws[about] = flaws.get(about) or difference(values, right, tolerance)
        points.append([*flaws.values()].count(""))
        first, *others = dict.fromkeys(flaws.values())
        print(f"  {name}: {points[-1]} of {len(flaws)}" + f": {first}" * bool(first and not others))
        for about, flaw in flaws.items():
            print(f"    {about}: {flaw}\n" * bool(flaw and others), end="")
    print(f"  {sum(points)} points of {4 * len(CHECKS)}")
    return [*points, sum(points)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("answers", nargs="+", type=Path, help="files, or folders of files")
    parser.add_argument("--variant", action="store_true", help="ask for other values")
    parser.add_argument("--seconds", type=float, default=10, help="limit of each function")
    parser.add_argument("--csv", type=Path, help="where to write the points as a table")
    options = parser.parse_args()
    files = []
    for path in options.answers:
        inside = [path, *sorted(path.rglob("*.py"))]
        found = [file for file in inside if file.is_file()]
        if not found:
            sys.exit(f"{path} is neither a file nor a folder that holds Python files")
        files += found
    for name, (text, _) in VARIANT.items() if options.variant else ():
        print(f"{name}: {text}")
    table = [[path, *grade(path, options.variant, options.seconds)] for path in files]
    if options.csv:
        with options.csv.open("w", newline="") as file:
            csv.writer(file).writerows([["file", *CHECKS, "points"], *table])
    sys.exit(any(row[-1] < 4 * len(CHECKS) for row in table))


if __name__ == "__main__":
    main()

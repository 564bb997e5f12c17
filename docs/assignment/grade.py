"""Grade a file of the assignment: python docs/assignment/grade.py answers.py

Each check compares a function with the project's own, and earns one point.
"""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

import common
from grpo import grpo_advantage

ROWS = [*range(6)]
MASK = (torch.arange(5) < torch.tensor([2, 5, 1, 4, 3, 5])[:, None]).float()  # [6, 5]
OLD, NOISE, FEATURES = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
NEAR = OLD + 0.3 * NOISE
SIGNS = torch.tensor([[1.0], [-1], [2], [-0.5], [1], [-2]])
LOSS = dict(old_logprobs=OLD, advantages=SIGNS, loss_mask=MASK, token_weights=MASK / 7)
PADDED = NEAR.masked_fill(MASK == 0, -torch.inf)
# function -> its checks: what is special about each, and the arguments
CHECKS = {
    "grpo_advantage": {
        "mixed groups": dict(rewards=torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0]])),
        "graded rewards": dict(rewards=torch.tensor([[0.5, 0.25, 1, -1]])),
        "a group of equal rewards": dict(rewards=torch.tensor([[0.1] * 3, [1, 0, 1]])),
        "as many prompts as completions": dict(rewards=torch.tensor([[1.0, 0], [3, 4]])),
    },
    "token_weights": {
        "sequence": dict(loss_mask=MASK, aggregation="sequence"),
        "token": dict(loss_mask=MASK, aggregation="token"),
        "constant": dict(loss_mask=MASK, aggregation="constant", max_completion_length=8),
        "an empty row": dict(loss_mask=MASK * (SIGNS != 2), aggregation="sequence"),
    },
    "ppo_clip_loss": {
        "a first update, where rho is 1": LOSS | dict(logprobs=OLD),
        "ratios on both sides of the range": LOSS | dict(logprobs=NEAR),
        "epsilon_high": LOSS | dict(logprobs=NEAR, epsilon=0.1, epsilon_high=0.4),
        "infinite padding": LOSS | dict(logprobs=PADDED, old_logprobs=PADDED + MASK / 9),
    },
    "pass_at_k": {
        "k is 1": dict(num_samples=16, num_correct=3, k=1),
        "k is 4": dict(num_samples=16, num_correct=3, k=4),
        "fewer than k are wrong": dict(num_samples=16, num_correct=12, k=8),
        "none is right": dict(num_samples=16, num_correct=0, k=16),
    },
    "update": {
        "one microbatch": dict(microbatches=[ROWS]),
        "microbatches of one size": dict(microbatches=[[0, 1], [2, 3], [4, 5]]),
        "microbatches of three sizes": dict(microbatches=[[3], [0, 1, 5], [2, 4]]),
        "gradients left from before": dict(microbatches=[ROWS[:3], ROWS[3:]], left=1.0),
    },
}


def grpo_update(policy, optimizer, old_logprobs, advantages, loss_mask, microbatches) -> None:
    """Make one optimizer step on a minibatch, as `update` should."""
    optimizer.zero_grad()
    weights = common.token_weights(loss_mask, "sequence")
    for rows in microbatches:
        loss, _ = common.ppo_clip_loss(
            logprobs=policy(rows),
            old_logprobs=old_logprobs[rows],
            advantages=advantages[rows],
            loss_mask=loss_mask[rows],
            token_weights=weights[rows],
        )
        loss.backward()
    optimizer.step()


def value_of(function, name: str, given: dict) -> tuple[torch.Tensor, ...]:
    """Return a function's value, with the gradient of a loss; for an update, the new weights."""
    if name == "update":
        weight = torch.ones(5, requires_grad=True)
        weight.grad = torch.full((5,), given.get("left", 0.0))
        most = max(map(len, given["microbatches"]))

        def policy(rows):
            assert len(rows) <= most, "more rows than a microbatch has"
            return OLD[rows] + FEATURES[rows] * weight

        optimizer = torch.optim.SGD([weight], lr=1.0)
        function(policy, optimizer, OLD + FEATURES - NOISE / 4, SIGNS, MASK, given["microbatches"])
        return (weight.detach(),)
    if name != "ppo_clip_loss":
        return (torch.as_tensor(function(**given)),)
    logprobs = given["logprobs"].clone().requires_grad_()
    loss = function(**given | dict(logprobs=logprobs))
    loss = loss[0] if isinstance(loss, tuple) else loss  # common's also returns what to log
    return loss.detach(), torch.autograd.grad(loss, logprobs)[0]


def mistake(theirs: dict, name: str, given: dict) -> str:
    """Return what is wrong with a student's function on these arguments, or an empty text."""
    ours = dict(update=grpo_update, grpo_advantage=grpo_advantage)
    try:
        found = value_of(theirs[name], name, given)
    except Exception as error:
        return f"{type(error).__name__} {error}"
    if name == "update":
        given = dict(microbatches=[ROWS])  # many passes must give the result of one
    expected = value_of(ours.get(name) or getattr(common, name), name, given)
    for got, right in zip(found, expected, strict=True):
        if got.shape != right.shape or not torch.allclose(got.to(right), right, 1e-4, 1e-6):
            return f"{shown(got)}, expected {shown(right)}"
    return ""


def shown(values: torch.Tensor) -> str:
    """Return the first values of a tensor, and its shape, as text."""
    first = ", ".join(f"{value:.3f}" for value in values.flatten()[:6].tolist())
    return f"[{first}{' ...' if values.numel() > 6 else ''}] of shape {[*values.shape]}"


def grade(theirs: dict) -> dict[str, int]:
    """Print what is wrong with a file's functions, and return the points of each."""
    points = {}
    for name, checks in CHECKS.items():
        found = {about: mistake(theirs, name, given) for about, given in checks.items()}
        points[name] = [*found.values()].count("")
        print(f"{name}: {points[name]} of {len(checks)}")
        print(
            *[f"    {about}: {wrong}\n" for about, wrong in found.items() if wrong], sep="", end=""
        )
    print(f"{sum(points.values())} points of {sum(map(len, CHECKS.values()))}")
    return points


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_file():
        sys.exit("grade.py: error: give one file that exists, such as your copy of stubs.py")
    grade(runpy.run_path(sys.argv[1]))

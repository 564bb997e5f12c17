"""A problem, a completion of its prompt, and the order in which ranks draw training problems."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlvr import progress, world
from rlvr.errors import UserError

if TYPE_CHECKING:  # a wrong flag is refused before torch is imported
    import torch

SUCCESS = 1.0  # a completion with at least this reward counts as right


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem whose answer a verifier can judge."""

    prompt: str  # what the policy reads, with system prompt and chat template
    gold: Any  # what is right: an answer, or unit tests; for a user's function the cell as it is
    verifier: str = "countdown"  # a name of rlvr.verify.verifiers.VERIFIERS
    level: str = ""  # each level is also evaluated by itself
    id: int = field(default=0, compare=False)  # its place among the problems of its set


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of one prompt, with its reward."""

    prompt_ids: list[int]
    completion_ids: list[int]  # with the stop token
    text: str = ""  # the completion as text, without special tokens
    reward: float = 0.0
    truncated: bool = False  # there was no stop token before the length limit
    logprobs: tuple[float, ...] | list[float] = ()  # the sampler's, in nats, per completion token
    status: str = ""  # of the verifier: "", "unparsed", "timeout", "memory" or "crash"
    success: bool = False  # whether the reward reaches SUCCESS
    # where a tool's tokens stand among completion_ids; their log-probs are 0
    replies: tuple[range, ...] | list[range] = ()
    problem: Problem = Problem("", None)
    true_reward: float | None = None  # the reward before --reward_noise

    @property
    def own_length(self) -> int:
        """Return how many tokens of the completion the policy itself has written."""
        return len(self.completion_ids) - sum(map(len, self.replies))


class ProblemStream:
    """Endless shuffled passes over the problems. `position` is all that resuming needs.

    `evaluation` holds the problems of each set to evaluate on, which a resumed run must share, too.
    """

    def __init__(self, problems: list[Problem], seed: int, evaluation: dict | None = None):
        self.problems, self.seed, self.position = problems, seed, 0
        self.evaluation = evaluation or {}
        # the order of the current pass: shuffling a million problems takes a second
        self.epoch, self.order = None, []

    def draw(self, count: int) -> list[Problem]:
        """Return this rank's `count` problems of the next `count` per rank.

        They are dealt out in turn, so that minibatches have the same prompts for any number of
        ranks.
        """
        first, size = self.position, len(self.problems)
        self.position += world.WORLD_SIZE * count
        mine = []
        for place in range(first + world.RANK, self.position, world.WORLD_SIZE):
            epoch, i = divmod(place, size)
            if epoch != self.epoch:
                shuffled = random.Random(f"{self.seed}/{epoch}").sample(self.problems, size)
                self.epoch, self.order = epoch, shuffled
            mine.append(self.order[i])
        return mine


def drop(name: str, problems: list[Problem], steps: dict) -> list[Problem]:
    """Return what all steps keep, and print how many problems each drops. UserError if all are.

    steps maps a reason to a function that returns the problems to keep.
    """
    kept, losses = problems, []
    for reason, keep in steps.items():
        before, kept = len(kept), keep(kept) if kept else []
        if len(kept) < before:
            losses.append(f"{before - len(kept)} {reason}")
    if losses:
        told = f"{name}: {len(kept)} of {len(problems)} problems; dropped {', '.join(losses)}"
        if not kept:
            hint = "see --max_prompt_length, and for a file --columns and --verifier"
            raise UserError(f"{told}; {hint}")
        progress.write(told)
    return kept


def padded(rows: Sequence[Sequence[float]]) -> torch.Tensor:
    """Return rows of numbers as one tensor [n, T], 0 beyond a row's end."""
    import torch

    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


def own_tokens(samples: list[Sample]) -> torch.Tensor:
    """Return a mask [n, T] of the tokens that the policy itself has written, and not a tool."""
    import torch

    lengths = torch.tensor([len(sample.completion_ids) for sample in samples])
    own = torch.arange(int(lengths.max())) < lengths[:, None]  # the stop token may also be padding
    for row, sample in enumerate(samples):
        for reply in sample.replies:
            own[row, reply.start : reply.stop] = False
    return own

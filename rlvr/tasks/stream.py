"""The order in which training problems are drawn, shared by the ranks."""

import random

from rlvr import world
from rlvr.records import Problem


class ProblemStream:
    """Endless shuffled passes over the problems; `position` is all that resuming has to know."""

    def __init__(self, problems: list[Problem], seed: int):
        self.problems, self.seed, self.position = problems, seed, 0

    def draw(self, count: int) -> list[Problem]:
        """This rank's share of the next `count` problems a rank.

        They are dealt out in turn, so that minibatches have the same prompts whatever the number
        of ranks.
        """
        first, size = self.position, len(self.problems)
        self.position += world.WORLD_SIZE * count
        order = []
        for epoch in range(first // size, self.position // size + 1):
            order += random.Random(f"{self.seed}/{epoch}").sample(self.problems, size)
        all_ranks = order[first % size :][: world.WORLD_SIZE * count]
        return all_ranks[world.RANK :: world.WORLD_SIZE]

"""Wrong rewards on purpose: what a verifier that errs does to training (--reward_noise)."""

import random
from dataclasses import replace

from rlvr import world
from rlvr.tasks import SUCCESS, ProblemStream, Sample


def add_noise(
    groups: list[list[Sample]], rates: str, stream: ProblemStream, seed: int
) -> list[list[Sample]]:
    """Return the groups that the stream's last draw has led to, with some rewards flipped.

    A reward r becomes 1 - r: with the rate of false negatives if the completion is a success, and
    else with that of false positives. The random numbers depend on the seed and on the prompt's
    place in the stream alone. So a resumed run continues them, and any number of ranks has the
    same. Without rates, the groups stay as they are.
    """
    if not rates:
        return groups
    false_negatives, false_positives = map(float, rates.split(","))
    noisy = []
    for i, group in enumerate(groups):
        place = stream.position - world.WORLD_SIZE * (len(groups) - i) + world.RANK
        chance = random.Random(f"{seed}/noise/{place}")
        noisy.append([])
        for sample in group:
            rate = false_negatives if sample.success else false_positives
            reward = 1 - sample.reward if chance.random() < rate else sample.reward
            success = reward >= SUCCESS
            noisy[-1].append(
                replace(sample, reward=reward, success=success, true_reward=sample.reward)
            )
    return noisy

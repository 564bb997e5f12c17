"""What holds for all five scripts with rewards of any size."""

import importlib
import math

from rlvr.tasks.problems import Sample

import baselines
import pytest
from groups import near
from samples import writer_of_batch

import common
import fade

# Mean 0.4 and deviation 0.3; mean 0 and deviation 1. From 0.3 on a reward is a success.
GROUPS = [[0.9, 0.3, 0.3, 0.1], [-1.0, 1.0, -1.0, 1.0]]
THRESHOLD = 0.3
GRPO = [[5 / 3, -1 / 3, -1 / 3, -1], [-1, 1, -1, 1]]
# p is 3/4 and 1/2, and w is 5/8
W = 5 / 8
EASY = W / 2 / math.sqrt(3 / 4) + (1 - W) / 2 / math.sqrt(1 / 4)
MIDDLE = math.sqrt(2) / 2
AGRAE = [
    [EASY * W * 5 / 3, -EASY / 3, -EASY / 3, -EASY],
    [-MIDDLE, MIDDLE * W, -MIDDLE, MIDDLE * W],
]
ADVANTAGES = [
    ("agrae", "agrae", AGRAE),
    ("grpo", "grpo-n", [[0, -1 / 3, -1 / 3, -1], [-1, 0, -1, 0]]),
    ("grpo", "dr-grpo", [[0.5, -0.1, -0.1, -0.3], [-1, 1, -1, 1]]),
    ("cwgrpo", "cwgrpo", GRPO),
    ("baselines", "hard_focused", [[a / math.sqrt(3) for a in GRPO[0]], [-MIDDLE, MIDDLE] * 2]),
    ("asymgrpo", "asymgrpo", [[3**-0.9] * 3 + [-(3**0.4)], [-1, 1, -1, 1]]),
    ("baselines", "power", [[1 / 16] * 3 + [-3 / 16], [-1 / 4, 1 / 4] * 2]),
]


@pytest.mark.parametrize("script, variant, expected", ADVANTAGES)
def test_advantages_by_hand(script, variant, expected):
    """Of a rollout with these rewards."""
    module = importlib.import_module(script)
    presets = dict(advantage=variant) if script == "baselines" else module.VARIANTS[variant]
    config = module.Config(**presets, num_generations=4)
    samples = [
        Sample([5], [7, 1], reward=r, logprobs=[-1.0] * 2, success=r >= THRESHOLD)
        for group in GROUPS
        for r in group
    ]
    batch = common.make_batch(samples, config, writer_of_batch(None))
    batch.texts = lambda: ["no tag"] * len(samples)  # which earns no format reward
    memory = dict(fade=[fade.FadeController(), 0], baselines=[baselines.Memory()])
    advantages, logged = module.compute_advantages(batch, config, *memory.get(script, []))
    assert ("format" in logged) == (script == "cwgrpo")
    near(advantages, expected, atol=1e-6)

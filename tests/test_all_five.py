"""What holds for all five scripts: grpo.py with the idea switched off, and rewards of any size."""

import importlib
import math
from dataclasses import replace

import rlvr.training.run
from rlvr.tasks.problems import Sample
from rlvr.verify.verifiers import VERIFIERS

import baselines
import pytest
import torch
from groups import near
from runs import SMALL, arguments, first_fast, rows, weights
from samples import writer_of_batch

import common
import fade

FLAGS = SMALL | dict(eval_problems=2, eval_samples=2, eval_steps=9, save_steps=9)


@pytest.fixture
def trained(bare, cache_dir, tmp_path, monkeypatch):
    """trained("grpo --variant dapo") -> (final weights in one tensor, rows of metrics.jsonl)."""
    monkeypatch.setattr(rlvr.training.run, "draw_curves", lambda *_: None)

    def train(command):
        script, *flags = command.split()
        folder = tmp_path / f"run {len(list(tmp_path.iterdir()))}"
        given = arguments(**FLAGS, cache_dir=cache_dir, output_dir=folder)
        result = bare(script, *given, *flags)
        assert result.code == 0, result.err
        parameters = weights(folder / "checkpoint-2").values()
        return torch.cat([parameter.flatten() for parameter in parameters]), rows(folder)

    return train


@pytest.mark.parametrize(
    "neutral, plain",
    first_fast(
        [
            ("agrae --sample_level false --group_level false", "grpo"),
            ("agrae --variant released-weight --sample_level false --group_level false", "grpo"),
            # limits that leave alpha = delta = 1
            ("fade --alpha_max 1 --target_entropy 0", "grpo --variant dr-grpo"),
            ("cwgrpo --variant grpo", "grpo"),
            ("baselines --advantage positive_dominant --advantage_beta 1", "grpo"),
            (
                "baselines --advantage w_reinforce --success_weight 1",
                "asymgrpo --variant reinforce --aggregation sequence",
            ),
            (
                "baselines --advantage power --alpha 1 --aggregation constant",
                "grpo --variant dr-grpo",
            ),
            # with 4 completions a prompt, max |A| is sqrt(3) for GRPO and 3/4 for r - mean (11.3)
            (
                "fade --alpha_max 1 --target_entropy 0 --equalize_learning_rate true",
                f"grpo --variant dr-grpo --learning_rate {1e-4 * (3**0.5 / 0.75)}",
            ),
        ]
    ),
)
def test_neutral_settings_train_bit_for_bit_alike(trained, neutral, plain):
    assert torch.equal(trained(neutral)[0], trained(plain)[0])


@pytest.mark.parametrize(
    "command", first_fast(["agrae", "fade", "cwgrpo", "grpo --variant dr-grpo"])
)
def test_other_settings_do_not(trained, command):
    """The comparison above can fail."""
    assert not torch.equal(trained(command)[0], trained("grpo")[0])


@pytest.mark.slow
def test_log_gain_only_looks(trained):
    """Training is the same with it, and there is a gain where there are successes.

    That of a rollout is that of a token times the tokens of a success, which are some 10 to 40.
    """
    plain, _ = trained("asymgrpo")
    logged, metrics = trained("asymgrpo --log_gain true")
    assert torch.equal(plain, logged)
    assert any(row["reward"] for row in metrics)
    for row in metrics:
        of_completion, of_token = row["success_gain_completion"], row["success_gain"]
        assert of_token == 0 if row["reward"] == 0 else 10 < of_completion / of_token < 40


# ----------------------------------------------------------------------- rewards other than 0 and 1

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
    ("grpo", "grpo", GRPO),
    ("grpo", "grpo-n", [[0, -1 / 3, -1 / 3, -1], [-1, 0, -1, 0]]),
    ("grpo", "dr-grpo", [[0.5, -0.1, -0.1, -0.3], [-1, 1, -1, 1]]),
    ("cwgrpo", "grpo", GRPO),
    ("baselines", "hard_focused", [[a / math.sqrt(3) for a in GRPO[0]], [-MIDDLE, MIDDLE] * 2]),
    ("baselines", "w_reinforce", [[0.1, 0.1, 0.1, -1], [-1, 0.1, -1, 0.1]]),
    ("asymgrpo", "asymgrpo", [[3**-0.9] * 3 + [-(3**0.4)], [-1, 1, -1, 1]]),
    ("baselines", "power", [[1 / 16] * 3 + [-3 / 16], [-1 / 4, 1 / 4] * 2]),
    ("fade", "log-schedule", [[1 / 16] * 3 + [-3 / 16], [-1 / 4, 1 / 4] * 2]),  # begins as power 2
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
    advantages, _ = module.compute_advantages(batch, config, *memory.get(script, []))
    near(advantages, expected, atol=1e-6)


@pytest.mark.parametrize("script", first_fast(["asymgrpo", "grpo", "agrae", "fade", "cwgrpo"]))
def test_negative_rewards_train(run, monkeypatch, script):
    """-1 and -0.5 are 0 and 1 on another scale, which no advantage of these defaults depends on.

    So everything but the mean reward is as with 0 and 1: exactly where it is a matter of success
    alone, and to rounding where rewards are normalised. Right is a text of an even length, so that
    most groups are mixed.
    """
    logged = []
    for given in ((1.0, 0.0), (-0.5, -1.0)):
        by_length = replace(
            VERIFIERS["countdown"], verify=lambda text, gold, given=given: given[len(text) % 2]
        )
        monkeypatch.setitem(VERIFIERS, "countdown", by_length)
        monkeypatch.setattr(common, "SUCCESS", given[0])
        folder = str(given)
        result = run(script, output_dir=folder, eval_steps=2)
        assert result.code == 0, result.err
        logged.append(rows(folder) + rows(folder, "eval"))
    assert any(0 < row["reward"] < 1 for row in logged[0])
    assert logged[0][-1]["pass@1"] == logged[0][-1]["reward"]
    tolerance = 0.0 if script in ("asymgrpo", "fade") else 1e-4
    for row, other in zip(*logged, strict=True):
        assert other.pop("reward") == pytest.approx(row.pop("reward") / 2 - 1, abs=1e-12)
        assert other == pytest.approx(row, rel=tolerance, abs=tolerance)

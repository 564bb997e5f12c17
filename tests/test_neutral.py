"""Each paper's script with its idea switched off is grpo.py."""

import rlvr.training.run

import pytest
import torch
from runs import SMALL, arguments, first_fast, rows, weights

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


@pytest.fixture
def final_weights(trained):
    return lambda command: trained(command)[0]


@pytest.mark.parametrize(
    "neutral, plain",
    first_fast(
        [
            ("agrae --sample_level false --group_level false", "grpo"),
            ("agrae --method none", "grpo"),
            ("agrae --variant positive-dominant --control_beta 1", "grpo"),
            (
                "agrae --variant w-reinforce --success_weight 1",
                "asymgrpo --variant reinforce --aggregation sequence",
            ),
            ("agrae --variant released --sample_level false --group_level false", "grpo"),
            ("fade --weight power --weight_args alpha=1,delta=1", "grpo --variant dr-grpo"),
            # limits that leave alpha = delta = 1
            ("fade --alpha_max 1 --target_entropy 0", "grpo --variant dr-grpo"),
            ("cwgrpo --variant grpo", "grpo"),
        ]
    ),
)
def test_neutral_settings_train_bit_for_bit_alike(final_weights, neutral, plain):
    assert torch.equal(final_weights(neutral), final_weights(plain))


@pytest.mark.parametrize(
    "command", first_fast(["agrae", "fade", "cwgrpo", "grpo --variant dr-grpo"])
)
def test_other_settings_do_not(final_weights, command):
    """The comparison above can fail."""
    assert not torch.equal(final_weights(command), final_weights("grpo"))


@pytest.mark.slow
def test_equalized_learning_rate(final_weights):
    """With 4 completions a prompt, max |A| is sqrt(3) for GRPO and 3/4 for r - mean (FADE 11.3)."""
    equal = final_weights("fade --weight mean --equalize_learning_rate true")
    by_hand = final_weights(f"fade --weight mean --learning_rate {1e-4 * 3**0.5 / 0.75}")
    # fp32 weights near 1 resolve 1e-7, and a step changes them by 2e-4
    torch.testing.assert_close(equal, by_hand, rtol=0, atol=1e-6)
    assert not torch.equal(equal, final_weights("fade --weight mean"))


@pytest.mark.slow
def test_log_gain_only_looks(trained):
    """Training is the same with and without it, and a gain is logged where there are successes.

    That of a rollout is that of a token times the tokens of a success, which are some 10 to 40.
    """
    plain, _ = trained("asymgrpo")
    logged, metrics = trained("asymgrpo --log_gain true")
    assert torch.equal(plain, logged)
    assert all((row["success_gain"] != 0) == (row["reward"] > 0) for row in metrics)
    right = [row for row in metrics if row["reward"]]
    assert right
    assert all(10 < row["success_gain_completion"] / row["success_gain"] < 40 for row in right)

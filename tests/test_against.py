"""studies/against.py: the scripts' losses against TRL's and verl's.

TRL is no dependency of this project, and verl is read from a clone that VERL names: what needs
them is skipped without.
"""

import importlib.util
import os
from pathlib import Path

import against
import against_step
import pytest
import torch

VERL = os.environ.get("VERL")


@pytest.fixture(scope="module")
def trl_loss():
    pytest.importorskip("trl", reason="TRL is not installed")
    return against.trl_loss


@pytest.fixture(scope="module")
def verl_loss():
    if not VERL:
        pytest.skip("VERL names no clone of volcengine/verl")
    return against.read_verl(Path(VERL))


def test_the_batch_has_what_the_study_says():
    batch = against.random_batch(0)
    lengths = batch.mask.sum(1)
    assert len(set(lengths.tolist())) > 4
    assert (lengths == 0).sum() == 2
    ratios = (batch.logprobs - batch.old_logprobs).exp()[batch.mask > 0]
    assert ratios.min() < 0.5 and ratios.max() > 2
    for script, _ in against.CASES:
        advantages = against.advantages_of(script, batch)
        assert advantages.shape == batch.mask.shape
        assert advantages.min() < 0 < advantages.max()


@pytest.mark.parametrize("seed", range(8))
def test_the_kl_penalty_is_below_verls_limit(seed):
    """verl cuts k3 off at 10, which is at a log-ratio of 2.5: the batches must not reach it."""
    batch = against.random_batch(seed)
    assert (batch.ref_logprobs - batch.logprobs).max() <= 2


def test_own_loss_row_by_row():
    """GRPO's loss written out: a mean over completions of means over their tokens."""
    batch, flags = against.random_batch(0), against.flags_of("grpo", "grpo")
    advantages = against.advantages_of("grpo", batch)
    total = 0.0
    for row in range(len(batch.mask)):
        length = int(batch.mask[row].sum())
        for token in range(length):
            at = (row, token)
            ratio = (batch.logprobs[at] - batch.old_logprobs[at]).exp().item()
            a = advantages[at].item()
            step = min(ratio * a, min(max(ratio, 0.8), 1.2) * a)
            log_ratio = (batch.ref_logprobs[at] - batch.logprobs[at]).item()
            kl = torch.tensor(log_ratio).exp().item() - log_ratio - 1
            total -= (step - 0.3 * kl + 0.1 * batch.entropy[at].item()) / length
    loss = against.own_loss(batch, advantages, flags).item()
    assert loss == pytest.approx(total / len(batch.mask), rel=1e-6)


def test_difference_finds_a_wrong_slope():
    """A loss of the same value whose derivative by the entropies is missing."""

    def other(batch, advantages, flags):
        loss = against.own_loss(batch, advantages, flags)
        weights = batch.mask / batch.mask.sum(1, keepdim=True).clamp(min=1) / len(batch.mask)
        bonus = flags.entropy_coef * (weights * batch.entropy).sum()
        return loss + bonus - bonus.detach()

    assert against.difference(against.own_loss, ("grpo", "grpo"), 1) == 0
    assert against.difference(other, ("grpo", "grpo"), 1) == pytest.approx(1)


def test_functions_are_read_without_what_their_file_imports(tmp_path):
    file = tmp_path / "core.py"
    file.write_text(
        "import no_such_package\n\n@no_such_package.register\n"
        "def twice(x: no_such_package.Tensor):\n    return given * x\n"
    )
    assert against.functions_of(file, ("twice",), given=2).twice(3) == 6


def test_nothing_to_compare_with(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["against.py"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    against.main()
    assert capsys.readouterr().out.startswith("nothing to compare with: pip install trl")


@pytest.mark.parametrize("case", against.CASES)
def test_the_losses_are_those_of_trl(case, trl_loss):
    assert against.difference(trl_loss, case, 4) < 1e-12


@pytest.mark.parametrize("case", against.CASES)
def test_the_losses_are_those_of_verl(case, verl_loss):
    """It adds 1e-8 to lengths, which shows where the terms of a loss nearly cancel."""
    assert against.difference(verl_loss, case, 4) < 1e-6


@pytest.mark.parametrize(("_", "changed", "variant"), against.TRL_DEFAULTS)
def test_a_default_of_trl_shows(_, changed, variant, trl_loss):
    assert against.difference(trl_loss, ("grpo", variant), 1, **changed) > 0.01


@pytest.mark.parametrize(("_", "changed", "variant"), against.VERL_DEFAULTS)
def test_a_default_of_verl_shows(_, changed, variant, verl_loss):
    assert against.difference(verl_loss, ("grpo", variant), 4, **changed) > 0.01


def test_a_whole_step_is_that_of_trl(trl_loss, capsys):
    """Adam divides by the root of a square, where entries of pure rounding become large."""
    apart = against_step.whole_step()
    assert apart["gradient norm"] < 1e-5
    assert apart["weights"] < 1e-3
    assert capsys.readouterr().out == ""

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
from runs import ROOT

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


# ------------------------------------------------------------------------------ whole steps


def test_both_are_told_the_same():
    """16 completions in two minibatches, twice: four updates, as two of 8 rows a generation."""
    config = against_step.config_of(Path("x"), against_step.CASES["gspo"])
    settings = against_step.settings_of(config, left="")
    assert (config.prompts_per_step, config.num_generations, config.minibatch_size) == (4, 4, 8)
    assert settings["per_device_train_batch_size"] == 8
    assert (settings["steps_per_generation"], settings["num_iterations"]) == (2, 2)
    assert settings["max_steps"] == 4
    assert (settings["epsilon"], settings["epsilon_high"]) == (3e-4, 4e-4)
    one = against_step.config_of(Path("x"), against_step.CASES["grpo, one update"])
    assert against_step.settings_of(one, left="")["max_steps"] == 1


def test_samples_of_a_rollout_of_trl():
    """Prompts are padded on the left with 0; 1 is the stop token. A masked row keeps its tokens."""
    rollout = dict(
        prompt_ids=torch.tensor([[0, 5], [6, 7], [6, 7]]),
        prompt_mask=torch.tensor([[0, 1], [1, 1], [1, 1]]),
        completion_ids=torch.tensor([[8, 1, 0], [8, 9, 1], [9, 9, 9]]),
        completion_mask=torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]]),
    )
    samples = against_step.samples_of(rollout, [1.0, 0.0, 0.5], stop=1)
    assert [sample.prompt_ids for sample in samples] == [[5], [6, 7], [6, 7]]
    assert [sample.completion_ids for sample in samples] == [[8, 1], [8, 9, 1], [9, 9, 9]]
    assert [sample.truncated for sample in samples] == [False, False, True]
    assert [sample.success for sample in samples] == [True, False, False]


def test_no_step_without_a_gradient():
    """Adam moves by its momentum where the gradient is 0, and this one does not."""
    moved = []
    for adam in (torch.optim.AdamW, against_step.StillWithoutGradient):
        weights = torch.nn.Parameter(torch.ones(2))
        optimizer = adam([weights], lr=0.1)
        weights.grad = torch.tensor([1.0, 0.0])
        optimizer.step()
        once = weights.detach().clone()
        assert not torch.equal(once, torch.ones(2))
        weights.grad = torch.zeros(2)
        optimizer.step()
        moved.append(not torch.equal(once, weights))
    assert moved == [True, False]


@pytest.mark.parametrize("name", against_step.CASES)
def test_whole_steps_are_those_of_trl(name, trl_loss, capsys):
    """Adam divides by the root of a square, where entries of pure rounding become large."""
    found = against_step.compare(against_step.CASES[name])
    assert found["gradient norm"] < 1e-5
    assert found["weights"] < 1e-3
    assert (found["clipped"] > 0.1) == (name != "grpo, one update")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("what", against_step.LEFT)
def test_a_default_of_trls_trainer_shows(what, trl_loss):
    case = against_step.CASES[against_step.LEFT[what]]
    assert against_step.compare(case, what)["weights"] > 0.01


def test_the_page_has_what_is_printed():
    """Each case, and each default, has a row in elsewhere.md."""
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    for name in against_step.CASES:
        assert f"\n| {name} | " in page
    for what in against_step.LEFT:
        assert f"\n| {what} | " in page

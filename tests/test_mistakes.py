"""Mistakes in an edited script: what ends the run at once, and with which words."""

import sys

import pytest
from runs import ROOT

ADVANTAGES = "advantages = advantages.view(-1, 1)"
# Each: a line of grpo.py, what it becomes, flags, and the error.
MISTAKES = [
    ("loss.backward()", "loss.detach().backward()", {}, RuntimeError, "does not require grad"),
    ("rewards.mean(1, keepdim=True)", "rewards.mean(1)", {}, RuntimeError, "must match"),
    (ADVANTAGES, "pass", {}, IndexError, "out of bounds"),
    (ADVANTAGES, "advantages = advantages.view(-1)", {}, RuntimeError, "must match"),
    ("advantages[rows],", "advantages,", {}, RuntimeError, "must match"),
    ("advantages[rows],", "advantages,", dict(microbatch_tokens=1), AssertionError, "clip_low is"),
    (
        "reference = rlvr.policy.load_reference(policy, config)",
        "reference = None",
        dict(beta=0.1),
        AssertionError,
        "--beta needs a reference",
    ),
    ("    scale_rewards: bool", "    scale: bool", {}, AttributeError, "scale_rewards"),
    ("return advantages, {}", "return advantages", {}, ValueError, "unpack"),
    (
        "return advantages, {}",
        'return advantages, {"p": batch.rewards.mean(1)}',
        {},
        TypeError,
        "not JSON serializable",
    ),
]


@pytest.mark.parametrize("line, becomes, flags, error, said", MISTAKES)
def test_a_mistake_ends_the_run(
    run, no_evaluation, tmp_path, monkeypatch, line, becomes, flags, error, said
):
    source = (ROOT / "grpo.py").read_text()
    assert source.count(line) == 1
    (tmp_path / "edited.py").write_text(source.replace(line, becomes))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "edited", raising=False)  # of the mistake before
    with pytest.raises(error, match=said):
        run("edited", num_generations=8, **flags)

"""docs/assignment/: the project's functions earn all points, and one-line mistakes lose some."""

import inspect
import runpy

import pytest
from mutants import MUTANTS, read
from runs import ROOT

import common
import grpo

GRADER = runpy.run_path(str(ROOT / "docs" / "assignment" / "grade.py"))
FUNCTIONS = (
    grpo.grpo_advantage,
    common.token_weights,
    common.ppo_clip_loss,
    common.pass_at_k,
    GRADER["grpo_update"],
)
SOURCE = "\n\n".join(map(inspect.getsource, FUNCTIONS))
OF_AN_UPDATE = [
    ("optimizer.zero_grad()", "pass"),
    ("weights[rows]", "common.token_weights(loss_mask[rows], 'sequence')"),
    ("        loss.backward()", "        loss.backward(); optimizer.step()"),
]
OF_THE_TABLE = [  # in what the assignment asks for: no KL penalty, no entropy, no GSPO
    (old, new)
    for name, _, _, pairs in read(MUTANTS)
    for old, new in pairs
    if name in ("common", "grpo") and SOURCE.count(old) == 1
    if not any(word in old for word in ("kl", "ref_", "entropy", "log_ratio.sum", "(ratio"))
]


def points(source: str, capsys) -> int:
    """What a file with this text earns."""
    names = dict(vars(common), common=common)
    exec(source.replace("def grpo_update(", "def update("), names)
    found = GRADER["grade"](names)
    assert f"{sum(found.values())} points of 20" in capsys.readouterr().out
    return sum(found.values())


def test_the_projects_own_functions_earn_all_points(capsys):
    assert points(SOURCE, capsys) == 20
    stubs = (ROOT / "docs" / "assignment" / "stubs.py").read_text()
    assert points(stubs, capsys) == 0


assert len(OF_THE_TABLE + OF_AN_UPDATE) >= 10


@pytest.mark.parametrize("right, wrong", OF_THE_TABLE + OF_AN_UPDATE)
def test_a_mistake_loses_points(capsys, right, wrong):
    assert points(SOURCE.replace(right, wrong), capsys) < 20

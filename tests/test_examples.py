"""studies/examples/rloo.py: another algorithm as a whole script."""

import pytest
import torch
from runs import ROOT, steps


def test_rloo_trains_by_its_own_function(run, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "studies" / "examples")
    import rloo

    # r_i less the mean of the other three
    found = rloo.rloo_advantage(torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    assert found[0].tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3])
    assert found[1].tolist() == [0.0] * 4
    assert run("rloo").code == 0
    assert steps("run") == [1, 2]

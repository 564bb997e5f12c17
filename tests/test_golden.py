"""Every case of golden.json: values that were computed independently, in float64."""

import json
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from groups import f64, near
from test_baselines import advantages_of

from fade import FadeController

HERE = {  # what it calls otherwise
    "agrae.controlled_advantage": "baseline_advantages.controlled_advantage",
    "common.kl_penalty": "losses.kl_penalty",
    "common.ppo_clip_loss": "losses.clip_loss",
    "fade.rank1_statistics": "rlvr.show.rank1_statistics",
}
CASES = json.loads((Path(__file__).parent / "golden.json").read_text())


def find(name):
    """What "module.function" names; a policy weight by its flags."""
    if found := re.fullmatch(r"fade\.POLICY_WEIGHTS\[(\w+)\]", name):
        return lambda rewards, **flags: advantages_of(rewards, advantage=found[1], **flags)
    return pkgutil.resolve_name(HERE.get(name, name))


def to_tensors(value):
    """Lists of numbers become float64 tensors; anything else stays what it is."""
    return f64(value) if isinstance(value, list) and not isinstance(value[0], str) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["function"])
def test_golden(case):
    name, kwargs, expected = case["function"], case["kwargs"], case["expected"]
    if name == "fade.FadeController.step":
        # kwargs are those of the constructor, and each row of the sequence is one call
        controller = FadeController(**kwargs)
        got = [controller.step(*row) for row in case["inputs"]["sequence"]]
    else:
        inputs = {key: to_tensors(value) for key, value in case["inputs"].items()}
        got = find(name)(**inputs, **kwargs)
    if isinstance(expected, dict):
        assert got == pytest.approx(expected, rel=0, abs=1e-9)
    else:
        near(torch.as_tensor(got, dtype=torch.float64), expected, atol=1e-9)

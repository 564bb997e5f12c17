"""Every case of golden.json: values that were computed independently, in float64."""

import importlib
import json
import re
from pathlib import Path

from rlvr.show import rank1_statistics

import losses
import pytest
import torch
from groups import f64, near

MOVED = {  # since golden.json was written
    "agrae.controlled_advantage": "baseline_advantages.controlled_advantage",
    "fade.POLICY_WEIGHTS[grpo]": "grpo.grpo_advantage",
}
CASES = json.loads((Path(__file__).parent / "golden.json").read_text())


def find(name):
    """What "module.function", "module.Class.method" or "module.TABLE[key]" names."""
    if name == "common.ppo_clip_loss":
        return lambda **given: losses.ppo_clip_loss(**given).loss
    if name == "common.kl_penalty":
        return losses.kl_penalty
    if name == "fade.rank1_statistics":
        return rank1_statistics
    name = MOVED.get(name, name).replace("fade.POLICY_WEIGHTS", "baseline_advantages.OF_SUCCESSES")
    module, *path = re.findall(r"\w+", name)
    found = importlib.import_module(module)
    for part in path:
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def to_tensors(value):
    """Lists of numbers become float64 tensors; anything else stays what it is."""
    return f64(value) if isinstance(value, list) and not isinstance(value[0], str) else value


def result_of(case):
    """What the project's own function gives for the inputs of a case."""
    name, kwargs = case["function"], case["kwargs"]
    if name == "fade.FadeController.step":
        # kwargs are those of the constructor, and each row of the sequence is one call
        controller = find("fade.FadeController")(**kwargs)
        return [controller.step(*row) for row in case["inputs"]["sequence"]]
    inputs = {key: to_tensors(value) for key, value in case["inputs"].items()}
    return find(name)(**inputs, **kwargs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["function"])
def test_golden(case):
    got, expected = result_of(case), case["expected"]
    if isinstance(expected, dict):
        assert got == pytest.approx(expected, rel=0, abs=1e-9)
    else:
        near(torch.as_tensor(got, dtype=torch.float64), expected, atol=1e-9)

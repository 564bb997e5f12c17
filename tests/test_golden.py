"""Every case of golden.json: values that were computed independently, in float64."""

import importlib
import json
import re
from pathlib import Path

import losses
import pytest
import torch

CASES = json.loads((Path(__file__).parent / "golden.json").read_text())
SCRIPTS = {"common", "grpo", "agrae", "asymgrpo", "fade", "cwgrpo"}


def find(name):
    """What "module.function", "module.Class.method" or "module.TABLE[key]" names."""
    if name == "common.ppo_clip_loss":
        return lambda **given: losses.ppo_clip_loss(**given).loss
    if name == "common.kl_penalty":
        return losses.kl_penalty
    module, *path = re.findall(r"\w+", name)
    assert module in SCRIPTS
    found = importlib.import_module(module)
    for part in path:
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def to_tensors(value):
    """Lists of numbers become float64 tensors; anything else stays what it is."""
    if isinstance(value, list) and not isinstance(value[0], str):
        return torch.tensor(value, dtype=torch.float64)
    return value


def result_of(case):
    """What the project's own function gives for the inputs of a case."""
    name, kwargs = case["function"], case["kwargs"]
    if name == "fade.FadeController.step":
        # kwargs are those of the constructor, and each row of the sequence is one call
        controller = find("fade.FadeController")(**kwargs)
        rows = [controller.step(*row) for row in case["inputs"]["sequence"]]
        return [[float(number) for number in row] for row in rows]
    inputs = {key: to_tensors(value) for key, value in case["inputs"].items()}
    if name.startswith("fade.POLICY_WEIGHTS"):
        # by position: each entry calls its rewards as it likes
        return find(name)(inputs["rewards"], **kwargs)
    return find(name)(**inputs, **kwargs)


def check(case):
    """The project's own function gives the values of the case."""
    got, expected = result_of(case), case["expected"]
    if isinstance(expected, dict):
        assert got == pytest.approx(expected, rel=0, abs=1e-9)
    else:
        got = torch.as_tensor(got, dtype=torch.float64)
        expected = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["function"])
def test_golden(case):
    check(case)


def test_a_group_of_equal_rewards_has_no_advantage_at_all():
    """Exactly 0, also where a running sum makes the mean of 0.7s 0.7000000000000001."""
    equal_groups = 0
    for case in CASES:
        if case["function"] == "grpo.grpo_advantage":
            rewards = to_tensors(case["inputs"]["rewards"])
            equal = (rewards == rewards[:, :1]).all(1)
            assert (result_of(case)[equal] == 0).all()
            equal_groups += int(equal.sum())
    assert equal_groups > 0


def test_golden_covers_every_script():
    """A file that lost its cases would otherwise pass."""
    assert {case["function"].split(".")[0] for case in CASES} == SCRIPTS
    assert len(CASES) == 180

"""Every case of golden.json: values that were computed independently, in float64."""

import json
import pkgutil
from pathlib import Path

import pytest
import torch
from groups import f64, near

from fade import FadeController

CASES = json.loads((Path(__file__).parent / "golden.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["function"])
def test_golden(case):
    name, kwargs, expected = case["function"], case["kwargs"], case["expected"]
    if name == "fade.FadeController.step":
        # kwargs are those of the constructor, and each row of the sequence is one call
        controller = FadeController(**kwargs)
        got = [controller.step(*row) for row in case["inputs"]["sequence"]]
    else:
        inputs = dict(case["inputs"])
        for key, value in inputs.items():  # a list of numbers becomes a tensor
            if isinstance(value, list) and not isinstance(value[0], str):
                inputs[key] = f64(value)
        got = pkgutil.resolve_name(name)(**inputs, **kwargs)
    if isinstance(expected, dict):
        assert got == pytest.approx(expected, rel=0, abs=1e-9)
    else:
        near(torch.as_tensor(got, dtype=torch.float64), expected, atol=1e-9)

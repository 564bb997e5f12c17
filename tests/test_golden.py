"""Every case of golden.json: inputs and expected values that were computed independently, in float64."""
import importlib
import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

CASES = json.loads((Path(__file__).parent / "golden.json").read_text())
SCRIPTS = {"common", "grpo", "agrae", "asymgrpo", "fade", "cwgrpo"}


def find(name):
    """The object that "module.function", "module.Class.method" or "module.DICT[key]" names."""
    module, *path = re.findall(r"\w+", name)
    assert module in SCRIPTS
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module}.py does not exist yet")
    found = importlib.import_module(module)
    for part in path:
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


def to_tensors(value):
    """Lists of numbers become float64 tensors; ints, floats and lists of strings stay what they are."""
    if isinstance(value, list) and not isinstance(value[0], str):
        return torch.tensor(value, dtype=torch.float64)
    return value


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case['function']}" for i, case in enumerate(CASES)])
def test_golden(case):
    name, kwargs, expected = case["function"], case["kwargs"], case["expected"]
    if name == "fade.FadeController.step":  # kwargs are the constructor's; one call a row of the sequence
        controller = find("fade.FadeController")(**kwargs)
        got = [controller.step(mean_reward, entropy) for mean_reward, entropy in case["inputs"]["sequence"]]
        assert len(got) == len(expected)
        torch.testing.assert_close(to_tensors([list(map(float, row)) for row in got]), to_tensors(expected),
                                   rtol=0, atol=1e-9)
        return
    inputs = {key: to_tensors(value) for key, value in case["inputs"].items()}
    if name.startswith("fade.POLICY_WEIGHTS"):
        got = find(name)(inputs["rewards"], **kwargs)  # by position: each entry calls its rewards as it likes
    else:
        got = find(name)(**inputs, **kwargs)
    if name == "common.ppo_clip_loss":
        got = got[0]  # the loss; the numbers of clipped tokens follow
    if isinstance(expected, dict):
        assert got == pytest.approx(expected, rel=0, abs=1e-9)
        return
    got, expected = torch.as_tensor(got, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    if name == "grpo.grpo_advantage":
        # Where all rewards of a row are 0.7, the file holds -1 (G = 8) and +1 (G = 16): a running sum makes their mean
        # 0.7000000000000001, and rounding noise was then divided by rounding noise. By definition such a group gets
        # exactly 0, as in the file's own case with G = 4.
        rewards = to_tensors(case["inputs"]["rewards"])
        equal = (rewards == rewards[:, :1]).all(1)
        assert (got[equal] == 0).all()
        expected[equal] = 0
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


def test_golden_covers_every_script():
    """A file that lost its cases would otherwise pass."""
    assert {case["function"].split(".")[0] for case in CASES} == SCRIPTS and len(CASES) == 180

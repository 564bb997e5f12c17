"""docs/lessons/: each runs unsolved, and its check tells a right solution from a wrong one."""

import importlib.util
import re
import sys

import pytest
from matplotlib.figure import Figure
from runs import ROOT, first_fast, left_as_it_was

FOLDER = ROOT / "docs" / "lessons"
PLACE = re.compile(r"^    \w+ = .*  # replace this with your formula\n", re.MULTILINE)
FOLDED = re.compile(r'lesson\.solutions\(\s*\w+,\s*"""(.*?)"""', re.DOTALL)
# Of each lesson: the values of the cell that takes its time, and a wrong solution.
LESSONS = {
    "4_two_axes": ("", "alpha = 1 / (2 * success_rate)"),
    "1_advantage": (
        "begun drawn chosen batch advantages before logprobs change",
        "advantages = rewards - rewards.mean(1, keepdim=True)",
    ),
    "2_entropy": ("results", "factor = success_rate**0.5"),
    "3_odds": ("begun batch kappa", "beta_pos = worth / ((1 - p) / p)"),
    "5_tokens": (
        "begun batch grouped logprobs mask advantages weights mixed",
        "weights = torch.ones_like(logprobs)",
    ),
}


def load(path):
    """The module of a lesson, which finds `lesson` beside it as Python's own start of it does."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("a_lesson", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def run_solved(name, solution, folder, values):
    """The lesson with a solution in its place. What takes time is taken from the unsolved run."""
    source = (FOLDER / f"{name}.py").read_text()
    assert len(PLACE.findall(source)) == 1
    indented = "".join(f"    {line.strip()}\n" for line in solution.strip().splitlines())
    path = folder / f"{name}.py"
    path.write_text(PLACE.sub(lambda _: indented, source))
    with left_as_it_was():
        load(path).app.run(defs={slow: values[slow] for slow in LESSONS[name][0].split()})


@pytest.mark.parametrize("name", first_fast(LESSONS))
def test_a_lesson_tells_right_from_wrong(name, tmp_path, capsys):
    """What is folded at its end is right."""
    with left_as_it_was():
        _, values = load(FOLDER / f"{name}.py").app.run()
    assert capsys.readouterr().out.startswith("Not yet: ")
    figures = [value for value in values.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:  # a script, which has no page, draws none
        figure.canvas.draw()
    (right,) = FOLDED.findall((FOLDER / f"{name}.py").read_text())
    for solution, says in ((right, "Right. "), (LESSONS[name][1], "Not yet: ")):
        run_solved(name, solution, tmp_path, values)
        assert capsys.readouterr().out.startswith(says)

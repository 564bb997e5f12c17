"""docs/lessons/: each runs unsolved, and its check tells a right solution from a wrong one."""

import contextlib
import functools
import importlib.util
import io
import re
import sys

import pytest
import torch
from matplotlib.figure import Figure
from runs import ROOT, arguments, first_fast, left_as_it_was, weights

import common
from grpo import grpo_advantage

FOLDER = ROOT / "docs" / "lessons"
PLACE = re.compile(r"^    \w+ = .*  # your formula in place of this one\n", re.MULTILINE)
FOLDED = re.compile(r'lesson\.solutions\(\s*\w+,\s*"""(.*?)"""', re.DOTALL)
# Of each lesson: the values of the cell that takes its time, a wrong solution, and what the check
# says of that.
LESSONS = {
    "4_two_axes": (
        (),
        "alpha = 1 / (2 * success_rate)",
        "alpha_for(0.125) is 4.000. With this alpha, the masses of fade_advantage are largest at "
        "the success rate 0.200",  # where the derivative of p (1 - p)^4 is 0
    ),
    "1_advantage": (
        ("begun", "drawn", "chosen", "batch", "advantages", "before", "logprobs", "change"),
        "advantages = rewards - rewards.mean(1, keepdim=True)",
        "your first advantage is 0.75, and the mean of the other three rewards is 0. You subtract "
        "the mean of all four",
    ),
    "2_entropy": (
        ("results",),
        "factor = success_rate**0.5",
        "at the success rate 0.1 your factor of 0.316 is too large",
    ),
    "3_odds": (
        ("begun", "batch", "kappa"),
        "beta_pos = worth / ((1 - p) / p)",
        "strength(0.125, 2.0) is 0.286. With this beta_pos, asymgrpo_advantage makes a success "
        "worth 1.744 there",  # 7 ** (2 / 7)
    ),
    "5_tokens": (
        ("begun", "batch", "grouped", "logprobs", "mask", "advantages", "weights", "mixed"),
        """
        c = (logprobs - logprobs.mean()) * (advantages - advantages.mean())
        weights = (-(c**2) / (2 * c.var(correction=0))).exp()
        """,
        "your weights sum to ",
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


@functools.cache
def run_unsolved(name):
    """What the lesson prints as it is shipped, and its values by name; run once for all tests."""
    with left_as_it_was(), contextlib.redirect_stdout(io.StringIO()) as printed:
        _, values = load(FOLDER / f"{name}.py").app.run()
    return printed.getvalue(), values


def run_solved(name, solution, folder):
    """The lesson with a solution in its place. What takes time is taken from the unsolved run."""
    source = (FOLDER / f"{name}.py").read_text()
    assert len(PLACE.findall(source)) == 1
    indented = "".join(f"    {line.strip()}\n" for line in solution.strip().splitlines())
    path = folder / f"{name}.py"
    path.write_text(PLACE.sub(lambda _: indented, source))
    values = run_unsolved(name)[1]
    with left_as_it_was():
        load(path).app.run(defs={slow: values[slow] for slow in LESSONS[name][0]})


@pytest.mark.parametrize("name", first_fast(LESSONS))
def test_a_lesson_tells_right_from_wrong(name, tmp_path, capsys):
    """What is folded at its end is right."""
    printed, values = run_unsolved(name)
    assert printed.startswith("Not yet: ")
    figures = [value for value in values.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:  # a script, which has no page, draws none
        figure.canvas.draw()

    _, wrong, says = LESSONS[name]
    (right,) = FOLDED.findall((FOLDER / f"{name}.py").read_text())
    run_solved(name, right, tmp_path)
    assert capsys.readouterr().out.startswith("Right. ")
    run_solved(name, wrong, tmp_path)
    said = capsys.readouterr().out
    assert said.startswith("Not yet: ") and says in said


@pytest.mark.slow
def test_an_update_is_that_of_grpo(bare, tmp_path):
    """One step of the lessons' loop, and one of `python grpo.py`: the same weights."""
    flags = dict(model="middle", prompts_per_step=4, num_generations=8, minibatch_size=16, seed=3)
    rest = dict(max_steps=1, eval_problems=2, eval_samples=2, num_threads=1, output_dir="run")
    result = bare("grpo", *arguments(**flags, **rest, cache_dir=tmp_path / "cache"))
    assert result.code == 0, result.err

    lesson = load(FOLDER / "lesson.py")
    begun = lesson.start(**flags, eval_problems=2)
    before = begun.policy.state_dict()["model.norm.weight"].clone()
    batch = common.roll_out(begun.sampler, begun.stream, begun.config)
    lesson.update(begun, batch, grpo_advantage(batch.rewards))
    after = begun.policy.state_dict()
    assert not torch.equal(after["model.norm.weight"], before)
    for name, weight in weights("run/checkpoint-1").items():
        assert torch.equal(weight, after[name]), name

"""docs/your-own.md, followed line by line in a copy of the project."""

import re
import shlex
import shutil

import pytest
from runs import ROOT, SMALL, arguments, rows, run_python, steps

PAGE = (ROOT / "docs" / "your-own.md").read_text()


def section(heading):
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def apply_diff(path, diff):
    """Put the added lines into a file, in place of what they replace; that stands there once."""
    lines = diff.splitlines()
    assert {line[0] for line in lines if line} <= {"+", "-", " "}
    before = "".join(line[1:] + "\n" for line in lines if line[:1] != "+")
    after = "".join(line[1:] + "\n" for line in lines if line[:1] != "-")
    text = path.read_text()
    assert ("\n" + text).count("\n" + before) == 1, before
    path.write_text(("\n" + text).replace("\n" + before, "\n" + after)[1:])


def follow(heading, folder):
    """Do in a copy of the project what an example says -> the command that trains.

    An example is some blocks below a heading; before the block of a file stands the file's name.
    """
    for file, language, text in re.findall(
        r"^(?:`([\w./-]+)`:\n\n)?```(\w+)\n(.*?)^```$", section(heading), re.M | re.S
    ):
        if language == "diff":
            apply_diff(folder / file, text)
        elif file:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        else:
            command = shlex.split(text.replace("\\\n", ""))
    return command


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """(the copy of the project that has all examples, heading -> the command that trains)."""
    folder = tmp_path_factory.mktemp("own") / "project"
    shutil.copytree(ROOT / "rlvr", folder / "rlvr", ignore=shutil.ignore_patterns("__pycache__"))
    for script in ROOT.glob("*.py"):
        shutil.copy(script, folder)
    shutil.copy(folder / "grpo.py", folder / "mine.py")
    return folder, {heading: follow(heading, folder) for heading in REWARDS}


COSTLY = {round(right - 0.01 * length, 2) for right in (0, 1) for length in range(1, 49)}
# of each example: the rewards that its completions may have
REWARDS = {"A reward": {0.0, 0.3, 1.0}, "A data set": {0.0, 1.0}, "A flag": COSTLY}
IN_A_COPY = ["A schedule", "A running average", "A loss mask"]  # of a script; one after the other
REWARDS |= dict.fromkeys([*IN_A_COPY, "A tool"], {0.0, 1.0})


def test_the_examples_fit_the_code(followed):
    """Each diff of the page applies."""
    _, commands = followed
    assert all("--max_steps" in command for command in commands.values())


@pytest.mark.slow
@pytest.mark.parametrize("heading", REWARDS)
def test_an_example_trains(heading, followed):
    """By the command of the page, with a smaller policy."""
    folder, commands = followed
    python, script, *given = commands[heading]
    assert python == "python"
    smaller = {name: value for name, value in SMALL.items() if f"--{name}" not in given}
    run = folder / "runs" / heading
    smaller |= dict(output_dir=run)
    done = run_python(script, *given, *arguments(**smaller), folder=folder)
    assert done.returncode == 0, done.stderr
    assert steps(run) == [1, 2]
    rewards = {round(sample["reward"], 2) for sample in rows(run, "samples")}
    assert rewards and rewards <= REWARDS[heading]
    if heading == "A tool":  # some answers are sent back
        assert all(row["turns"] > 1 for row in rows(run))


@pytest.mark.slow
def test_a_resume_continues_a_schedule_and_an_average(followed):
    """Three steps are two and one more, in which the loss counts some of the tokens."""
    folder, _ = followed
    flags = SMALL | dict(entropy_coef=0.01, decay_steps=4)

    def mine(**changed):
        return run_python("mine.py", *arguments(**flags | changed), folder=folder)

    mine(output_dir="whole", max_steps=3)
    mine(output_dir="parts", max_steps=2)
    again = mine(resume_from_checkpoint="parts", max_steps=3, decay_steps=5)
    assert again.returncode == 2 and "decay_steps" in again.stderr
    assert mine(resume_from_checkpoint="parts", max_steps=3).returncode == 0
    whole, parts = (rows(folder / name) for name in ("whole", "parts"))
    assert whole == parts
    assert [row["entropy_coef"] for row in parts] == [0.01, 0.0075, 0.005]
    average = 0.5
    for row in parts:
        average += 0.1 * (row["reward"] - average)
        assert row["average_reward"] == pytest.approx(average)
        assert 0 < row["loss_share"] < 1

"""docs/your-own.md, followed line by line in a copy of the project."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import torch
from runs import ENVIRONMENT, ROOT, SMALL, arguments, rows, steps

PAGE = (ROOT / "docs" / "your-own.md").read_text()
# An example is what stands below one of these headings: blocks, and before some the file's name.
EXAMPLES = ["A verifier", "A data set", "A flag", "A tool", "An advantage"]


def blocks_of(heading):
    """(language, text, file) of each block of an example; a file goes on for the blocks after."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    file = None
    for name, language, text in re.findall(
        r"^(?:`([\w./-]+)`:\n\n)?```(\w+)\n(.*?)^```$", section, re.M | re.S
    ):
        file = name or file
        yield language, text, file


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
    """Do in a copy of the project what an example says -> the commands that train."""
    commands = []
    for language, text, file in blocks_of(heading):
        if language == "diff":
            apply_diff(folder / file, text)
        elif language == "json":
            (folder / file).parent.mkdir()
            (folder / file).write_text(text)
        elif text.startswith("cp "):
            subprocess.run(shlex.split(text), cwd=folder, check=True)
        else:
            commands.append(shlex.split(text.replace("\\\n", "")))
    return commands


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """(the copy of the project that has all examples, heading -> the command that trains)."""
    folder = tmp_path_factory.mktemp("own") / "project"
    shutil.copytree(ROOT / "rlvr", folder / "rlvr", ignore=shutil.ignore_patterns("__pycache__"))
    for script in [*ROOT.glob("*.py"), *ROOT.glob("studies/*.py")]:
        copy = folder / script.relative_to(ROOT)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(script, copy)
    commands = {}
    for heading in EXAMPLES:
        (commands[heading],) = follow(heading, folder)
    return folder, commands


def run_in_copy(folder, *arguments):
    """Run Python in the copy of the project -> what it has printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def train(followed, cache_dir):
    """train(heading) runs the command of an example with a smaller policy -> the run folder."""
    folder, commands = followed

    def run_command(heading):
        python, script, *given = commands[heading]
        assert python == "python"
        smaller = {name: value for name, value in SMALL.items() if f"--{name}" not in given}
        run = folder / "runs" / heading
        smaller |= dict(cache_dir=cache_dir, output_dir=run)
        run_in_copy(folder, script, *given, *arguments(**smaller))
        assert steps(run) == [1, 2]
        return run

    return run_command


def flags_of(run):
    """The flags of a run, and the set of the rewards among its samples."""
    samples = (run / "samples.jsonl").read_text().splitlines()
    rewards = {json.loads(sample)["reward"] for sample in samples}
    return json.loads((run / "config.json").read_text()), rewards


@pytest.mark.slow
def test_a_verifier(train):
    """Its entry is all that `--verifier partly` needs."""
    flags, rewards = flags_of(train("A verifier"))
    assert flags["verifier"] == "partly"
    assert rewards
    assert rewards <= {1.0, 0.3, -0.5}


@pytest.mark.slow
def test_a_data_set(train):
    """Its row is all that `--dataset my-sums` needs."""
    flags, rewards = flags_of(train("A data set"))
    assert flags["dataset"] == "my-sums"
    assert rewards
    assert rewards <= {1.0, 0.3, -0.5}


@pytest.mark.slow
def test_a_flag(train):
    """A completion has 1 to 48 tokens, of which each costs 0.01."""
    flags, rewards = flags_of(train("A flag"))
    assert flags["length_penalty"] == 0.01
    assert {round(100 * reward) % 100 for reward in rewards} <= {*range(52, 100)}


@pytest.mark.longest
def test_a_tool_trains(train):
    """Its entry is all that `--tool compare` needs, and some answers are sent back."""
    run = train("A tool")
    assert json.loads((run / "config.json").read_text())["tool"] == "compare"
    assert all(row["turns"] > 1 for row in rows(run))


@pytest.mark.parametrize(
    "text, reply",
    [
        ("<think>7*8=56 56+1=57</think><answer>7*8+1</answer>", None),
        ("<think>7*8=56 56+1=57</think><answer>7*8-1</answer>", "<think>"),
        ("<think>7*8=57</think><answer>7*8</answer>", "<think>"),
        ("<answer>7*8</answer>", None),
        ("<think>1+1=2</think><answer>3</answer><think>1+2=3</think><answer>1+2</answer>", None),
    ],
)
def test_a_tool_by_hand(followed, text, reply):
    tool = load(followed[0] / "rlvr" / "tasks" / "tools.py").TOOLS["compare"]
    assert tool.reply(text) == reply
    assert text.endswith(tool.call_end)


@pytest.mark.slow
def test_an_advantage_trains(train):
    train("An advantage")


@pytest.mark.longest
def test_your_paper_in_twenty_minutes(followed):
    """The table of tiny runs has the rows of the table of the page."""
    folder, _ = followed
    quick, full = follow("Your paper in twenty minutes", folder)
    assert quick == [*full, "--quick"]
    rows = [line for line in PAGE.splitlines() if line.startswith(("| middle |", "| weak |"))]
    found = run_in_copy(folder, *quick[1:]).splitlines()
    names = [row.split(" | ")[:2] for row in found if row.startswith(("| middle |", "| weak |"))]
    assert names == [row.split(" | ")[:2] for row in rows]
    assert len(names) == 8


def test_an_advantage_by_hand(followed):
    """The means of the other rewards of 0.5, 1, 0 are 0.5, 0.25, 0.75."""
    advantages = load(followed[0] / "rloo.py").rloo_advantage(torch.tensor([[0.5, 1.0, 0.0]]))
    assert advantages.tolist() == [[0.0, 0.75, -0.75]]


@pytest.mark.parametrize(
    "answer, reward",
    [("<answer>3+9*5</answer>", 1.0), ("<answer>3+9</answer>", 0.3), ("3+9*5", None)],
)
def test_a_verifier_by_hand(followed, answer, reward):
    entry = load(followed[0] / "rlvr" / "tasks" / "verifiers.py").VERIFIERS["partly"]
    assert entry.verify(answer, "3 9 5 : 48 ") == reward
    assert entry.no_answer == -0.5


def load(path):
    """A module of the copy under a name of its own; what it imports is the project's."""
    spec = importlib.util.spec_from_file_location(f"copy_of_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module

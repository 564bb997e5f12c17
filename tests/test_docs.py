"""README.md, docs/ and the drawings of CONTRIBUTING.md say what the code has and does."""

import ast
import difflib
import importlib
import inspect
import math
import os
import pkgutil
import re
import shlex
import shutil
import sys
from unittest.mock import Mock

import rlvr
from rlvr.flags.command_line import ARITHMETIC, LARGE, parse
from rlvr.training import save_folder
from rlvr.verify.verifiers import VERIFIERS

import pytest
import torch
from groups import ppo_clip_loss
from runs import ROOT, SCRIPTS, SMALL, arguments, assert_finite, module_of, rows, run_python, steps

import common
import grpo

MODULES = {script: importlib.import_module(script) for script in SCRIPTS}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text() for page in PAGES}
README = TEXTS["README.md"]
FLAG_PAGE = "flags-and-metrics.md"


def tables(page, first_cell):
    """(heading above, cells) of each row of the page's tables whose first column is named so."""
    table = re.compile(rf"^\| *{first_cell} *\|.*\n\|[-|]+\n((?:\|.*\n)+)", re.M)
    for part in re.split("^#+ ", TEXTS[page], flags=re.M):
        for row in "".join(table.findall(part)).splitlines():
            cells = re.split(r"(?<!\\)\|", row.strip("|"))
            yield part.split("\n")[0], [cell.strip().replace(r"\|", "|") for cell in cells]


def anchors(text):
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_files_functions_and_tests_that_are_named_exist():
    others = "[AC]*.md", "docs/*/*.md", "studies/**/*.md"
    for page in [*PAGES, *(page for where in others for page in ROOT.glob(where))]:
        text = page.read_text()
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if link.startswith("https://arxiv.org/abs/"):
                continue
            link = re.sub(r"^https://.*/(?=docs/)", "", link)  # the hosted pages
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target.read_text()), link
        for path in re.findall(r"\b(?:docs|rlvr|studies|tests)/[\w/-]+\.\w+(?:\.gz)?", text):
            assert (ROOT / path).exists(), path
    assert all(f"(docs/{page.name}" in README for page in PAGES[1:])
    tests = "".join(page.read_text() for page in (ROOT / "tests").glob("test_*.py"))
    text = "\n".join(TEXTS.values())
    for name in re.findall(rf"`((?:common|rlvr|{'|'.join(SCRIPTS)})\.[\w.]+)`", text):
        assert name.endswith(".py") or pkgutil.resolve_name(name), name
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests or (ROOT / "tests" / f"{name}.py").exists(), name


def section(text, heading):
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_ten_lines_are_what_runs():
    """On two groups of four they give the loss of the functions that the scripts have."""
    (lines,) = re.findall(r"```python\n(.*?)```", section(README, "GRPO in ten lines"), re.S)
    rewards = torch.tensor([[1.0, 0, 0, 1], [1, 0, 0, 0]])
    logprobs, old = torch.arange(80, dtype=torch.float64).sin().view(2, 8, 5)
    mask = (torch.arange(5) < torch.tensor([1, 5, 2, 3, 4, 5, 1, 2])[:, None]).double()
    given = dict(torch=torch, rewards=rewards, epsilon=0.2, mask=mask, logprobs=logprobs)
    exec(lines, given | dict(old_logprobs=old), result := {})
    advantages = grpo.grpo_advantage(rewards).flatten()
    expected, *clipped = ppo_clip_loss(logprobs, old, advantages, mask)
    torch.testing.assert_close(result["loss"], expected)
    assert min(clipped) > 0
    # equal fractional rewards, whose std is a rounding error; an empty completion; infinite padding
    mask = mask[:3] * torch.tensor([[1], [1], [0]])
    logprobs, old = (x[:3].masked_fill(mask == 0, -math.inf) for x in (logprobs, old))
    given |= dict(mask=mask, logprobs=logprobs.requires_grad_(), old_logprobs=old)
    for last, wanted in ((0.9, 0.0), (math.nan, math.nan)):
        exec(lines, given | dict(rewards=torch.tensor([[0.9, 0.9, last]])), result := {})
        torch.testing.assert_close(result["loss"].item(), wanted, equal_nan=True)
    exec(lines, given | dict(rewards=torch.tensor([[1.0, 0, 0]])), result := {})
    (gradient,) = torch.autograd.grad(result["loss"], logprobs)
    assert gradient.any() and torch.equal(gradient, mask * gradient)


def test_verifiers_and_variants_are_those_of_the_tables():
    listed = [cells[0].strip("`") for _, cells in tables("real-models.md", "verifier")]
    assert sorted(listed) == sorted(VERIFIERS)
    for script, module in MODULES.items():
        listed = {
            variant: parse(module.Config, [] if flags == "none" else shlex.split(flags.strip("`")))
            for heading, (variant, flags, *_) in tables("papers.md", "variant")
            if re.search(rf"\b{script}\.py", heading)
        }
        assert listed == module.VARIANTS, script


def test_defaults_for_real_models():
    listed = {cells[0].strip("`-"): cells[1:] for _, cells in tables(FLAG_PAGE, "flag")}
    for column, preset in enumerate((LARGE, ARITHMETIC)):
        values = {name: row[column].strip("`") for name, row in listed.items() if row[column]}
        assert values == {name: str(value) for name, value in preset.items()}


def in_general(metric):
    """pass@4 -> pass@k, pass@4_se -> <metric>_se, covariance_positive_top_20% -> ..._top_X%."""
    metric = re.sub(r"^pass@\d+$", "pass@k", metric)
    metric = re.sub(r".*_se$", "<metric>_se", metric)
    return re.sub(r"_top_[\d.]+%$", "_top_X%", metric)


OFF_DEFAULTS = dict(model="untaught", max_steps=3, max_completion_length=8, eval_steps=2)
OFF_DEFAULTS |= dict(temperature=0.7, eval_temperature=0.6, top_p=0.9, beta=0.001)
# even a policy that writes at random calls a tool
OFF_DEFAULTS |= dict(mask_truncated_completions=True, tool="calculator")


def test_every_logged_metric_is_explained(run, tiny, tmp_path):
    save_folder(tmp_path / "untaught", *tiny)
    steps, evaluations = set(), set()
    for script in SCRIPTS:
        flags = OFF_DEFAULTS | (dict(log_gain=True) if script == "asymgrpo" else {})
        assert run(script, output_dir=script, **flags).code == 0
        assert_finite(script)
        assert [row["step"] for row in rows(script, "eval")] == [0, 2, 3]
        steps |= {in_general(key) for row in rows(script, timed=True) for key in row}
        evaluations |= {in_general(key) for row in rows(script, "eval") for key in row}
    explained = {"Metrics of a step": {"step"}, "Metrics of an evaluation": {"step"}}
    for heading, (metrics, *_) in tables(FLAG_PAGE, "metric"):
        explained[heading] |= {*re.findall("`([^`]+)`", metrics)}
    of_a_step, of_an_evaluation = explained.values()
    # tests/test_common.py and test_rollouts.py show them
    assert steps == of_a_step - {"sampler_gap", "memory", "crash", "true_reward", "length_right"}
    assert evaluations <= of_an_evaluation
    # Countdown on three numbers has one level
    rest = {"pass@1 <level>", "length_right"}
    assert of_an_evaluation <= evaluations | rest


def commands_of(text):
    """(script, what it is given, number of ranks) of the commands that run a script, but $flags."""
    scripts = "|".join([*SCRIPTS, "studies/baselines/baselines"])
    for launcher, script, given in re.findall(
        rf"\b(python|torchrun .*) ({scripts})\.py([^`#\n]*)", text.replace("\\\n", " ")
    ):
        if "$flags" not in given and given.strip() not in ("--help", "--list"):
            counts = re.findall(r"--(?:nproc_per_node|nnodes) (\d+)", launcher)
            known = given.replace("--model ...", "--model of/a-hub")
            yield script.rpartition("/")[2], shlex.split(known), math.prod(map(int, counts))


def test_commands_are_taken(parsed, monkeypatch):
    """All flags of a command, up to where a model, data or the run to resume are loaded."""
    texts = [module.__doc__ for module in MODULES.values()]
    # those of your-own.md need its edits, which are made below
    texts += [text for page, text in TEXTS.items() if page != "your-own.md"]
    commands = [*commands_of("\n".join(texts))]
    assert {script for script, _, _ in commands} == {*SCRIPTS, "baselines"}
    assert {ranks for _, _, ranks in commands} == {1, 2, 4, 8, 16}
    monkeypatch.setattr("rlvr.flags.config.open_gym", Mock())  # of a package that is an extra
    for script, given, ranks in commands:
        monkeypatch.setattr("rlvr.world.WORLD_SIZE", ranks)
        if "--resume_from_checkpoint" in given:
            parse(module_of(script).Config, given)
        else:
            parsed(script, *given)


def test_your_own_algorithm(run, tmp_path, monkeypatch):
    """Its function and its two lines, put where the README says, are a script that trains."""
    page = section(README, "Your own algorithm")
    (function,) = re.findall(r"```python\n(.*?)```", page, re.S)
    flag, call = re.findall(r"`((?:hardness:|advantages =) [^`]*)`", page)
    script = (ROOT / "grpo.py").read_text()
    for before, after in (
        ("def main(", function + "\n\ndef main("),
        ("\n\n\ndef configure(", f"\n    {flag}\n\n\ndef configure("),
        (re.search(r".*= grpo_advantage\(.*\n", script)[0], f"    {call}\n"),
    ):
        assert script.count(before) == 1
        script = script.replace(before, after)
    (tmp_path / "mine.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    assert run("mine", hardness=2, max_steps=1, max_completion_length=8).code == 0
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])  # p = 1/4
    advantages = importlib.import_module("mine").my_advantage(rewards, hardness=2)
    expected = 9 / 16 * torch.tensor([[3 / 4, -1 / 4, -1 / 4, -1 / 4]])
    assert torch.allclose(advantages, expected)


def test_the_programs_of_the_questions_print_what_stands_below_them(capsys):
    pairs = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", TEXTS["questions.md"], re.S)
    assert len(pairs) == 3
    for program, printed in pairs:
        exec(program, {})
        found, expected = (text.split() for text in (capsys.readouterr().out, printed))
        assert found == expected


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
    block = re.compile(r"^(?:`([\w./-]+)`:\n\n)?```(\w+)\n(.*?)^```$", re.M | re.S)
    for file, language, text in block.findall(section(TEXTS["your-own.md"], heading)):
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
    if heading in IN_A_COPY:  # which has all three of them
        average, schedule = 0.5, [0.01, 0.0075] if heading == "A schedule" else [0, 0]
        assert [row["entropy_coef"] for row in rows(run)] == schedule
        for row in rows(run):
            average += 0.1 * (row["reward"] - average)
            assert row["average_reward"] == pytest.approx(average)
            assert 0 < row["loss_share"] < 1


DIFFERING = dict(agrae=0, asymgrpo=3, fade=16, cwgrpo=16)  # lines


@pytest.mark.parametrize("script, differing", DIFFERING.items())
def test_the_mains_are_the_same_but_for_the_paper(script, differing):
    module = MODULES[script]
    of_grpo, other = (inspect.getsource(each.main).splitlines() for each in (grpo, module))
    lines = [*difflib.unified_diff(of_grpo, other, n=0, lineterm="")][2:]
    assert sum(line[0] in "+-" for line in lines) == differing
    if script in ("agrae", "cwgrpo"):  # which repeat it; a correction must reach all three
        assert inspect.getsource(module.grpo_advantage) == inspect.getsource(grpo.grpo_advantage)


def house():
    """The two drawings of CONTRIBUTING.md, line by line."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return [block.splitlines() for block in re.findall(r"```\n(.*?)```", text, re.S)]


def test_the_house_is_drawn_as_it_is():
    """Each line names all scripts and folders that its own import, and they stand below it."""
    lines, _ = house()
    drawn = {of: [*below.split()] for of, _, below in (line.partition(":") for line in lines)}
    line_of = {name: line for line in drawn for name in line.split()}
    folders = {path.parent.name for path in ROOT.glob("rlvr/*/__init__.py")}
    assert line_of.keys() == {*SCRIPTS, "common", *folders}
    found = {line: set() for line in drawn}
    for path in [*ROOT.glob("*.py"), *ROOT.glob("rlvr/*/**/*.py")]:
        file = path.relative_to(ROOT)
        line = line_of[file.parts[1] if file.parts[0] == "rlvr" else file.stem]
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            elif not isinstance(node, ast.Import):
                continue
            parts = [name.removeprefix("rlvr.").split(".")[0] for name in names]
            found[line] |= {part for part in parts if part in line_of and line_of[part] != line}
    assert found == {line: {*below} for line, below in drawn.items()}
    above = []  # a line names none of those
    for line, below in drawn.items():
        above += line.split()
        assert not {*above} & {*below}, line


def test_a_prompt_becomes_an_update_as_it_is_drawn():
    """Each function calls those below it, in their order."""
    _, lines = house()
    parents, calls = [], {}
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 4
        name = line.split()[0]
        parents[depth:] = [name]
        if depth:
            calls.setdefault(parents[depth - 1], []).append(name)
    assert [*calls] == ["main", "roll_out", "sample_groups"]
    for name, below in calls.items():
        source = inspect.getsource(getattr(grpo if name == "main" else common, name))
        ends = {}  # of a call, which ends after those in its arguments
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                callee = ast.unparse(node.func).split(".")[-1]
                end = node.end_lineno, node.end_col_offset
                ends[callee] = min(end, ends.get(callee, end))
        assert below == sorted(below, key=ends.__getitem__), name


@pytest.mark.parametrize(
    "module, absent",
    [
        ("rlvr.verify.grader", "torch transformers"),
        ("rlvr.verify.programs.solution", "torch rlvr.tasks rlvr.verify.pool"),
        # what answers --help and a wrong flag
        ("rlvr.flags.command_line", "torch transformers datasets sympy matplotlib"),
        ("grpo", "transformers torch._dynamo datasets sympy matplotlib"),
    ],
)
def test_what_a_start_waits_for(module, absent):
    loaded = run_python("-c", f"import sys, {module}; print(*sys.modules)", folder=ROOT).stdout
    assert module in loaded.split() and not {*loaded.split()} & {*absent.split()}


def test_threads_wait_without_spinning(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for expected in ("PASSIVE", "ACTIVE"):
        importlib.reload(rlvr)
        assert os.environ["OMP_WAIT_POLICY"] == expected
        monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")


@pytest.mark.slow  # it reads the types of torch and sympy
def test_types():
    """pyright finds no error in the scripts and in rlvr."""
    pytest.importorskip("pyright")
    done = run_python("-m", "pyright", "--pythonpath", sys.executable, folder=ROOT)
    assert done.returncode == 0, done.stdout

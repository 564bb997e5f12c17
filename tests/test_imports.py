"""How far the five mains differ, what a start waits for, and types."""

import ast
import difflib
import inspect
import re
import sys

import pytest
from runs import ROOT, SCRIPTS, run_python

import agrae
import asymgrpo
import common
import cwgrpo
import fade
import grpo


@pytest.mark.parametrize("module, differing", [(agrae, 0), (asymgrpo, 3), (fade, 16), (cwgrpo, 16)])
def test_the_mains_are_the_same_but_for_the_paper(module, differing):
    of_grpo, other = (inspect.getsource(each.main).splitlines() for each in (grpo, module))
    lines = [*difflib.unified_diff(of_grpo, other, n=0, lineterm="")][2:]
    assert sum(line[0] in "+-" for line in lines) == differing
    if module in (agrae, cwgrpo):  # which repeat it; a correction must reach all three
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


@pytest.mark.slow  # it reads the types of torch and sympy
def test_types():
    """pyright finds no error in the scripts and in rlvr."""
    pytest.importorskip("pyright")
    done = run_python("-m", "pyright", "--pythonpath", sys.executable, folder=ROOT)
    assert done.returncode == 0, done.stdout

"""The rules of imports: which folder imports which, and what a start waits for."""

import ast
import difflib
import inspect
import subprocess
import sys

import pytest
from runs import ENVIRONMENT, ROOT

import agrae
import cwgrpo
import grpo

# From the first to the last: a folder of rlvr imports from those after it alone.
ORDER = "training show rollout policy flags tasks verify machine".split()


def read_modules():
    """Name -> syntax tree of all modules of the project, beside tests and studies."""
    found = {}
    for path in [*ROOT.glob("*.py"), *ROOT.glob("rlvr/**/*.py")]:
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[dotted.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


MODULES = read_modules()


def folder_of(name):
    """The place in ORDER of the folder that a module of rlvr is in; None for other modules."""
    parts = name.split(".")
    return (
        ORDER.index(parts[1])
        if parts[0] == "rlvr" and len(parts) > 1 and parts[1] in ORDER
        else None
    )


def imports_of(name):
    """(module, names) of each import of a module; no names for `import module`."""
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]


@pytest.mark.parametrize("name", MODULES)
def test_folders_import_downwards(name):
    own = folder_of(name)
    for module, _ in imports_of(name):
        other = folder_of(module)
        assert own is None or other is None or own <= other, f"{name} imports {module}"


@pytest.mark.parametrize(
    "script, differing", [("agrae", 0), ("asymgrpo", 3), ("fade", 16), ("cwgrpo", 13)]
)
def test_the_mains_are_the_same_but_for_the_paper(script, differing):
    def main(name):
        (found,) = (node for node in MODULES[name].body if getattr(node, "name", "") == "main")
        return (ROOT / f"{name}.py").read_text().splitlines()[found.lineno : found.end_lineno]

    lines = difflib.unified_diff(main("grpo"), main(script), n=0, lineterm="")
    found = sum(line[0] in "+-" and line[:3] not in ("---", "+++") for line in lines)
    assert found == differing


@pytest.mark.parametrize("module", [agrae, cwgrpo])
def test_copies_of_grpo_advantage_are_copies(module):
    """Each script is read alone, so these repeat it; a correction must reach all three."""
    assert inspect.getsource(module.grpo_advantage) == inspect.getsource(grpo.grpo_advantage)


@pytest.mark.parametrize(
    "module, absent",
    [
        ("rlvr.verify.grader", {"torch", "transformers"}),
        ("rlvr.verify.programs.solution", {"torch", "rlvr.tasks", "rlvr.verify.pool"}),
    ],
)
def test_what_starts_often_loads_little(module, absent):
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {*done.stdout.split()}
    assert module in loaded
    assert not loaded & absent

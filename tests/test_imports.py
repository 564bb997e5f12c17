"""The rules of the house: who imports whom and by which door, and what a start waits for."""

import ast
import difflib
import importlib
import inspect
import subprocess
import sys

import pytest
from runs import ENVIRONMENT, ROOT, SCRIPTS

import agrae
import cwgrpo
import grpo

# From the first to the last: a room imports from those behind it alone.
ORDER = "training show rollout policy flags tasks verify verify.programs verify.answers machine"
ROOMS = [*ORDER.split(), "baselines"]


def read_modules():
    """Name -> syntax tree of all modules of the project, beside tests and studies."""
    found = {}
    for path in [*ROOT.glob("*.py"), *ROOT.glob("rlvr/**/*.py")]:
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[dotted.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


MODULES = read_modules()


def room_of(name):
    """The room that a module is in."""
    rooms = [room for room in ROOMS if f"{name}.".startswith(f"rlvr.{room}.")]
    return max(rooms, key=len, default=None)


def imports_of(name):
    """(module, names) of each import of a module; no names for `import module`."""
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, [alias.name for alias in node.names]


@pytest.mark.parametrize("name", MODULES)
def test_a_room_is_entered_by_its_door_and_downwards(name):
    """Files of one room import each other, and what is of another room comes by its door."""
    own = room_of(name)
    for module, names in imports_of(name):
        room = room_of(module)
        if room and own and room != own:
            assert ROOMS.index(own) < ROOMS.index(room), f"{own} imports {room}"
        if room and room != own and names:
            assert module == f"rlvr.{room}", f"{module} is not entered by its door"


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_door_lists_is_there(room):
    (call,) = [
        node
        for node in ast.walk(MODULES[f"rlvr.{room}"])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "door"
    ]
    names = " ".join(ast.literal_eval(keyword.value) for keyword in call.keywords).split()
    for name in names:
        getattr(importlib.import_module(f"rlvr.{room}"), name)


@pytest.mark.parametrize("name", MODULES)
def test_scripts_are_read_alone(name):
    """No module imports a script, and rlvr not common.py either."""
    found = {module for module, _ in imports_of(name)}
    assert not found & {*SCRIPTS}
    assert name in SCRIPTS or "common" not in found


@pytest.mark.parametrize("script", SCRIPTS[1:])
def test_the_mains_are_the_same_but_for_the_paper(script):
    def main(name):
        (found,) = (node for node in MODULES[name].body if getattr(node, "name", "") == "main")
        return (ROOT / f"{name}.py").read_text().splitlines()[found.lineno : found.end_lineno]

    lines = difflib.unified_diff(main("grpo"), main(script), n=0, lineterm="")
    assert sum(line[0] in "+-" and line[:3] not in ("---", "+++") for line in lines) <= 20


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

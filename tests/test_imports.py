"""The rules of the house: who imports whom, what stands where, and that everything is described."""

import ast
import re
import subprocess
import sys

import pytest
from runs import ENVIRONMENT, ROOT, SCRIPTS

TOP_LEVEL = {
    *(f"{script}.py" for script in SCRIPTS),
    "common.py",
    "rlvr",
    "studies",
    "docs",
    "tests",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "requirements.txt",
}


def read_modules():
    """Name -> syntax tree of all modules of the project, beside tests and studies."""
    found = {}
    for path in [*ROOT.glob("*.py"), *ROOT.glob("rlvr/**/*.py")]:
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[dotted.removesuffix(".__init__")] = ast.parse(path.read_text())
    return found


MODULES = read_modules()
PLUMBING = [name for name in MODULES if name.startswith("rlvr")]
TORCH_USERS = {"torch", "transformers", "tokenizers", "vllm"}


def statements(tree, late):
    """The import statements; with `late`, those within functions, too."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if late or not is_function:
            waiting += ast.iter_child_nodes(node)


def imports_of(name, late=True):
    """The modules that a module imports. `from rlvr import world` is an import of rlvr.world."""
    found = set()
    for node in statements(MODULES[name], late):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        assert node.level == 0, f"{name} imports by dots"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            found.add(inner if inner in MODULES else node.module)
    return found


def reached_from(name, late=True, packages=True):
    """The modules that are imported by a module, directly or not.

    With `packages`, importing rlvr.x counts as importing rlvr, too: Python runs its __init__.py.
    """
    found, waiting = set(), [*imports_of(name, late)]
    while waiting:
        current = waiting.pop()
        if current in found:
            continue
        found.add(current)
        if packages and "." in current:
            waiting.append(current.rpartition(".")[0])
        if current in MODULES:
            waiting += imports_of(current, late)
    return found


def definitions_of(name):
    """The names that a module itself gives a meaning: functions, classes and assignments."""
    found = set()
    for node in MODULES[name].body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


# ------------------------------------------------------------------------------ who imports whom


@pytest.mark.parametrize("name", PLUMBING)
def test_the_plumbing_imports_no_algorithm(name):
    """Not even within a function: what may be skipped does not depend on what is to be read."""
    assert not imports_of(name) & {"common", *SCRIPTS}


@pytest.mark.parametrize("name", ["common", *SCRIPTS])
def test_scripts_are_read_alone(name):
    """No script and not common.py imports a script, so that each can be copied beside common.py."""
    assert not imports_of(name) & {*SCRIPTS}


@pytest.mark.parametrize("name", MODULES)
def test_no_circle_of_imports(name):
    assert name not in reached_from(name, late=False, packages=False)


def test_the_only_circle_with_imports_inside_functions():
    """make_sampler imports the vLLM sampler, which is a GenerateSampler, when it is asked for."""
    in_circles = {name for name in MODULES if name in reached_from(name, packages=False)}
    assert in_circles == {"rlvr.samplers", "rlvr.vllm_sampler"}


@pytest.mark.parametrize("name", MODULES)
def test_a_name_is_imported_from_where_it_is_defined(name):
    """No module hands on what another one defines."""
    for node in statements(MODULES[name], late=True):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                is_module = f"{node.module}.{alias.name}" in MODULES
                assert is_module or alias.name in definitions_of(node.module), alias.name
                assert alias.asname is None


@pytest.mark.parametrize("name", MODULES)
def test_what_is_called_by_its_module_is_defined_there(name):
    """rlvr.x.y stands in rlvr/x.py, which is imported by who writes so; and so does common.y."""
    imported = imports_of(name)
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Attribute):
            module = ast.unparse(node.value)
            attribute = f"{module}.{node.attr}"
            if module in MODULES and attribute not in MODULES:
                assert module in imported, f"{attribute}, and no import of {module}"
                assert node.attr in definitions_of(module), attribute


def test_grade_is_the_name_that_others_use():
    assert "grade" in definitions_of("rlvr.tasks.pool")


# ----------------------------------------------------------------------------------- no torch


@pytest.mark.parametrize("name", [name for name in PLUMBING if name.startswith("rlvr.tasks")])
def test_the_tasks_need_no_torch(name):
    """Not even indirectly, so that a grader starts in half a second."""
    reached = {module.split(".")[0] for module in reached_from(name)}
    assert not reached & TORCH_USERS


def test_a_grader_does_not_load_torch():
    program = "import sys, rlvr.tasks.grader; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "rlvr.tasks.grader" in loaded
    assert not loaded & TORCH_USERS


@pytest.mark.parametrize("name", ["common", *SCRIPTS])
def test_rlvr_is_imported_before_torch(name):
    """rlvr/__init__.py sets how torch's threads wait, which torch reads when it is imported."""
    packages = [
        ast.unparse(node).split()[1].partition(".")[0]
        for node in MODULES[name].body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    assert packages.index("rlvr") < packages.index("torch")


# ------------------------------------------------------------------------------ what stands where


def test_the_top_level_holds_only_what_the_design_names():
    """Beside these there are dot-files, and what git ignores."""
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert found - {"__pycache__", "runs"} == TOP_LEVEL
    assert all((ROOT / name).is_dir() == ("." not in name) for name in TOP_LEVEL - {"LICENSE"})


@pytest.mark.parametrize("script", SCRIPTS)
def test_main_has_four_numbered_steps(script):
    """The comments of the steps, in their order, and word for word the same in all five scripts."""
    source = (ROOT / f"{script}.py").read_text()
    main = source[source.index("\ndef main(") :]
    steps = re.findall(r"^ +# (\d\. .+)$", main, re.MULTILINE)
    assert steps == [
        "1. Roll out: G graded completions for each of B prompts, N = B * G rows.",
        "2. Advantages: how much better is a completion than the others of its prompt?",
        "3. Update: PPO-clip against the policy that wrote the rollout.",
        "4. Log, evaluate, save.",
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_parses_its_flags_at_the_bottom(script):
    """Importing a script runs nothing, so that its functions can be tried by hand."""
    *rest, last = MODULES[script].body
    assert ast.unparse(last) == (
        "if __name__ == '__main__':\n"
        "    rlvr.run.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))"
    )
    described = ast.Expr  # the docstring
    allowed = (described, ast.Import, ast.ImportFrom, ast.Assign, ast.FunctionDef, ast.ClassDef)
    assert all(isinstance(node, allowed) for node in rest)


# ------------------------------------------------------------------------------------ docstrings


def public_definitions(tree):
    """(name, node) of the public functions, classes and methods of a module."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for name, inner in public_definitions(node):
                    yield f"{node.name}.{name}", inner


# A script's Config overrides these, whose docstrings are in rlvr/config.py.
OVERRIDDEN = {f"{script}.Config.{name}" for script in SCRIPTS for name in ("check", "may_change")}


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_a_docstring(name):
    assert ast.get_docstring(MODULES[name]), f"{name} has none"
    bare = [
        f"{name}.{inner}"
        for inner, node in public_definitions(MODULES[name])
        if not ast.get_docstring(node)
    ]
    assert {*bare} <= OVERRIDDEN

"""An editor, and so a student, can follow each name of the project from the scripts on."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest
from runs import ENVIRONMENT, ROOT, SCRIPTS

pytest.importorskip("pyright")
pytestmark = pytest.mark.slow  # it reads the types of torch and sympy


def names_of_the_project(file):
    """(module, name) of each name that a file imports from the project."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("rlvr"):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "common":
            yield ast.unparse(node.value), node.attr


def test_types(tmp_path):
    """pyright finds no error, and the type of each of these names."""
    files = [ROOT / f"{script}.py" for script in [*SCRIPTS, "common"]]
    names = {pair for file in files for pair in names_of_the_project(file)}
    lines = [f"from {module} import {name}; reveal_type({name})" for module, name in names]
    (tmp_path / "names.py").write_text("\n".join(lines))
    here = os.path.relpath(ROOT, tmp_path)  # `include` takes no absolute path
    config = {"extends": f"{ROOT}/pyproject.toml", "extraPaths": [str(ROOT)]}
    config["include"] = ["names.py", f"{here}/rlvr", f"{here}/*.py"]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", tmp_path
    done = subprocess.run([sys.executable, *command], env=ENVIRONMENT, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] > 70
    said = [each["message"] for each in found["generalDiagnostics"]]
    assert [text for text in said if not text.startswith("Type of ")] == []
    types = dict(re.match('Type of "(.*?)" is "(.*)"', text, re.S).groups() for text in said)
    assert types.keys() == {name for _, name in names}
    assert [name for name, kind in types.items() if kind in ("Any", "Unknown")] == []

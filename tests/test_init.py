"""What `import rlvr` settles before torch is imported, and what starts without torch."""

import importlib
import os
import subprocess
import sys

import rlvr

import pytest
from runs import ROOT


def python(code, **environment):
    """What a process of its own prints; None unsets a variable."""
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("given, expected", [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_unless_the_user_has_chosen(given, expected):
    code = "import rlvr, os; print(os.environ['OMP_WAIT_POLICY'])"
    assert python(code, OMP_WAIT_POLICY=given) == expected


def test_an_old_python_is_told_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    with pytest.raises(SystemExit) as ended:
        importlib.reload(rlvr)
    assert ended.value.code == 2
    written = capsys.readouterr().err
    assert written.startswith("Python 3.11 or newer is needed, and this is 3.")
    assert written.count("\n") == 1


def test_a_grader_starts_without_torch():
    """Torch would take seconds, and a grader is started anew after each one that hangs."""
    assert python("import sys, rlvr.verify.grader; print('torch' in sys.modules)") == "False"


def test_the_variables_of_torchrun():
    """They tell which process of how many this is; without them there is one process."""
    code = (
        "from rlvr import world; "
        "print(world.RANK, world.LOCAL_RANK, world.WORLD_SIZE, world.LOCAL_WORLD_SIZE)"
    )
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    given = dict(zip(names, ("5", "1", "8", "4"), strict=True))
    assert python(code, **given) == "5 1 8 4"
    assert python(code, **dict.fromkeys(names)) == "0 0 1 1"

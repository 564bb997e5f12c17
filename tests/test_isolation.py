"""Sandboxes: what a program cannot do in them, with bubblewrap and without it."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import rlvr.verify.pool as pool
import rlvr.verify.programs.code as code
import rlvr.verify.programs.isolation as isolation
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import load_problems

import pytest
from grading import ADD, block, grade_all, new_graders, traces
from programs import BEYOND_HOOKS, CHEATS, ENDLESS, REFUSED, STOPPED

# assertions that only this test knows, and that no constant fulfils
UNKNOWN = json.dumps(["assert add(2, 3) == 5", "assert add(40, 2) == 42", "assert not add(0, 0)"])


@pytest.fixture(
    scope="module", params=["fallback", pytest.param("bubblewrap", marks=pytest.mark.slow)]
)
def way(request, tmp_path_factory):
    """Graders of one way, which is skipped where the machine does not have it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "fallback":
            patch.setenv("PATH", str(tmp_path_factory.mktemp("no programs")))
        isolation.isolation.cache_clear()
        found, reason = isolation.isolation()
        if request.param == "bubblewrap" and found != "bubblewrap":
            pytest.skip(reason)
        with new_graders(tmp_path_factory.mktemp("scratch")):
            yield found
        isolation.isolation.cache_clear()


@pytest.fixture
def scratch(way):
    """Where these graders keep their temporary folders."""
    return Path(os.environ["TMPDIR"])


def question(program, output):
    """A program that has to write a text."""
    return ("code", block(program), json.dumps(dict(inputs=[""], outputs=[output])))


RIGHT = question("print(6)", "6")


def test_what_does_nothing_outside(scratch, tmp_path):
    """What a program comes upon by accident. The next programs are judged as ever."""
    tmp_path.chmod(0o777)
    mark = tmp_path / "marker"
    grade_all([question(action.replace("{mark}", str(mark)), "7") for action in REFUSED], 5)
    assert grade_all([RIGHT] * 2, 60) == [(1.0, "")] * 2
    assert traces(scratch, [mark]) == []


@pytest.mark.slow
def test_what_only_the_system_can_refuse(way):
    """Bubblewrap does. The fallback says at the start of a run that it does not."""
    if way != "bubblewrap":
        pytest.skip("open without bubblewrap, and said so")
    grader = pool.IDLE_GRADERS.get()
    pool.IDLE_GRADERS.put(grader)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        grade_all([question(each.replace("{port}", str(port)), "") for each in BEYOND_HOOKS], 3)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert grader.poll() is None
    assert grade_all([RIGHT] * 2, 60) == [(1.0, "")] * 2


def test_what_a_sandbox_shows(way):
    """Few of the machine's folders, none to write in but its own, and of processes its own.

    Packages are hidden: they may hold data sets with their tests.
    """
    if way != "bubblewrap":
        pytest.skip("the fallback hides nothing")
    needed = [os.path.realpath(sys.executable), sys.base_prefix, str(isolation.PROJECT)]
    seen = {path.split("/")[1] for path in needed}
    program = f"""
import os, sysconfig
packages = sysconfig.get_path('stdlib') + '/site-packages'
print(os.path.exists(packages) and os.listdir(packages) != [])
print({{'home', 'root', 'mnt', 'sys', 'bin'}} & {{*os.listdir('/')}} <= {seen})
print(os.path.exists({__file__!r}), os.path.exists('/usr/share/doc'))
print(len([name for name in os.listdir('/proc') if name.isdigit()]) <= 4)
print([path for path in ('/', '/usr/lib', '/dev/shm', os.__file__) if os.access(path, os.W_OK)])
open('own', 'w').write('x')
"""
    wanted = "False\nTrue\nFalse False\nTrue\n[]"
    assert pool.grade(question(program, wanted), 60, 60) == (1.0, "")


def test_cheats_score_0(way):
    """Each of them. No reply that one has forged counts for the programs after them."""
    found = grade_all([("code", block(cheat), UNKNOWN) for cheat in CHEATS], 3)
    assert [cheat for cheat, (reward, _) in zip(CHEATS, found, strict=True) if reward] == []
    right, wrong = (("code", block(each), UNKNOWN) for each in (ADD, ADD.replace("+", "-")))
    assert grade_all([wrong, right] * 2, 60) == [(0.0, ""), (1.0, "")] * 2


@pytest.mark.slow
def test_what_ends_early_and_what_has_no_end(scratch):
    """No test is passed, and nothing is left."""
    found = grade_all([question(f"{each}\nprint(7)", "7") for each in STOPPED + ENDLESS], 1)
    assert {reward for reward, _ in found} == {0}
    assert traces(scratch) == []


def test_the_limits_of_a_program(way):
    """It cannot lift them. The kernel ends it a second after its deadline if nobody else does."""
    names = ["AS", "CORE", "NOFILE", "FSIZE", "CPU", *["NPROC"] * (way != "limits")]
    program = f"""
import os, resource, signal
print([resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in {names}])
print(0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 61, os.getuid() == 0)
"""
    limits = [(each, each) for each in (2**30, 0, 64, 2**24, 61, 64)][: len(names)]
    is_root = way == "limits" and os.getuid() == 0
    assert pool.grade(question(program, f"{limits}\nTrue {is_root}"), 60, 60) == (1.0, "")


def test_bubblewrap_that_is_not_permitted(monkeypatch, tmp_path):
    """As in most containers: its reason is told, and the fallback is taken."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bwrap: No permissions >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    isolation.isolation.cache_clear()
    way, _ = isolation.isolation()
    assert way in ("user", "limits")
    assert "bubblewrap: bwrap: No permissions" in isolation.describe()


@pytest.mark.parametrize("command", ["/bin/false", "/no such program"])
def test_a_machine_that_starts_no_sandbox_any_more(command, monkeypatch):
    """The run ends, and no right program is trained on as a wrong one."""
    isolation.isolation()
    monkeypatch.setattr(isolation, "command", lambda *_: [command])
    with pytest.raises(UserError, match="no sandbox for a program starts any more"):
        code.verify_code(*RIGHT[1:], 60, 60)
    isolation.isolation.cache_clear()
    with pytest.raises(UserError, match="programs cannot be run here: bubblewrap: .*limits: "):
        isolation.isolation()
    isolation.isolation.cache_clear()


def test_a_run_with_programs_begins_with_the_line(tiny, tmp_path, capsys):
    """By rank 0, and only where there are programs."""
    for verifier, gold in [("code", "assert f(1) == 2"), ("math", "2")]:
        file = tmp_path / f"{verifier}.jsonl"
        file.write_text(json.dumps(dict(prompt="Why?", answer=gold)))
        load_problems(Config(eval_dataset=str(file), verifier=verifier, max_steps=0), tiny[1])
        assert (isolation.describe() in capsys.readouterr().out) == (verifier == "code")

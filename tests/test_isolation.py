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
from grading import (
    ADD,
    ASSERTIONS,
    block,
    grade_all,
    new_graders,
    solutions_alive,
    traces,
    wait_until,
)
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


def outputs(output):
    """A test without input."""
    return json.dumps(dict(inputs=[""], outputs=[output]))


RIGHT = ("code", block("print(6)"), outputs("6"))


def questions_of(action):
    """Programs that do something: at once, and in a call of a program that goes on after it."""
    inside = action.replace("\n", "\n        ")
    called = f"def add(a, b):\n    try:\n        {inside}\n    finally: return a + b"
    at_once = ("code", block(f"{action}\nprint(7)"), outputs("7"))
    return at_once, ("code", block(called), json.dumps(ASSERTIONS))


@pytest.fixture
def fill_in(tmp_path, scratch):
    """fill_in(template, name=value, ...) -> a program with the paths and numbers that it names.

    Afterwards {mark} is not there, and {kept}, which every user may write, is as it was.
    """
    tmp_path.chmod(0o777)
    mark, kept = tmp_path / "marker", tmp_path / "kept"
    kept.write_text("kept as it is")
    kept.chmod(0o666)

    def fill(template, **others):
        for name, value in dict(mark=mark, kept=kept, **others).items():
            template = template.replace(f"{{{name}}}", str(value))
        return template

    yield fill
    assert kept.read_text() == "kept as it is"
    assert traces(scratch, [mark]) == []


def test_what_does_nothing_outside(fill_in):
    """What a program comes upon by accident. The next programs are judged as ever."""
    actions = map(fill_in, REFUSED)
    grade_all([question for action in actions for question in questions_of(action)], 5)
    assert grade_all([RIGHT] * 2, 60) == [(1.0, "")] * 2


@pytest.mark.slow
def test_what_only_the_system_can_refuse(way, fill_in):
    """Bubblewrap does. The fallback says at the start of a run that it does not."""
    if way != "bubblewrap":
        pytest.skip("open without bubblewrap, and said so")
    grader = pool.IDLE_GRADERS.get()
    pool.IDLE_GRADERS.put(grader)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        actions = [fill_in(each, grader=grader.pid, port=port) for each in BEYOND_HOOKS]
        questions = [("code", block(action), outputs("kept as it is")) for action in actions]
        rewards = [reward for reward, _ in grade_all(questions, 3)]
        assert rewards == [0] * len(actions)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert os.sched_getscheduler(grader.pid) == os.SCHED_OTHER
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
print(any(os.access(path, os.W_OK) for path in ('/', '/usr/lib', '/dev/shm', os.__file__)))
print(os.getuid() != 0, dict(os.environ))
open('own', 'w').write('x')
print(sorted(os.listdir()))
"""
    in_tmp = {path.split("/")[2] for path in needed if path.startswith("/tmp/")}
    wanted = f"False\nTrue\nFalse False\nTrue\nFalse\nTrue {{}}\n{sorted({'own', *in_tmp})}"
    assert pool.grade(("code", block(program), outputs(wanted)), 60, 60) == (1.0, "")


def test_cheats_score_0(way):
    """Each of them. No reply that one has forged counts for the programs after them."""
    found = grade_all([("code", block(cheat), UNKNOWN) for cheat in CHEATS], 3)
    assert [cheat for cheat, (reward, _) in zip(CHEATS, found, strict=True) if reward] == []
    right, wrong = (("code", block(each), UNKNOWN) for each in (ADD, ADD.replace("+", "-")))
    assert grade_all([wrong, right] * 2, 60) == [(0.0, ""), (1.0, "")] * 2


@pytest.mark.slow
def test_what_ends_early_and_what_has_no_end(scratch):
    """No test is passed, and nothing is left."""
    questions = [questions_of(action)[0] for action in STOPPED + ENDLESS]
    assert [reward for reward, _ in grade_all(questions, 1)] == [0] * len(questions)
    assert traces(scratch) == []


@pytest.mark.slow
def test_a_program_ends_soon_after_its_grader(scratch):
    """At once with bubblewrap, and after its deadline without."""
    grader = pool.start_grader()
    sleeps = block("import time\ntime.sleep(600)")
    # after a first program, no solution is one that only tries what isolates it
    print(json.dumps([*RIGHT, 60, 60]), file=grader.stdin, flush=True)
    assert json.loads(grader.stdout.readline()) == [1.0, ""]
    print(json.dumps(["code", sleeps, outputs(""), 8, 8]), file=grader.stdin, flush=True)
    started = wait_until(lambda: len(solutions_alive(scratch)) > 1)  # it has a process of its own
    grader.kill()
    said, _ = grader.communicate()
    assert started, said
    assert wait_until(lambda: not solutions_alive(scratch))
    for folder in scratch.iterdir():  # which the grader could not remove
        folder.rmdir()


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

"""Sandboxes: what a program cannot do in them, with bubblewrap and without it."""

import json
import os
import sys
from unittest.mock import Mock

import rlvr.verify.pool as pool
import rlvr.verify.programs.code as code
import rlvr.verify.programs.isolation as isolation
from rlvr.errors import UserError

import pytest
from grading import ADD, block, grade_all, new_graders, traces

# What a program could do beyond its own process. {mark} is a file that it would make.
REFUSED = r"""
import os; os.fork() or os._exit(0)
import subprocess; subprocess.run(['touch', '{mark}'])
open('{mark}', 'w').write('x')
import os; os.kill(os.getppid(), 9)
import os; os.open('/dev/zero', os.O_WRONLY)
import os; os.open('/dev/zero', os.O_RDWR)
import os; os.open('/dev/zero', os.O_TRUNC)
import os; os.open('{mark}', os.O_CREAT)
import sqlite3; sqlite3.connect('{mark}')
import ctypes; ctypes.CDLL(None)
import socket; socket.socket().bind(('127.0.0.1', 0))
import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
""".strip().split("\n")

# Wrong programs that would pass `assert add(2, 3) == 5` and the like.
CHEATS = [
    "import os\ndef add(a, b): os._exit(0)",
    "def add(a, b): raise SystemExit",
    r"""
import os
def add(a, b):
    for fd in range(1, 64):
        for line in (b'true', b'[1.0, ""]', b'[5, [null, null]]'):
            try: os.write(fd, line + b'\n')
            except OSError: pass
    return 0""",
    """
import json, sys
for module in list(sys.modules.values()):
    if hasattr(module, 'encode'): module.encode = lambda *a: ['object', 0]
json.dumps = lambda *a: '"passed"'
def add(a, b): return 0""",
]
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


def question(program, output):
    return ("code", block(program), json.dumps(dict(inputs=[""], outputs=[output])))


RIGHT, SLOW = (question(f"{each}; print(6)", "6") for each in ("pass", "time.sleep(0.5)"))


def test_what_does_nothing_outside(way, tmp_path):
    """What a program comes upon by accident. The next programs are judged as ever."""
    tmp_path.chmod(0o777)
    mark = tmp_path / "marker"
    programs = [f"{action}\nprint(7)".replace("{mark}", str(mark)) for action in REFUSED]
    found = grade_all([question(program, "7") for program in programs], 5)
    assert way == "bubblewrap" or {reward for reward, _ in found} == {0}
    # the end of one does not end another one's user's processes
    assert grade_all([SLOW, *[RIGHT] * 3], 60) == [(1.0, "")] * 4
    assert traces(mark) == []


def test_what_a_sandbox_shows(way):
    """Few folders, none to write in but its own, and of processes and networks its own alone."""
    if way != "bubblewrap":
        pytest.skip("the fallback hides nothing")
    needed = [os.path.realpath(sys.executable), sys.base_prefix, str(isolation.SOLUTION)]
    seen = {path.split("/")[1] for path in needed}
    spaces = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("ipc", "net", "pid", "uts")}
    program = f"""
import os, sysconfig
packages = sysconfig.get_path('stdlib') + '/site-packages'  # they may hold sets with their tests
print(os.path.exists(packages) and os.listdir(packages) != [])
print({{'home', 'root', 'mnt', 'sys', 'bin'}} & {{*os.listdir('/')}} <= {seen})
print(os.path.exists({__file__!r}), os.path.exists('/usr/share/doc'))
print(os.statvfs('.').f_blocks * os.statvfs('.').f_frsize == 2**26)
print(len([name for name in os.listdir('/proc') if name.isdigit()]) <= 4)
print([p for p in ('/', '/usr/lib', '/dev/shm', os.__file__, packages) if os.access(p, os.W_OK)])
print([name for name, ours in {spaces}.items() if os.readlink('/proc/self/ns/' + name) == ours])
open('own', 'w').write('x')
"""
    wanted = "False\nTrue\nFalse False\nTrue\nTrue\n[]\n[]"
    assert pool.grade(question(program, wanted), 60, 60) == (1.0, "")


def test_cheats_score_0(way):
    """Each of them. No reply that one has forged counts for the programs after them."""
    found = grade_all([("code", block(cheat), UNKNOWN) for cheat in CHEATS], 3)
    assert [cheat for cheat, (reward, _) in zip(CHEATS, found, strict=True) if reward] == []
    right, wrong = (("code", block(each), UNKNOWN) for each in (ADD, ADD.replace("+", "-")))
    assert grade_all([wrong, right] * 2, 60) == [(0.0, ""), (1.0, "")] * 2


@pytest.mark.slow
def test_what_has_no_end(way):
    alarm = 2 * (way == "limits")
    endless = [f"from signal import *; os.setsid(); signal(15, 1); alarm({alarm}); sleep(200)"]
    endless += ["while True:\n    try:\n        while True: pass\n    except BaseException: pass"]
    endless += ["while True: print('7' * 1000)", "print(9 ** 9 ** 9)"]
    found = grade_all([question(f"{each}\nprint(7)", "7") for each in endless], 1)
    assert {reward for reward, _ in found} == {0}
    assert traces() == []


def test_the_limits_of_a_program(way):
    """It cannot lift them. The kernel ends it a second after its deadline if nobody else does."""
    rights = "0 in (os.getuid(), os.getgid(), *os.getgroups())"
    names = ["AS", "CORE", "NOFILE", "FSIZE", "CPU", *["NPROC"] * (way != "limits")]
    program = f"""
import os, resource, signal
print([resource.getrlimit(getattr(resource, 'RLIMIT_' + name)) for name in {names}])
print(0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 61, {rights})
print(open('/proc/self/oom_score_adj').read())
"""
    limits = [(each, each) for each in (2**30, 0, 64, 2**24, 61, 64)][: len(names)]
    is_root = way == "limits" and eval(rights)
    assert pool.grade(question(program, f"{limits}\nTrue {is_root}\n1000"), 50, 60) == (1.0, "")
    # nor can it end its tests: as root, they have another user
    tests = f"import os\nassert (user() != os.getuid()) == {way != 'limits' and os.getuid() == 0}"
    program = block("import os\ndef user(): return os.getuid()")
    assert pool.grade(("code", program, json.dumps(tests)), 60, 60) == (1.0, "")


def test_the_way_is_told_and_why_it_is_not_the_safest(way):
    described = isolation.describe()
    assert isolation.WAYS[way] in described
    assert (" does not work here (bubblewrap: " in described) == (way != "bubblewrap")


@pytest.mark.parametrize("seconds", [0.4, -1])
def test_a_reply_that_comes_bit_by_bit_is_late_as_a_whole(seconds):
    bits = "import time\nfor bit in '123456\\n': time.sleep(0.1); print(end=bit, flush=True)"
    worker = isolation.Worker([sys.executable, "-c", bits])
    with worker.socket, worker.process, pytest.raises(isolation.OutOfTime):
        worker.ask("", seconds)


@pytest.mark.parametrize(
    "command, reason",
    [
        (["/bin/false"], "no answer"),
        (["/-"], ".*No such"),
        (["/bin/sh", "-c", "echo first >&2; echo bwrap: No permissions >&2"], "bwrap: No perm"),
    ],
)
def test_a_machine_that_starts_no_sandbox_any_more(command, reason, monkeypatch):
    """For a program, or for its tests. No right program is trained on as a wrong one."""
    isolation.isolation()
    with monkeypatch.context() as patch, pytest.raises(UserError, match="for tests"):
        patch.setattr(code, "start_sandbox", Mock(side_effect=[Mock(), UserError("for tests")]))
        code.verify_code(block(ADD), UNKNOWN, 60, 60)
    monkeypatch.setattr(isolation, "command", lambda *_: command)
    with pytest.raises(UserError, match=f"cannot use a sandbox for a program: {reason}"):
        code.verify_code(*RIGHT[1:], 60, 60)
    isolation.isolation.cache_clear()
    with pytest.raises(UserError, match="programs cannot be run here: bubblewrap: .*limits: "):
        isolation.isolation()
    isolation.isolation.cache_clear()

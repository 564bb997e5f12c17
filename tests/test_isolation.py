"""Sandboxes: what a program cannot do in them, with bubblewrap and without it."""

import json
import os
import pwd
import queue
import shutil
import socket
import sys
import time
from pathlib import Path

from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.tasks import code, isolation, pool
from rlvr.tasks.datasets import load_problems

import pytest
from grading import ADD, ASSERTIONS, block, grade_all, new_graders, solutions_alive, traces
from programs import BEYOND_HOOKS, CHEATS, ENDLESS, REFUSED, STOPPED

RIGHT = ("code", block("print(6)"), json.dumps(dict(inputs=[""], outputs=["6"])))
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


def indent(program):
    return program.replace("\n", "\n    ")


def in_both_tests(action):
    """Questions whose programs do something: at once, in a call, and in a call that goes on."""
    called = f"def add(a, b):\n    {indent(action)}\n    return a + b"
    swallowed = f"try:\n    {indent(action)}\nexcept BaseException: pass\n{ADD}"
    return [
        ("code", block(f"{action}\nprint(7)"), json.dumps(dict(inputs=[""], outputs=["7"]))),
        ("code", block(called), json.dumps(ASSERTIONS)),
        ("code", block(swallowed), json.dumps(ASSERTIONS)),
    ]


# ------------------------------------------------------------------------------ beyond the sandbox


@pytest.fixture
def mark(request, tmp_path):
    """A new file in the folder that a test names: what a refused action must not make."""
    folders = {
        "temporary": tmp_path,
        "memory": Path("/dev/shm"),
        "home": Path(pwd.getpwuid(os.getuid()).pw_dir),
    }
    path = folders[request.param] / f"marker-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
def kept(tmp_path):
    """A file that every user may write, which programs have to leave as it is."""
    tmp_path.chmod(0o777)
    path = tmp_path / "kept"
    path.write_text("kept as it is")
    path.chmod(0o666)
    yield path
    assert path.read_text() == "kept as it is"


ONE_OF_EACH_KIND = ["fork", "subprocess", "open", "mkdir", "remove", "kill the parent"]


@pytest.mark.parametrize(
    "names, mark",
    [
        (ONE_OF_EACH_KIND, "temporary"),
        *(
            pytest.param([*REFUSED], folder, marks=pytest.mark.slow)
            for folder in ("temporary", "memory", "home")
        ),
    ],
    indirect=["mark"],
)
def test_what_does_nothing_outside(names, mark, kept, scratch):
    """What a program comes upon by accident. The next programs are judged as ever."""
    actions = [filled_in(template, mark, kept) for template in map(REFUSED.get, names)]
    start = time.monotonic()
    grade_all([question for action in actions for question in in_both_tests(action)], 5)
    assert time.monotonic() - start < 60
    assert traces(scratch, [mark]) == []
    assert grade_all([RIGHT] * 2, 30) == [(1.0, "")] * 2


def filled_in(template, mark, kept, **others):
    """A program with the paths and numbers that it names in braces."""
    for name, value in dict(mark=mark, kept=kept, **others).items():
        template = template.replace(f"{{{name}}}", str(value))
    return template


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["temporary"], indirect=True)
def test_what_only_the_system_can_refuse(way, mark, kept, scratch):
    """Bubblewrap does. The fallback says at the start of a run that it does not."""
    if way != "bubblewrap":
        pytest.skip("open without bubblewrap, and said so")
    grader = pool.IDLE_GRADERS.get()
    pool.IDLE_GRADERS.put(grader)
    with socket.create_server(("127.0.0.1", 0)) as server:
        numbers = dict(grader=grader.pid, port=server.getsockname()[1])
        actions = [filled_in(each, mark, kept, **numbers) for each in BEYOND_HOOKS.values()]
        questions = [("code", block(action), io("kept as it is")) for action in actions]
        rewards = [reward for reward, _ in grade_all(questions, 3)]
        assert rewards == [0] * len(actions)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert traces(scratch, [mark]) == []
    assert os.sched_getscheduler(grader.pid) == os.SCHED_OTHER
    assert grader.poll() is None
    assert grade_all([RIGHT] * 2, 30) == [(1.0, "")] * 2


def test_what_a_sandbox_shows(way):
    """Few of the machine's folders, none to write in but its own, and of processes its own."""
    if way != "bubblewrap":
        pytest.skip("the fallback hides nothing")
    program = """
import os
print({'home', 'root', 'mnt', 'sys', 'bin'} & {*os.listdir('/')} <= {NEEDED})
print(os.path.exists(TESTS), os.path.exists('/usr/share/doc'))
print(len([name for name in os.listdir('/proc') if name.isdigit()]) <= 4)
print(any(os.access(path, os.W_OK) for path in ('/', '/usr/lib', '/dev/shm', os.__file__)))
print(os.getuid() != 0, dict(os.environ))
open('own', 'w').write('x')
print(sorted(os.listdir()))
"""
    needed = [os.path.realpath(sys.executable), sys.base_prefix, str(isolation.PROJECT)]
    folders = ", ".join(repr(path.split("/")[1]) for path in needed)
    program = program.replace("{NEEDED}", f"{{{folders}}}").replace("TESTS", repr(__file__))
    in_tmp = {path.split("/")[2] for path in needed if path.startswith("/tmp/")}
    wanted = f"True\nFalse False\nTrue\nFalse\nTrue {{}}\n{sorted({'own', *in_tmp})}"
    assert pool.grade(("code", block(program), io(wanted)), 30) == (1.0, "")


def io(output):
    """A test without input."""
    return json.dumps(dict(inputs=[""], outputs=[output]))


def test_packages_are_hidden(way):
    """They may hold data sets with their tests."""
    if way != "bubblewrap":
        pytest.skip("the fallback hides nothing")
    program = """
import os, sysconfig
folder = sysconfig.get_path('stdlib') + '/site-packages'
print(os.path.exists(folder) and os.listdir(folder))
"""
    reward, _ = pool.grade(("code", block(program), io("[]")), 30)
    assert reward == 1 or pool.grade(("code", block(program), io("False")), 30)[0] == 1


# ------------------------------------------------------------------------------------ cheats


def test_cheats_score_0(way):
    """Each of them, with right programs between them that are judged as ever."""
    wrong = [("code", block(program), UNKNOWN) for program in CHEATS.values()]
    right = "code", block(ADD), UNKNOWN
    found = grade_all([each for question in wrong for each in (question, right)], 3)
    assert {name: found[2 * i][0] for i, name in enumerate(CHEATS)} == dict.fromkeys(CHEATS, 0)
    assert [reward for reward, _ in found[1::2]] == [1] * len(CHEATS)


def test_a_cheat_cannot_shift_the_rewards_after_it(way):
    """6 and 5 in turn for the gold 5, each by the same grader, after one that writes replies."""
    program = """
import os
for fd in range(1, 64):
    try: os.write(fd, b'[0, 1.0, ""]' + bytes([10]) * 9)
    except OSError: pass
"""
    grader = pool.IDLE_GRADERS.get()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "IDLE_GRADERS", queue.SimpleQueue())
        pool.IDLE_GRADERS.put(grader)
        assert pool.grade(("code", block(program), io("1.0")), 30)[0] == 0
        found = [pool.grade(("code", block(f"print({n})"), io("5")), 30)[0] for n in (6, 5, 6, 5)]
        assert pool.IDLE_GRADERS.get() is grader
    pool.IDLE_GRADERS.put(grader)
    assert found == [0, 1, 0, 1]


# ------------------------------------------------------------------------------------ ends


def rewards_of(actions):
    """Name -> the rewards of an action before the function that is wanted, and within it."""
    questions = []
    for action in actions.values():
        called = f"def add(a, b):\n    {indent(action)}\n    return a + b"
        for program in (f"{action}\n{ADD}", called):
            questions.append(("code", block(program), json.dumps(ASSERTIONS)))
    rewards = [reward for reward, _ in grade_all(questions, 1)]
    return dict(zip(actions, zip(rewards[::2], rewards[1::2], strict=True), strict=True))


@pytest.mark.slow
def test_what_ends_early(scratch):
    assert rewards_of(STOPPED) == dict.fromkeys(STOPPED, (0, 0))
    assert traces(scratch) == []


@pytest.mark.slow
@pytest.mark.parametrize("names", [["loop that catches all"], [*ENDLESS]])
def test_what_has_no_end(names, scratch):
    """It ends a second later, its deadline, or soon after."""
    start = time.monotonic()
    assert rewards_of({name: ENDLESS[name] for name in names}) == dict.fromkeys(names, (0, 0))
    assert time.monotonic() - start < 3.5 * len(names)
    assert traces(scratch) == []


def test_a_program_ends_soon_after_its_grader(scratch):
    """At once with bubblewrap, and after its deadline without."""
    grader = pool.start_grader()
    program = "import time\ntime.sleep(60)"
    grader.stdin.write(json.dumps([0, "code", block(program), io(""), 3, 3]) + "\n")
    grader.stdin.flush()
    # a busy machine may take long to import what a grader needs, and to try what isolates it
    started = wait_until(lambda: solutions_alive(scratch) != [], 2 * isolation.START_SECONDS)
    grader.kill()
    said, _ = grader.communicate()
    assert started, said
    assert wait_until(lambda: solutions_alive(scratch) == [], 10)
    for folder in scratch.iterdir():  # which the grader could not remove
        folder.rmdir()


def wait_until(condition, seconds):
    """Whether it is so within so many seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


# ------------------------------------------------------------------------------------ the choice


def test_the_line_at_the_start(way):
    """It names what is not held off, and why bubblewrap is not there."""
    line = isolation.describe()
    assert "\n" not in line
    if way == "bubblewrap":
        assert "bubblewrap" in line
    else:
        assert "bwrap is not installed" in line
        assert "does not hold off" in line
        assert isolation.OPEN_HOLES[way] in line


def test_bubblewrap_that_is_not_permitted(monkeypatch, tmp_path):
    """As in most containers: its reason is told, and the fallback is taken."""
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho bwrap: No permissions >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))
    isolation.isolation.cache_clear()
    way, reason = isolation.isolation()
    assert way in ("user", "limits")
    assert "bubblewrap: bwrap: No permissions" in reason
    isolation.isolation.cache_clear()


def test_no_way_works(monkeypatch):
    monkeypatch.setattr(isolation, "command", lambda *_: ["/bin/false"])
    isolation.isolation.cache_clear()
    with pytest.raises(UserError, match="programs cannot be run here: bubblewrap: .*limits: "):
        isolation.isolation()
    isolation.isolation.cache_clear()


@pytest.fixture
def refusals(monkeypatch):
    """Sandboxes do not start as often as the list has items, which each of them takes one of."""
    isolation.isolation.cache_clear()
    isolation.isolation()
    left = []
    command = isolation.command
    monkeypatch.setattr(
        isolation, "command", lambda *given: [left.pop()] if left else command(*given)
    )
    monkeypatch.setattr(isolation, "SECONDS_BEFORE_NEXT_START", 0.0)
    return left


@pytest.mark.parametrize("tests", [RIGHT, ("code", block(ADD), json.dumps(ASSERTIONS))])
def test_a_sandbox_that_starts_at_the_third_attempt(refusals, monkeypatch, tests):
    """A program is not wrong because the machine was short of processes for a moment."""
    monkeypatch.setattr(code, "IDLE_CHECKS", [])
    refusals += ["/bin/false", "/no such program"]
    _, text, gold = tests
    assert code.verify_code(text, gold, 30, 30) == 1.0
    assert refusals == []


def test_a_sandbox_that_does_not_start_any_more(refusals, monkeypatch):
    """Then the run ends, and no right program is trained on as a wrong one."""
    monkeypatch.setattr(isolation, "START_SECONDS", 0.0)
    refusals += ["/no such program"] * 1000
    _, text, gold = RIGHT
    message = "no sandbox for a program starts any more: .*No such file or directory"
    with pytest.raises(UserError, match=message):
        code.verify_code(text, gold, 30, 30)


def test_a_run_with_programs_begins_with_the_line(tiny, tmp_path, capsys):
    """By rank 0, and only where there are programs."""
    for verifier, gold in [("code", "assert f(1) == 2"), ("math", "2")]:
        rows = [json.dumps(dict(prompt=f"{n}?", answer=gold)) for n in range(8)]
        file = tmp_path / f"{verifier}.jsonl"
        file.write_text("\n".join(rows))
        config = Config(dataset=str(file), verifier=verifier, eval_problems=2)
        load_problems(config, tiny[1])
        assert (isolation.describe() in capsys.readouterr().out) == (verifier == "code")

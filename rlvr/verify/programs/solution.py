"""Run one program in a sandbox, and answer lines of JSON that ask it for something.

No expected output ever reaches this process, and the judge trusts nothing that leaves it.
"""

import builtins
import gc
import importlib
import json
import math
import operator
import os
import resource
import signal
import sys

from rlvr.verify.programs.values import decode, encode

# The modules that LeetCode, APPS and LiveCodeBench give a program, and those whose names they give.
USUAL = "copy datetime fractions io json operator random re statistics string sys time".split()
STARRED = "bisect collections functools heapq itertools math typing".split()
LIMITS = dict(AS=2**30, CORE=0, NOFILE=64)  # per process: bytes of memory, dumps, open files
MOST_PROCESSES = 64  # including threads
MOST_FILE = 2**24  # bytes; the output of a program is a file as well
# Families of audit events that reach beyond the program's own process, and harmless members.
REFUSED = {"os", "shutil", "subprocess", "socket", "ctypes", "sqlite3"}
HARMLESS = {"os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv", "socket.__new__"}


class Pipe:
    """Lines of JSON from and to the parent process, apart from standard input and output."""

    def __init__(self):
        self.incoming = os.fdopen(os.dup(0), encoding="utf-8")
        self.outgoing = os.fdopen(os.dup(1), "w", buffering=1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)

    def read(self):
        """Return the next line. Without one, end this process."""
        line = self.incoming.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def write(self, message) -> None:
        self.outgoing.write(json.dumps(message) + "\n")

    def ask(self, message):
        self.write(message)
        return self.read()


def start() -> tuple[Pipe, dict]:
    """Return the pipe and the job, and give up the rights that a program must not have."""
    pipe = Pipe()
    job = pipe.read()
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the kernel ends this process first
    limit(**LIMITS)
    if job["way"] != "limits":  # where the limit would count the user's own processes
        limit(NPROC=MOST_PROCESSES)
    if job["user"]:
        os.setgroups([])
        os.setgid(job["user"])
        os.setuid(job["user"])
    os.dup2(1, 2)
    os.environ.clear()
    sys.path.pop()
    pipe.write("ready")
    return pipe, job


def limit(**limits: int) -> None:
    """Set limits that a program cannot raise again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def main() -> None:
    """Run a program on each input, or run it once and answer calls of its functions."""
    pipe, job = start()
    give_usual_names(job["head"] + job["program"])
    if job["once"]:
        run(job, "solution")
        answer_calls(pipe)
    else:
        wait_for_input(pipe)
        run(job, "__main__")


def wait_for_input(pipe: Pipe) -> None:
    """Return in a new process for each input, with the input as its standard input.

    The waiting process sends [output, exit code].
    """
    gc.freeze()  # so that the new process ends in half the time
    while True:
        text = pipe.read()
        with open("input", "w+b") as given, open("output", "w+b") as said:
            os.unlink("input")
            os.unlink("output")
            given.write(text.encode(errors="replace"))
            given.seek(0)
            if os.fork() == 0:
                os.dup2(given.fileno(), 0)
                os.dup2(said.fileno(), 1)
                pipe.incoming.close()
                pipe.outgoing.close()
                return
            code = os.waitstatus_to_exitcode(os.wait()[1])
            said.seek(0)
            pipe.write([said.read().decode(errors="replace"), code])


def give_usual_names(program: str) -> None:
    """Give a program the usual imports as built-in names.

    Its own names and Python's come first, because math has another pow. Tests that look for a name
    of the program do not find these.
    """
    usual = {"exit": sys.exit, "quit": sys.exit}  # the module `site` usually defines them
    for name in STARRED:
        exec(f"import {name}\nfrom {name} import *", usual)
    for name in USUAL:
        if name.rstrip("s") in program.lower():  # importing them all takes 20 ms
            exec(f"import {name}", usual)
    if "fractions" in usual:
        exec("from fractions import Fraction", usual)
    builtins.__dict__.update(usual | builtins.__dict__)


def run(job: dict, name: str) -> None:
    """Run the head and then the program as the module `name`."""
    # A second more than the judge waits, so that the judge ends it first and reports a timeout.
    most_seconds = math.ceil(job["seconds"]) + 1
    limit(FSIZE=MOST_FILE, CPU=most_seconds)
    sys.setrecursionlimit(50_000)  # as LiveCodeBench does
    sys.set_int_max_str_digits(0)  # contests run Pythons without this limit
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = "solution.py"
    sys.argv = ["solution.py"]
    signal.alarm(most_seconds)  # in case the judge is killed
    if job["way"] != "bubblewrap":
        sys.addaudithook(refuse)
    for part in (job["head"], job["program"]):
        exec(compile(part, "solution.py", "exec", dont_inherit=True), vars(module))


def refuse(event: str, arguments: tuple) -> None:
    """Refuse processes, network and changes of files, as an audit hook. It only stops accidents."""
    refused = event.partition(".")[0] in REFUSED and event not in HARMLESS
    if event == "open":
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        refused = writes and not isinstance(path, int) and path != os.devnull
    if refused:
        raise PermissionError(f"{event} is not for programs")


def answer_calls(pipe: Pipe) -> None:
    """Make the calls that are asked for: [function, arguments, named arguments].

    The answer is [value, changed arguments, name of an exception, its arguments]. An object that is
    not a plain value stays here, and a number stands for it.
    """
    objects = {}

    def refer(value):
        objects[id(value)] = value
        return ["object", id(value)]

    def find(module, name):
        return operator.attrgetter(name)(importlib.import_module(module))

    others = {"object": objects.__getitem__, "global": find}
    while True:
        question = pipe.read()
        try:
            function, arguments, named = decode(question, others)
            result = function(*arguments, **named)
            given = question[2][1:]
            after = [encode(each, refer) for each in arguments]
            changed = {i: arguments[i] for i, each in enumerate(after) if each != given[i]}
            answer = encode([result, changed, "", ()], refer)
        except BaseException as error:
            kinds = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            answer = encode([None, {}, kinds[0].__name__, error.args], refer)
        pipe.write(answer)

"""What runs in a sandbox: one program, and the lines of JSON that ask it for something.

No expected output ever comes here, and the judge trusts nothing of what goes out. Whatever a
program does to this process, it can only change its own answers.
"""

import builtins
import gc
import importlib
import json
import math
import operator
import os
import resource
import sys

from rlvr.verify.programs.values import decode, encode

MOST_OUTPUT = 2**24  # bytes that a program may write to standard output
LIMITS = dict(AS=2**30, CORE=0, NOFILE=64)  # of each process: bytes of memory, dumps, open files
MOST_PROCESSES = 64  # threads are counted, too
MOST_FILE = 2**23  # bytes
# Families of audit events that reach beyond a program's own process, and their harmless members.
REFUSED = {"os", "shutil", "subprocess", "socket", "ctypes", "sqlite3"}
HARMLESS = {"os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv", "socket.__new__"}
# What LeetCode's own editor has imported for a solution.
USUAL_IMPORTS = """
import bisect, collections, copy, datetime, functools, heapq, itertools, json, math, operator
import random, re, statistics, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from typing import *
"""


class Pipe:
    """Lines of JSON from and to the process that started this one."""

    def __init__(self):
        """Move the pipe away from where a program reads and writes."""
        self.incoming = os.fdopen(os.dup(0), encoding="utf-8")
        self.outgoing = os.dup(1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        self.write("ready")

    def read(self):
        """The next line. This process ends where there is none."""
        line = self.incoming.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def write(self, message) -> None:
        """Send a line."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            data = data[os.write(self.outgoing, data) :]


def confine(rights: dict) -> None:
    """Give up what a program shall not have: the user, memory, processes, standard error."""
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, the kernel ends this process first
    limit(**LIMITS)
    if rights["counted"]:
        limit(NPROC=MOST_PROCESSES)
    if rights["user"]:
        os.setgroups([])
        os.setgid(rights["user"])
        os.setuid(rights["user"])
    os.dup2(1, 2)
    os.environ.clear()
    sys.path[:] = [path for path in sys.path if path != rights["project"]]


def limit(**limits: int) -> None:
    """Set limits of this process for good; a program cannot raise them again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def refuse(event: str, arguments: tuple) -> None:
    """An audit hook against accidents: no process, no network, no file is written or removed.

    It does not hold off a program that means to get around it.
    """
    refused = event.partition(".")[0] in REFUSED and event not in HARMLESS
    if event == "open":
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        refused = writes and not isinstance(path, int) and path != os.devnull
    if refused:
        raise PermissionError(f"{event} is not for programs")


def main() -> None:
    """Run a program on the inputs that come, or run it once and answer calls of its functions."""
    pipe = Pipe()
    job = pipe.read()
    confine(job)
    parts = [
        compile(part, "solution.py", "exec", dont_inherit=True)
        for part in (job["head"], job["program"])
    ]
    if not job["once"]:
        wait_for_input(pipe)
        run(parts, "__main__", job)
    else:
        space = run(parts, "solution", job, USUAL_IMPORTS if job["usual_imports"] else "")
        answer_calls(pipe, space)


def wait_for_input(pipe: Pipe) -> None:
    """Return in a new process for each input, which is its standard input.

    The process that waits sends [number, output, exit code].
    """
    gc.freeze()  # so that a process ends in half the time
    while True:
        number, text = pipe.read()
        with open("input", "w+b") as file:
            os.unlink("input")
            file.write(text.encode(errors="replace"))
            file.seek(0)
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.dup2(file.fileno(), 0)
                os.dup2(writing, 1)
                pipe.incoming.close()
                os.close(pipe.outgoing)
                os.close(reading)
                os.close(writing)
                return
        os.close(writing)
        output = bytearray()
        while len(output) <= MOST_OUTPUT and (part := os.read(reading, 2**16)):
            output += part
        os.close(reading)
        code = os.waitstatus_to_exitcode(os.wait()[1])
        pipe.write([number, output.decode(errors="replace"), code])


def run(parts: list, name: str, rights: dict, before: str = "") -> dict:
    """Run the parts of a program as the module `name` -> its names and their values."""
    # a second more than its judge waits, who shall be the first to end it, and call it a timeout
    most_seconds = math.ceil(rights["seconds"]) + 1
    limit(FSIZE=MOST_FILE, CPU=most_seconds)
    module = type(sys)(name)
    module.__file__ = "solution.py"
    vars(module).update(exit=sys.exit, quit=sys.exit)  # which the module `site` defines otherwise
    usual = {}
    exec(before, usual)
    # Behind the program's own names, which tests may ask for, and behind Python's: `math` has
    # another `pow`.
    vars(builtins).update({**usual, **vars(builtins)})
    sys.modules[name] = module
    sys.argv = ["solution.py"]
    if rights["guarded"]:
        import signal  # whose start costs more than it is worth with bubblewrap

        signal.alarm(most_seconds)  # for the case that the judge is killed
        sys.addaudithook(refuse)
    for part in parts:
        exec(part, vars(module))
    return vars(module)


def answer_calls(pipe: Pipe, space: dict) -> None:
    """Make the calls that are asked for: [number, function, arguments, named arguments].

    The answer is [number, "value", value, changed arguments], or [number, "raised", classes,
    arguments of the exception]. An object that is no plain value stays here, and its number stands
    for it.
    """

    def find(names):
        return {name: space[name] for name in names if name in space}

    def call_entry(name, *arguments):
        solution = space.get("Solution")
        is_method = isinstance(solution, type) and hasattr(solution, name)
        return (getattr(solution(), name) if is_method else space[name])(*arguments)

    objects = [find, call_entry]
    numbers = {}

    def number_of(value):
        if id(value) not in numbers:
            numbers[id(value)] = len(objects)
            objects.append(value)
        return ["object", numbers[id(value)]]

    def resolve(kind, *parts):
        if kind == "object":
            return objects[parts[0]]
        if kind == "global":
            module, name = parts
            return operator.attrgetter(name)(importlib.import_module(module))
        raise ValueError(f"no value is a {kind}")

    def answer(number, function, arguments, named):
        try:
            values = [decode(each, resolve) for each in arguments]
            named = {name: decode(each, resolve) for name, each in named.items()}
            result = encode(decode(function, resolve)(*values, **named), number_of)
            after = [encode(each, number_of) for each in values]
            changed = [[i, each] for i, each in enumerate(after) if each != arguments[i]]
            return [number, "value", result, changed]
        except BaseException as error:
            classes = [kind.__name__ for kind in type(error).__mro__]
            return [number, "raised", classes, [encode(each, number_of) for each in error.args]]

    while True:
        pipe.write(answer(*pipe.read()))

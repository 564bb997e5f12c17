"""What runs in a sandbox: a program, or the tests that judge one. It answers lines of JSON.

No expected output ever reaches a program's process, and the judge trusts nothing that leaves it.
"""

import builtins
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
from functools import partial
from typing import Any

# What LeetCode, APPS and LiveCodeBench import for a program, with all names of each module.
USUAL = "typing string re datetime collections heapq bisect copy math random statistics itertools "
USUAL += "functools operator io sys json time fractions"
# Families of audit events that reach beyond the program's own process, and harmless members.
REFUSED = {"os", "subprocess", "socket", "ctypes", "sqlite3"}
HARMLESS = {"os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv", "socket.__new__"}
# What crosses the pipe, by name, beside the scalars of JSON.
PLAIN = {kind.__name__: kind for kind in (dict, list, tuple, set, frozenset, bytes)}


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

    def ask(self, message):
        """Write a line, and return the next one."""
        self.outgoing.write(json.dumps(message) + "\n")
        return self.read()


def limit(**limits: int) -> None:
    """Set limits that a program cannot raise again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def main() -> None:
    """Give up the rights that a program must not have, and run one, or tests."""
    pipe = Pipe()
    job = pipe.read()
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out, the kernel ends this process first
    limit(AS=2**30, CORE=0, NOFILE=64)  # per process: bytes of memory, dumps, open files
    if job["way"] != "limits":  # where the limit would count the user's own processes
        limit(NPROC=64)  # including threads
    if job["user"]:
        os.setgroups([])
        os.setgid(job["user"])
        os.setuid(job["user"])
    os.dup2(1, 2)
    os.environ.clear()
    {"inputs": run_on_inputs, "calls": answer_calls, "tests": run_tests}[job["kind"]](pipe, job)


def run(job: dict, name: str, names: dict) -> dict:
    """Run a program's parts as the module `name`, which begins with `names`; return its names."""
    # A second more than the judge waits, so that the judge ends it first and reports a timeout.
    most_seconds = math.ceil(job["seconds"]) + 1
    limit(FSIZE=2**24, CPU=most_seconds)  # bytes; the output of a program is a file as well
    sys.setrecursionlimit(50_000)  # as LiveCodeBench does
    sys.set_int_max_str_digits(0)  # contests run Pythons without this limit
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = "solution.py"
    vars(module).update(names)
    signal.alarm(most_seconds)  # in case the judge is killed
    if job["way"] != "bubblewrap" and job["kind"] != "tests":
        sys.addaudithook(refuse)
    for part in job["parts"]:
        exec(compile(part, "solution.py", "exec"), vars(module))
    return vars(module)


def refuse(event: str, arguments: tuple) -> None:
    """Refuse processes, network and changes of files, as an audit hook. It only stops accidents."""
    refused = event.partition(".")[0] in REFUSED and event not in HARMLESS
    if event == "open":
        path, _, flags = arguments
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        refused = writes and not isinstance(path, int) and path != os.devnull
    if refused:
        raise PermissionError(f"{event} is not for programs")


def give_usual_names() -> None:
    """Give a program the usual imports as built-in names, which its own and Python's hide.

    Tests that look for a name of the program do not find these.
    """
    usual = {"quit": sys.exit}  # the module `site` usually defines it
    for name in USUAL.split():
        exec(f"import {name}\nfrom {name} import *", usual)
    exec("import bisect, copy, datetime, random, time", usual)  # not what they have of that name
    builtins.__dict__.update(usual | builtins.__dict__)


def run_on_inputs(pipe: Pipe, job: dict) -> None:
    """Run the program in a new process for each input, and answer with [output, exit code]."""
    give_usual_names()
    gc.freeze()  # so that the new process ends in half the time
    answer = "ready"
    while True:
        text = pipe.ask(answer)
        with open("input", "w+b") as input_file, open("output", "w+b") as output_file:
            os.unlink("input")  # which is faster than to empty the files for the next input
            os.unlink("output")
            input_file.write(text.encode(errors="replace"))
            input_file.seek(0)
            if os.fork() == 0:
                os.dup2(input_file.fileno(), 0)
                os.dup2(output_file.fileno(), 1)
                pipe.incoming.close()
                pipe.outgoing.close()
                run(job, "__main__", {})
                return
            code = os.waitstatus_to_exitcode(os.wait()[1])
            output_file.seek(0)
            answer = [output_file.read().decode(errors="replace"), code]


def encode(value):
    """Convert a value to JSON that names its types. A subclass becomes the plain type."""
    for name, kind in PLAIN.items():
        if isinstance(value, kind):
            parts = value.items() if isinstance(value, dict) else value
            return {name: [encode(part) for part in parts]}
    return value  # a scalar, or what JSON refuses


def decode(data) -> Any:
    """Convert back what `encode` has returned. This runs no code of the program."""
    if not isinstance(data, dict):
        return data
    [(name, parts)] = data.items()
    return PLAIN[name](map(decode, parts))


def answer_calls(pipe: Pipe, job: dict) -> None:
    """Run the program once, and answer each call [function, arguments] with its result.

    The arguments are a tuple and a dict. The function may be a method of the class Solution. An
    exception ends this process.
    """
    pipe.ask("ready")
    give_usual_names()
    names = run(job, "solution", {})
    answer = "running"
    while True:
        name, arguments = pipe.ask(answer)
        unnamed, named = decode(arguments)
        solution = names.get("Solution", object)
        function = getattr(solution(), name) if hasattr(solution, name) else names[name]
        answer = encode(function(*unnamed, **named))


def run_tests(pipe: Pipe, job: dict) -> None:
    """Say whether the tests run to their end. They ask the program for what it defines."""

    def ask(name, /, *arguments, **named):
        try:
            return decode(pipe.ask([name, encode((arguments, named))]))
        except Exception:
            pipe.ask(False)  # ends the tests, since one of them might catch the exception

    names, modules = pipe.ask("ready")
    known: dict = {name: partial(ask, name) for name in names}
    known["Solution"] = type("Solution", (), {"__getattr__": lambda _, name: partial(ask, name)})
    passed = True
    try:
        run(job, "__main__", known | {name: importlib.import_module(name) for name in modules})
    except SystemExit as end:
        passed = not end.code
    except BaseException:
        passed = False
    pipe.ask(passed)


if __name__ == "__main__":
    main()

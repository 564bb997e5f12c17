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
import signal
import sys

from rlvr.verify.programs.values import decode, encode

LIMITS = dict(AS=2**30, CORE=0, NOFILE=64)  # of each process: bytes of memory, dumps, open files
MOST_PROCESSES = 64  # threads are counted, too
MOST_FILE = 2**24  # bytes; what a program prints is a file, too
# Families of audit events that reach beyond a program's own process, and their harmless members.
REFUSED = {"os", "shutil", "subprocess", "socket", "ctypes", "sqlite3"}
HARMLESS = {"os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv", "socket.__new__"}


class Pipe:
    """Lines of JSON from and to the process that started this one."""

    def __init__(self):
        """Move the pipe away from where a program reads and writes."""
        self.incoming = os.fdopen(os.dup(0), encoding="utf-8")
        self.outgoing = os.fdopen(os.dup(1), "w", buffering=1)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)

    def read(self):
        """The next line. This process ends where there is none."""
        line = self.incoming.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    def write(self, message) -> None:
        """Send a line."""
        self.outgoing.write(json.dumps(message) + "\n")

    def ask(self, message):
        """Send a line -> the next one that comes."""
        self.write(message)
        return self.read()


def start() -> tuple[Pipe, dict]:
    """The pipe, and the job that comes first. What a program shall not have is given up.

    That is the user, memory, processes, the environment, standard error, and the project.
    """
    pipe = Pipe()
    job = pipe.read()
    if os.path.exists("/proc/self/oom_score_adj"):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # where memory runs out, the kernel ends this process first
    limit(**LIMITS)
    if job["way"] != "limits":  # there it would count the user's own processes
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
    """Set limits of this process for good; a program cannot raise them again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def main() -> None:
    """Run a program on the inputs that come, or run it once and answer calls of its functions."""
    pipe, job = start()
    if job["once"]:
        run(job, "solution")
        answer_calls(pipe)
    else:
        wait_for_input(pipe)
        run(job, "__main__")


def wait_for_input(pipe: Pipe) -> None:
    """Return in a new process for each input, which is its standard input.

    The process that waits sends [output, exit code].
    """
    gc.freeze()  # so that a process ends in half the time
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


def run(job: dict, name: str) -> None:
    """Run a program, behind the head of its function, as the module `name`."""
    # a second more than its judge waits, who shall be the first to end it, and call it a timeout
    most_seconds = math.ceil(job["seconds"]) + 1
    limit(FSIZE=MOST_FILE, CPU=most_seconds)
    usual = {"exit": sys.exit, "quit": sys.exit}  # which the module `site` defines otherwise
    exec(job["usual"], usual)
    # Behind the program's own names, which tests may ask for, and behind Python's: `math` has
    # another `pow`.
    vars(builtins).update(usual | vars(builtins))
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = "solution.py"
    sys.argv = ["solution.py"]
    signal.alarm(most_seconds)  # for the case that the judge is killed
    if job["way"] != "bubblewrap":
        sys.addaudithook(refuse)
    for part in (job["head"], job["program"]):
        exec(compile(part, "solution.py", "exec", dont_inherit=True), vars(module))


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


def answer_calls(pipe: Pipe) -> None:
    """Make the calls that are asked for: [function, arguments, named arguments].

    The answer is [value, changed arguments, name of an exception, its arguments]. An object that is
    no plain value stays here, and its number stands for it.
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

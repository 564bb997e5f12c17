"""Programs against unit tests: reading the tests, and running a solution under limits."""

import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def read_tests(gold: str) -> tuple[list[tuple[str, str]], str]:
    """Unit tests in JSON -> pairs of standard input and output, and assertions; one is empty.

    The forms are {"inputs": [...], "outputs": [...]}, [{"input": ..., "output": ...}, ...], and
    assertions as a string or a list. ValueError for others.
    """
    tests = json.loads(gold)
    if isinstance(tests, dict):
        both = zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=True)
        tests = [{"input": stdin, "output": output} for stdin, output in both]
    if tests and isinstance(tests, list) and all(isinstance(test, dict) for test in tests):
        pairs = [(test.get("input"), test.get("output")) for test in tests]
        if all(isinstance(part, str) for pair in pairs for part in pair):
            return pairs, ""
    lines = tests if isinstance(tests, list) else [tests]
    if lines and all(isinstance(line, str) and line.strip() for line in lines):
        return [], "\n".join(lines)
    raise ValueError("neither inputs and outputs nor assertions")


def has_tests(gold: str) -> bool:
    """Whether there are tests that can be run."""
    try:
        return any(read_tests(gold))
    except (ValueError, TypeError):
        return False


def verify_code(text: str, gold: str, seconds: float) -> float | None:
    """The last ```python block against the tests of read_tests, each in a process of its own.

    1.0 where all pass, else 0.0; None without a block. Output is compared word by word; assertions
    run after the program. subprocess.TimeoutExpired after so many seconds in all.
    """
    blocks = re.findall(r"```(?:python|py)\d?[ \t]*\n(.*?)```", text, re.S | re.I)
    if not blocks:
        return None
    end = time.monotonic() + seconds
    receipt = os.urandom(16).hex()  # printed after the assertions; a program cannot know it
    cases, assertions = read_tests(gold)
    source = f"{inspect.getsource(run_solution)}run_solution()"
    command = [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", source]
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/output", "w+b") as output:
        job = json.dumps([blocks[-1], assertions, receipt, math.ceil(seconds)])
        Path(folder, "job.json").write_text(job)
        for stdin, expected in cases or [("", receipt)]:
            output.truncate(0)
            output.seek(0)
            done = subprocess.run(
                command,
                input=stdin.encode(),
                env={},
                cwd=folder,
                stdout=output,
                stderr=subprocess.DEVNULL,
                timeout=max(0, end - time.monotonic()),
            )
            output.seek(0)
            words = output.read().decode(errors="replace").split()
            printed = words[-1:] if assertions else words
            if done.returncode or printed != expected.split():
                return 0.0
    return 1.0


def run_solution():
    """Run a program under limits, then its assertions, then print the receipt.

    The source of this function is what a process of its own runs. An audit hook, which nothing can
    take back, refuses other processes, the network, and all files but Python's own. That holds off
    what a policy comes upon, not an expert attacker: for such programs add a container.
    """
    import json
    import os
    import resource
    import sys

    with open("job.json") as file:
        program, assertions, receipt, seconds = json.load(file)
    for name, limit in dict(CPU=seconds, AS=2**30, FSIZE=2**20, CORE=0).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    # no audit hook hears of these
    for name in ("mkfifo", "mknod", "setsid", "setpgid", "pidfd_open"):
        for module in (os, sys.modules["posix"]):
            vars(module).pop(name, None)

    refused_imports = {
        "_ctypes",
        "_posixsubprocess",
        "_posixshmem",
        "_multiprocessing",
        "_sqlite3",
        "fcntl",
        "_dbm",
        "_gdbm",
        "_xxsubinterpreters",
        "_testcapi",
        "readline",
    }
    refused_families = {"os", "gc", "resource", "subprocess", "socket", "shutil", "ctypes"}

    def refuse(event, args):
        if event == "open":
            path, _, flags = args
            own = isinstance(path, str) and path.startswith(sys.base_prefix) and ".." not in path
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            refused = writes or not (own or path in (0, "/dev/stdin"))
        elif event == "import":
            refused = args[0] in refused_imports
        elif event == "object.__setattr__":
            refused = args[1] == "__code__"
        else:
            harmless = event in {"os.listdir", "os.scandir"}
            refused = event.split(".")[0] in refused_families and not harmless
        if refused:
            raise PermissionError(f"{event} is not for solutions")

    sys.addaudithook(refuse)
    space = {"__name__": "__main__", "exit": sys.exit, "quit": sys.exit}
    exec(compile(program, "solution.py", "exec"), space)
    if assertions:
        exec(compile(assertions, "tests.py", "exec"), space)
        print(f"\n{receipt}")

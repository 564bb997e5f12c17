"""Sandboxes: processes for programs that nobody has read, and for the tests that judge them.

The operating system isolates them: bubblewrap where it is installed and may be used, else another
user where this one is root, else limits alone. docs/real-models.md says what each leaves open.
"""

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from rlvr.errors import UserError

PROJECT = Path(__file__).parents[3]  # where a process of its own finds this package
WAYS = ["bubblewrap", "user", "limits"]  # from the safest on
START_SECONDS = 30.0  # a busy machine may take that long to start an interpreter
MOST_REPLY = 2**26  # bytes


class Sandbox:
    """A process that runs a module of this room, and is asked by lines of JSON."""

    def __init__(self, module: str, way: str | None = None, **job):
        """Start it in the given way, or the safest, and send it the job; OSError where it fails."""
        way = way or isolation()[0]
        self.user = None
        if os.getuid() == 0 and way != "limits":
            # Of the range for services' passing users. A program and its check do not share one,
            # and graders seldom do.
            self.user = 61_184 + os.getpid() % 2000 * 2 + (module == "check")
        self.kills_user = way == "user"
        self.folder = None
        if way != "bubblewrap" and module == "solution":
            self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            os.chmod(self.folder.name, 0o777)
        self.received = b""
        self.process = subprocess.Popen(
            command(way, module),
            bufsize=0,
            env={},
            cwd=self.folder.name if self.folder else "/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        os.set_blocking(self.process.stdin.fileno(), False)
        os.set_blocking(self.process.stdout.fileno(), False)
        end = time.monotonic() + START_SECONDS
        try:
            if self.receive(end) != "ready":
                raise EOFError
            rights = dict(counted=way != "limits", guarded=way != "bubblewrap")
            self.send({**job, **rights, "project": str(PROJECT), "user": self.user}, end)
        except (EOFError, ValueError, TimeoutError):
            self.process.kill()
            reason = self.process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise OSError(reason.rpartition("\n")[2] or "no answer") from None

    def ask(self, message, end: float):
        """Send a message -> the reply; TimeoutError after `end`, EOFError where there is none."""
        self.send(message, end)
        return self.receive(end)

    def send(self, message, end: float) -> None:
        """Send a message before time.monotonic() is `end`."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:
            if not select.select([], [self.process.stdin], [], max(0, end - time.monotonic()))[1]:
                raise TimeoutError
            try:
                data = data[os.write(self.process.stdin.fileno(), data) :]
            except BrokenPipeError:
                raise EOFError from None

    def receive(self, end: float):
        """The next message. It may be anything that JSON holds: a program can write it.

        EOFError where the process has ended, ValueError for what is no JSON or has no end.
        """
        parts = [self.received]
        size = 0
        while b"\n" not in parts[-1]:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError
            parts.append(os.read(self.process.stdout.fileno(), 2**20))
            size += len(parts[-1])
            if not parts[-1]:
                raise EOFError
            if size > MOST_REPLY:
                raise ValueError("a reply without end")
        line, _, self.received = b"".join(parts).partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """End the process and what it has started, as far as the system lets it be found."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.kills_user:
            end_processes_of(self.user)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()
        if self.folder:
            self.folder.cleanup()


def start_sandbox(module: str, **job) -> Sandbox:
    """A sandbox; UserError where the machine does not start one: no program is wrong for that."""
    try:
        return Sandbox(module, **job)
    except OSError as error:
        raise UserError(f"no sandbox for a program starts any more: {error}") from error


def end_processes_of(user: int) -> None:
    """Kill every process of a user; another process becomes that user to do it."""
    child = os.fork()
    if child == 0:
        try:
            os.setuid(user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def command(way: str, module: str) -> list[str]:
    """The command line of a sandbox. An interpreter without site-packages sees the project."""
    start = f"import sys; sys.path.append({str(PROJECT)!r}); "
    start += f"from rlvr.verify.programs import {module}; {module}.main()"
    interpreter = os.path.realpath(sys.executable)
    python = [interpreter, "-I", "-S", "-B", "-X", "utf8", "-c", start]
    if way != "bubblewrap":
        return python
    stdlib = sysconfig.get_path("stdlib")
    seen = [interpreter, f"{sys.base_prefix}/lib", f"{sys.base_exec_prefix}/lib", stdlib]
    seen += ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime"]
    seen += ["/usr/share/zoneinfo", f"{PROJECT}/rlvr"]
    # packages may hold data sets
    hidden = [f"{stdlib}/site-packages", f"{stdlib}/dist-packages", "/usr/lib/python3"]
    unshared = "--unshare-all"
    if os.getuid() == 0:  # and becomes another user inside, which a user namespace would not know
        unshared = "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
        unshared += "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
    arguments = f"--die-with-parent {unshared} --proc /proc --dev /dev".split()
    arguments += f"--perms 1777 --size {2**26} --tmpfs /tmp".split()
    parents = {str(parent) for path in seen for parent in Path(path).parents}
    for folder in sorted(parents - {"/"}):  # as root, bubblewrap would open them to root alone
        arguments += ["--perms", "0755", "--dir", folder]
    for path in dict.fromkeys(seen):
        arguments += ["--ro-bind-try", path, path]
    for path in filter(os.path.isdir, hidden):
        arguments += ["--tmpfs", path, "--remount-ro", path]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise OSError("bwrap is not installed")
    return [bubblewrap, *arguments, *python]


@functools.cache
def isolation() -> tuple[str, str]:
    """The safest way that works on this machine, and why a safer one does not."""
    reasons = []
    for way in WAYS:
        if way == "user" and os.getuid() != 0:
            continue
        try:
            program = "import threading\nthreading.Thread(target=print, args=[input()]).start()"
            job = dict(head="", program=program, once=False, seconds=START_SECONDS)
            end = time.monotonic() + START_SECONDS
            with contextlib.closing(Sandbox("solution", way, **job)) as sandbox:
                if sandbox.ask([0, "works"], end) == [0, "works\n", 0]:
                    return way, "; ".join(reasons)
            reasons.append(f"{way}: a program does not run")
        except (OSError, EOFError) as error:
            reasons.append(f"{way}: {error}")
    raise UserError(f"programs cannot be run here: {'; '.join(reasons)}")


def describe() -> str:
    """A line for the start of a run: how programs are isolated."""
    way, reason = isolation()
    if way == "bubblewrap":
        return "programs run in bubblewrap"
    name = "as another user" if way == "user" else "under limits alone"
    return (
        f"programs run {name}, since bubblewrap does not work here ({reason}): install it, or run "
        "everything in a container; docs/real-models.md says what a program can reach so"
    )

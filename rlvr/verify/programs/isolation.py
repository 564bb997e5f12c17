"""Sandboxes: processes for untrusted programs and for the tests that judge them.

The system isolates them by bubblewrap if it is installed and allowed, else as another user if this
one is root, else by limits alone. docs/real-models.md says what each leaves open.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from rlvr.errors import UserError, using

SOLUTION = Path(__file__).with_name("solution.py")  # all of the project that a sandbox sees
# from the safest on
WAYS = {"bubblewrap": "in bubblewrap", "user": "as another user", "limits": "under limits alone"}
START_SECONDS = 30.0  # a busy machine may take that long to start an interpreter
MOST_REPLY = 2**26  # bytes


class OutOfTime(TimeoutError):
    """A sandbox has not answered in time. No exception of a program ever becomes this one."""


class Worker:
    """A process that answers each line of JSON with another."""

    def __init__(self, command: list[str], **options):
        """Start it in a session of its own, so that Ctrl-C does not reach it."""
        self.socket, theirs = socket.socketpair()
        with theirs:
            pipes = dict(stdin=theirs.fileno(), stdout=theirs.fileno())
            self.process = subprocess.Popen(command, start_new_session=True, **pipes, **options)

    def ask(self, message, seconds: float):
        """Send a message and return the reply, which may be any JSON.

        Raise OutOfTime without one, an OSError if the process has ended or writes without end, and
        a ValueError for a reply that is not JSON.
        """
        end = time.monotonic() + seconds
        reply = bytearray()
        try:
            self.socket.settimeout(max(1e-3, seconds))
            self.socket.sendall(json.dumps(message, default=str).encode() + b"\n")
            while not reply.endswith(b"\n"):
                self.socket.settimeout(max(1e-3, end - time.monotonic()))
                part = self.socket.recv(2**20)
                reply += part
                if not part or len(reply) > MOST_REPLY:
                    raise ConnectionError
        except TimeoutError:
            raise OutOfTime from None
        return json.loads(reply)


class Sandbox(Worker):
    """A process that runs solution.py."""

    def __init__(self, way: str, kind: str, seconds: float, *parts: str):
        """Start it in one of the WAYS to run a program's parts; raise an OSError if that fails."""
        user = None
        if os.getuid() == 0 and way != "limits":
            # From the range for transient users of services. A program and its tests have different
            # ones, and so have most graders.
            user = 61_184 + os.getpid() % 2000 * 2 + (kind == "tests")
        self.user_to_end = user if way == "user" else None
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        os.chmod(self.folder.name, 0o777)
        super().__init__(command(way), env={}, cwd=self.folder.name, stderr=subprocess.PIPE)
        job = dict(way=way, user=user, kind=kind, seconds=seconds, parts=parts)
        try:
            self.ask(job, START_SECONDS)
        except (OSError, ValueError):
            self.process.kill()
            reason = os.fsdecode(self.process.communicate()[1]).strip()
            self.close()
            raise OSError(reason.rpartition("\n")[2] or "no answer") from None

    def close(self) -> None:
        """End the process and what it has started, as far as the system can find it."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.user_to_end is not None:  # all processes of that user
            kill = ["/bin/sh", "-c", "kill -s KILL -- -1"]
            subprocess.run(kill, user=self.user_to_end, stderr=subprocess.DEVNULL)
        with self.socket, self.process:  # which waits for its end
            pass
        self.folder.cleanup()


def start_sandbox(kind: str, seconds: float, *parts: str) -> Sandbox:
    """Start the safest sandbox. If it fails no program is wrong for that: raise a UserError."""
    with using("a sandbox for a program"):
        return Sandbox(isolation()[0], kind, seconds, *parts)


def command(way: str) -> list[str]:
    """Return a sandbox's command line: an interpreter, without site-packages, and its program."""
    interpreter = os.path.realpath(sys.executable)
    python = [interpreter, "-I", "-S", "-B", str(SOLUTION)]
    if way != "bubblewrap":
        return python
    stdlib = sysconfig.get_path("stdlib")
    seen = [interpreter, f"{sys.base_prefix}/lib", f"{sys.base_exec_prefix}/lib", stdlib]
    seen += "/usr/lib /usr/lib64 /lib /lib64 /etc/ld.so.cache /etc/localtime".split()
    seen += ["/usr/share/zoneinfo", str(SOLUTION)]
    # packages may hold data sets
    hidden = [f"{stdlib}/site-packages", f"{stdlib}/dist-packages", "/usr/lib/python3"]
    unshared = "--unshare-all"
    if os.getuid() == 0:  # the sandbox changes users, and a user namespace knows no other user
        unshared = "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try "
        unshared += "--cap-drop ALL --cap-add CAP_SETUID --cap-add CAP_SETGID"
    arguments = f"--die-with-parent {unshared} --proc /proc --dev /dev".split()
    arguments += f"--perms 1777 --size {2**26} --tmpfs /tmp".split()
    parents = {str(parent) for path in seen for parent in Path(path).parents}
    for folder in sorted(parents - {"/"}):  # as root, bubblewrap would make them root's alone
        arguments += ["--perms", "0755", "--dir", folder]
    for path in dict.fromkeys(seen):
        arguments += ["--ro-bind-try", path, path]
    for path in filter(os.path.isdir, hidden):
        arguments += ["--tmpfs", path, "--remount-ro", path]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    return [shutil.which("bwrap") or "bwrap", *arguments, *python]


@functools.cache
def isolation() -> tuple[str, str]:
    """Return the first of the WAYS that works on this machine, and why those before it do not."""
    reasons = []
    for way in WAYS:
        if way == "user" and os.getuid() != 0:
            continue
        try:
            program = "import threading\nthreading.Thread(target=print, args=[input()]).start()"
            with contextlib.closing(Sandbox(way, "inputs", START_SECONDS, program)) as sandbox:
                if sandbox.ask("works", START_SECONDS) == ["works\n", 0]:
                    return way, "; ".join(reasons)
            raise OSError("a program does not run")
        except OSError as error:
            reasons.append(f"{way}: {error}")
    raise UserError(f"programs cannot be run here: {'; '.join(reasons)}")


def describe() -> str:
    """Return a line for the start of a run that says how programs are isolated."""
    way, reason = isolation()
    line = f"programs run {WAYS[way]}"
    if reason:
        line += f", since bubblewrap does not work here ({reason}): install it, or run everything "
        line += "in a container; docs/real-models.md says what a program can reach"
    return line

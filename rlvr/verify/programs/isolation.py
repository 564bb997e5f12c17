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

from rlvr.errors import UserError

PROJECT = Path(__file__).parents[3]  # where other processes find this package
# from the safest on
WAYS = {"bubblewrap": "in bubblewrap", "user": "as another user", "limits": "under limits alone"}
START_SECONDS = 30.0  # a busy machine may take that long to start an interpreter
MOST_REPLY = 2**26  # bytes


class OutOfTime(TimeoutError):
    """A sandbox has not answered in time. No exception of a program ever becomes this one."""


class Sandbox:
    """A process that runs a module of this folder and answers lines of JSON."""

    def __init__(self, module: str, way: str, **job):
        """Start it in one of the WAYS and send it the job; raise an OSError if that fails."""
        user = None
        if os.getuid() == 0 and way != "limits":
            # From the range for transient users of services. A program and its check have different
            # ones, and so have most graders.
            user = 61_184 + os.getpid() % 2000 * 2 + (module == "check")
        self.user_to_end = user if way == "user" else None
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        os.chmod(self.folder.name, 0o777)
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                command(way, module),
                env={},
                cwd=self.folder.name,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        try:
            if self.ask({**job, "way": way, "user": user}, START_SECONDS) != "ready":
                raise ValueError
        except (OSError, ValueError):
            self.process.kill()
            assert self.process.stderr
            reason = self.process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise OSError(reason.rpartition("\n")[2] or "no answer") from None

    def ask(self, message, seconds: float):
        """Send a message and return the reply, which may be any JSON.

        Raise OutOfTime without one, an OSError if the process has ended, and a ValueError for a
        reply that is not JSON or does not end.
        """
        end = time.monotonic() + seconds
        reply = bytearray()
        try:
            self.socket.settimeout(max(1e-3, seconds))
            self.socket.sendall(json.dumps(message).encode() + b"\n")
            while not reply.endswith(b"\n"):
                self.socket.settimeout(max(1e-3, end - time.monotonic()))
                part = self.socket.recv(2**20)
                if not part:
                    raise ConnectionError("a program has ended")
                reply += part
                if len(reply) > MOST_REPLY:
                    raise ValueError("a reply without end")
        except TimeoutError:
            raise OutOfTime from None
        return json.loads(reply)

    def close(self) -> None:
        """End the process and what it has started, as far as the system can find it."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.user_to_end is not None:
            child = os.fork()  # becomes that user and kills all of the user's processes
            if child == 0:
                with contextlib.suppress(OSError):
                    os.setuid(self.user_to_end)
                    os.kill(-1, signal.SIGKILL)
                os._exit(0)
            os.waitpid(child, 0)
        with self.socket, self.process:  # which waits for its end
            pass
        self.folder.cleanup()


def start_sandbox(module: str, **job) -> Sandbox:
    """Start the safest sandbox. If it fails no program is wrong for that: raise a UserError."""
    try:
        return Sandbox(module, isolation()[0], **job)
    except OSError as error:
        raise UserError(f"no sandbox for a program starts any more: {error}") from error


def command(way: str, module: str) -> list[str]:
    """Return a sandbox's command line: an interpreter with the project, without site-packages."""
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
    """Return the safest way that works on this machine, and why safer ones do not."""
    reasons = []
    for way in WAYS:
        if way == "user" and os.getuid() != 0:
            continue
        try:
            program = "import threading\nthreading.Thread(target=print, args=[input()]).start()"
            job = dict(head="", program=program, once=False, seconds=START_SECONDS)
            with contextlib.closing(Sandbox("solution", way, **job)) as sandbox:
                if sandbox.ask("works", START_SECONDS) == ["works\n", 0]:
                    return way, "; ".join(reasons)
            reasons.append(f"{way}: a program does not run")
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

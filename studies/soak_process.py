"""grpo.py with small settings in forks of this process, for studies/soak.py."""

import os
import signal
import sys
import time
import traceback

import project  # noqa: F401

import rlvr
import rlvr.flags
import rlvr.run

import matplotlib.figure  # noqa: F401  (imported here, so that a fork need not)

import grpo

STEPS = 6
FLAGS = (
    f"--max_steps {STEPS} --numbers 2 --sft_steps 80 --prompts_per_step 4 --num_generations 4 "
    "--minibatch_size 8 --eval_problems 4 --eval_samples 4 --eval_steps 6 --save_steps 1 "
    "--cache_dir cache"
).split()
MOST_SECONDS = 600  # that a process may take on a busy machine; one that takes longer hangs
ENDS = ("reached the last step", "saved and stopped", "one line", "killed")


class Process:
    """grpo.py in a fork of this process, which has imported everything."""

    started = []

    def __init__(self, arguments: list[str], change=lambda: None):
        """`change` is called in the fork, before the script."""
        self.output = {"out": "", "err": ""}
        self.pipes = {}
        ends = {name: os.pipe() for name in self.output}
        sys.stdout.flush()
        self.id = os.fork()
        if self.id == 0:
            os.dup2(ends["out"][1], 1)
            os.dup2(ends["err"][1], 2)
            become(arguments, change)
        for name, (reader, writer) in ends.items():
            os.close(writer)
            os.set_blocking(reader, False)
            self.pipes[name] = reader
        self.code = None
        Process.started.append(self)

    def read(self, name: str) -> str:
        """What the process has written so far to `out` or `err`."""
        try:
            while part := os.read(self.pipes[name], 2**16):
                self.output[name] += part.decode(errors="replace")
        except BlockingIOError:
            pass
        return self.output[name]

    def has_ended(self) -> bool:
        """Whether the process has ended; its exit code is then known."""
        if self.code is None:
            ended, status = os.waitpid(self.id, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def wait_until(self, condition, seconds: float = MOST_SECONDS) -> None:
        """Wait until the condition holds, the process has ended, or the time is over."""
        end = time.monotonic() + seconds
        while not condition() and not self.has_ended() and time.monotonic() < end:
            time.sleep(0.001)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process is still there."""
        if not self.has_ended():
            os.kill(self.id, number)

    def end(self) -> tuple[str, str]:
        """Wait for the end -> what was printed, and one of ENDS, or what is wrong with the end."""
        self.wait_until(lambda: False)
        if not self.has_ended():
            self.send(signal.SIGKILL)
            return self.read("out"), "it hangs"
        printed, err = self.read("out"), self.read("err")
        lines = [line for line in err.splitlines() if line.startswith("grpo.py: error: ")]
        if "Traceback" in err or "Exception ignored" in err:
            end = f"a traceback: {err[-2000:]}"
        elif self.code == -signal.SIGKILL:
            end = "killed"
        elif self.code == 2 and len(lines) == 1:
            end = "one line"
        elif self.code == 0 and not lines:
            at_last = f"checkpoint-{STEPS}" in printed
            end = "reached the last step" if at_last else "saved and stopped"
        else:
            end = f"exit code {self.code}: {err[-2000:]}"
        return printed, end


def become(arguments: list[str], change) -> None:
    """Run grpo.py in this process, and end it."""
    code = 0
    try:
        change()
        sys.argv = ["grpo.py", *arguments]
        rlvr.run.launch(grpo.main, rlvr.flags.parse_flags(grpo.Config, grpo.VARIANTS))
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)

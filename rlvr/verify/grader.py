"""A grader: `python -m rlvr.verify.grader` judges completions in a process that can be killed.

It answers [verifier, text, gold, seconds, program_seconds] with [reward, status], or with
[message, "error", traceback] if the verifier fails or the machine cannot run a program. It does not
import torch and therefore starts in half a second.
"""

import contextlib
import signal
import traceback

from rlvr.errors import UserError
from rlvr.verify.programs.isolation import START_SECONDS, OutOfTime
from rlvr.verify.programs.solution import Pipe, limit
from rlvr.verify.verifiers import find_verifier, judge

with contextlib.suppress(Exception):  # the first question that needs it says what is broken
    import rlvr.verify.answers.equality  # noqa: F401  (now, so that no deadline pays for it)


def main() -> None:
    """Answer each line of standard input until it closes, after a first one that starts it."""
    limit(AS=2**32)  # bytes of address space
    pipe = Pipe()  # so that what a library prints is not taken for a reply
    reply = pipe.read()
    while True:
        verifier, text, gold, seconds, program_seconds = pipe.ask(reply)
        allowed = seconds
        # When the timer fires the kernel kills this process, even within a huge multiplication.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also after a user's own timer
        try:
            entry = find_verifier(verifier)
            if entry.keeps_time:  # this is a backstop
                allowed = program_seconds + seconds + 4 * START_SECONDS  # of two sandboxes
            if entry.load:
                signal.setitimer(signal.ITIMER_REAL, START_SECONDS)
                entry.load()
            signal.setitimer(signal.ITIMER_REAL, allowed)
            reply = judge(verifier, text, gold, seconds, program_seconds)
        except OutOfTime:
            reply = None, "timeout"
        except MemoryError:
            reply = None, "memory"
        except UserError as error:
            reply = str(error), "error"
        except (Exception, SystemExit) as error:
            message = f"the verifier {verifier} failed: {type(error).__name__}: {error}"
            reply = message, "error", traceback.format_exc()
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()

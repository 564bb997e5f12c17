"""A grader: `python -m rlvr.verify.grader` judges completions in a process that can be killed.

It answers [verifier, text, gold, seconds, program_seconds] with [reward, status], or with
[message, "error"] if the machine cannot run a program. It does not import torch and therefore
starts in half a second.
"""

import signal

import rlvr.verify.answers.equality  # noqa: F401  (now, so that no deadline pays for it)
from rlvr.errors import UserError
from rlvr.verify.programs.isolation import START_SECONDS
from rlvr.verify.programs.solution import Pipe, limit
from rlvr.verify.verifiers import VERIFIERS, judge


def main() -> None:
    """Answer each line of standard input until it closes, after a first one that starts it."""
    limit(AS=2**32)  # bytes of address space
    pipe = Pipe()  # so that what a library prints is not taken for a reply
    reply = pipe.read()
    while True:
        verifier, text, gold, seconds, program_seconds = pipe.ask(reply)
        entry, allowed = VERIFIERS[verifier], seconds
        if entry.keeps_time:  # the verifier keeps its own time; this is a backstop
            allowed = program_seconds + seconds + 4 * START_SECONDS  # of two sandboxes
        try:
            if entry.load:
                entry.load()
            # When the timer fires the kernel kills this process, even within a huge multiplication.
            signal.setitimer(signal.ITIMER_REAL, allowed)
            reply = judge(verifier, text, gold, seconds, program_seconds)
        except TimeoutError:
            reply = None, "timeout"
        except UserError as error:
            reply = str(error), "error"
        except Exception:  # latex2sympy and sympy raise errors of every kind
            reply = None, "unparsed"
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()

"""A grader: `python -m rlvr.verify.grader` judges what a policy wrote, in a process of its own.

A completion can hold anything, a tower of powers or an endless loop, so a grader can be killed at
its deadline. It imports no torch, so that it starts in half a second.

It says "ready". Then questions come in by lines, [verifier, text, gold, seconds, program_seconds],
and a line goes out for each: [reward, status], or [message, "error"] where the machine cannot run
what it should.
"""

import signal

from rlvr.errors import UserError
from rlvr.verify.programs import START_SECONDS, Pipe, limit
from rlvr.verify.verifiers import VERIFIERS, judge

import math_verify  # noqa: F401  (now, so that the first deadline does not pay for it)

MOST_MEMORY = 2**32  # bytes of address space


def main() -> None:
    """Answer each line of standard input, or die of it."""
    limit(AS=MOST_MEMORY)
    pipe = Pipe()  # what a library prints is no reply
    pipe.write("ready")
    while True:
        verifier, text, gold, seconds, program_seconds = pipe.read()
        allowed = seconds
        if VERIFIERS[verifier].keeps_time:  # by itself, and this is for the case that it fails
            allowed = program_seconds + seconds + 4 * START_SECONDS  # of two sandboxes
        # the kernel kills this process then, even within a huge multiplication
        signal.setitimer(signal.ITIMER_REAL, allowed)
        try:
            reply = judge(verifier, text, gold, seconds, program_seconds)
        except TimeoutError:
            reply = None, "timeout"
        except UserError as error:
            reply = str(error), "error"
        except Exception:  # math-verify and sympy raise of every kind
            reply = None, "unparsed"
        signal.setitimer(signal.ITIMER_REAL, 0)
        pipe.write(reply)


if __name__ == "__main__":
    main()

"""A grader: `python -m rlvr.tasks.grader` judges what a policy wrote, in a process of its own.

A completion can hold anything, a tower of powers or an endless loop, so a grader can be killed at
its deadline. It imports no torch, so that it starts in half a second.

Questions come in by lines, [verifier, text, gold, seconds], and answers go out, [reward, status].
"""

import json
import resource
import signal
import subprocess
import sys

from rlvr.tasks.verifiers import VERIFIERS, judge

import math_verify  # noqa: F401  (now, so that the first deadline does not pay for it)

MOST_MEMORY = 2**32  # bytes of address space


def main() -> None:
    """Answer each line of standard input, or die of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for line in sys.stdin:
        verifier, text, gold, seconds = json.loads(line)
        try:
            if not VERIFIERS[verifier].keeps_time:
                # the kernel kills this process then, even within a huge multiplication
                signal.setitimer(signal.ITIMER_REAL, seconds)
            reply = judge(verifier, text, gold, seconds)
        except subprocess.TimeoutExpired:
            reply = 0.0, "timeout"
        except Exception:  # math-verify and sympy raise of every kind
            reply = 0.0, "unparsed"
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()

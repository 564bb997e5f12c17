"""What is right: a verifier for each kind of task, and the graders that run them.

answers/ judges what can be read in a text, programs/ what has to be run. A grader is a process of
its own, since a completion can hold anything, an endless loop too.
"""

from rlvr import door

__getattr__ = door(
    __name__,
    pool="grade in_threads",
    verifiers="BOXED SYSTEM_PROMPTS VERIFIERS",
)

"""The table of verifiers: how each judges a completion, and where its answer stands."""

from collections.abc import Callable
from dataclasses import dataclass

from rlvr.tasks.answers import last_boxed, verify_choice, verify_math, verify_number
from rlvr.tasks.code import verify_code
from rlvr.tasks.countdown import extract_answer, verify_countdown


@dataclass(frozen=True)
class Verifier:
    """What is right, for one kind of task."""

    verify: Callable  # (text, gold) -> 1.0, 0.0, or None where there is no answer to be read
    extract: Callable[[str], str]  # text -> what counts as the answer where answers are counted
    system_prompt: str  # what a language model has to be told: a name of prompts.SYSTEM_PROMPTS
    isolated: bool = False  # what a policy wrote can run for ever: judge it in another process
    keeps_time: bool = False  # verify takes the seconds it may use as a third argument


VERIFIERS = {
    "countdown": Verifier(verify_countdown, extract_answer, "countdown"),
    "math": Verifier(verify_math, last_boxed, "boxed", isolated=True),
    "number": Verifier(verify_number, last_boxed, "boxed"),
    "choice": Verifier(verify_choice, last_boxed, "boxed"),
    "code": Verifier(verify_code, str, "code", isolated=True, keeps_time=True),
}


def judge(verifier: str, text: str, gold: str, seconds: float) -> tuple[float, str]:
    """A reward, and "unparsed" where there is no answer to be read; in this process."""
    entry = VERIFIERS[verifier]
    limit = (seconds,) if entry.keeps_time else ()
    reward = entry.verify(text, gold, *limit)
    return (0.0, "unparsed") if reward is None else (reward, "")

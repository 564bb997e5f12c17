"""The table of verifiers: each entry is all that a kind of task needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from rlvr.tasks.boxes import answer_text, boxed, find_answer, last_boxed
from rlvr.tasks.choices import verify_choice
from rlvr.tasks.code import verify_code
from rlvr.tasks.countdown import countdown_text, extract_answer, verify_countdown
from rlvr.tasks.mathematics import verify_math
from rlvr.tasks.numbers import last_number, verify_last_number, verify_number
from rlvr.tasks.prompts import SYSTEM_PROMPTS
from rlvr.tasks.unit_tests import tests_text


@dataclass(frozen=True)
class Verifier:
    """What is right, for one kind of task. `--verifier` takes the names of the table below."""

    verify: Callable  # (text, gold) -> the reward, or None where there is no answer to be read
    extract: Callable[[str], str] = str  # text -> its answer; different answers are counted
    system_prompt: str = ""  # what a language model has to be told
    chat_only: bool = False  # tell it in a chat template only: the tiny policy reads no English
    gold: Callable[[object], str] = answer_text  # cell of the answer column -> gold; "" if unusable
    example: Callable[[str], str] | None = None  # gold -> a right text, to try golds with
    surely_usable: str = "(?!)"  # pattern of golds that need no trying; by default it fits none
    no_answer: float = 0.0  # the reward where no answer can be read, or not before the deadline
    isolated: bool = False  # what a policy wrote can run for ever: judge it in another process
    keeps_time: bool = False  # verify takes the seconds of a test and of all, and keeps to them

    def __post_init__(self):
        # graders send floats alone, and a batch of integers has no mean
        object.__setattr__(self, "no_answer", float(self.no_answer))


# Golds that can be read without a doubt: integers, fractions, roots, and pairs of these.
NATURAL = "[1-9][0-9]{0,8}"
INTEGER = f"(?:-?{NATURAL}|0)"
FRACTION = rf"-?\\d?frac\{{{NATURAL}\}}\{{{NATURAL}\}}"
ROOT = rf"-?(?:{NATURAL})?\\sqrt\{{{NATURAL}\}}"
SIMPLE = f"(?:{INTEGER}|{FRACTION}|{ROOT})"
SIMPLE_OR_PAIR = rf"{SIMPLE}|\({SIMPLE}, ?{SIMPLE}\)"

VERIFIERS = {
    "countdown": Verifier(
        verify_countdown,
        extract_answer,
        SYSTEM_PROMPTS["countdown"],
        chat_only=True,
        gold=countdown_text,
    ),
    "math": Verifier(
        verify_math,
        last_boxed,
        SYSTEM_PROMPTS["boxed"],
        example=boxed,
        surely_usable=SIMPLE_OR_PAIR,
        isolated=True,
    ),
    "number": Verifier(
        verify_number,
        find_answer,
        SYSTEM_PROMPTS["boxed"],
        example=boxed,
        surely_usable=INTEGER,
        isolated=True,
    ),
    "last_number": Verifier(
        verify_last_number, last_number, SYSTEM_PROMPTS["number"], example=str, isolated=True
    ),
    "choice": Verifier(
        verify_choice, find_answer, SYSTEM_PROMPTS["boxed"], example=boxed, isolated=True
    ),
    "code": Verifier(
        verify_code,
        system_prompt=SYSTEM_PROMPTS["code"],
        gold=tests_text,
        isolated=True,
        keeps_time=True,
    ),
}


def judge(
    verifier: str, text: str, gold, seconds: float, program_seconds: float
) -> tuple[float, str]:
    """A reward, and "unparsed" where there is no answer to be read; in this process.

    `gold` is a text or a sequence of alternatives, of which the best reward counts. ValueError for
    a reward that is NaN or infinite.
    """
    entry = VERIFIERS[verifier]
    limits = (seconds, program_seconds) if entry.keeps_time else ()
    alternatives = [gold] if isinstance(gold, str) else gold
    rewards = [entry.verify(text, each, *limits) for each in alternatives]
    reward = max((each for each in rewards if each is not None), default=None)
    if reward is None:
        return entry.no_answer, "unparsed"
    if not math.isfinite(reward):
        raise ValueError(f"the verifier {verifier} gave the reward {reward}")
    return float(reward), ""

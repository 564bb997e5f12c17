"""The table of verifiers. Each entry holds all that one kind of task needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlvr.errors import UserError
from rlvr.verify import answers
from rlvr.verify.programs.code import tests_text, verify_code

# A-GRAE, App. C.2, as the system prompt; two-stage dynamics, App. C.2, behind the question
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."
SYSTEM_PROMPTS = {
    "none": "",
    "boxed": BOXED,
    "assistant": "You are a helpful assistant.",  # two-stage dynamics, App. C.2
    # CW-GRPO, App. B
    "think": (
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer, and put your final answer within \\boxed{}. The "
        "reasoning process and answer are enclosed within <think> </think> and <answer> </answer> "
        "tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here "
        "</answer>. Note that respond by English, NOT use other languages."
    ),
    "countdown": (
        "You are given numbers and a target, such as 3 9 5 : 48. Use each number exactly once, "
        "with + - * / and parentheses, to reach the target. Think within <think> </think>, then "
        "give the expression alone within <answer> </answer>."
    ),
    "number": "Answer with a number only.",
    "answer": "Give the final answer within <answer> </answer>.",
    # A-GRAE, App. C.2, for images; there it is worded for questions with options
    "monologue": (
        "You FIRST think about the reasoning process as an internal monologue and then provide the "
        "final answer. The reasoning process MUST BE enclosed within <think> </think> tags. The "
        "final answer MUST BE put in \\boxed{}."
    ),
    "code": (
        "Solve the problem in Python. Think step by step, then give the whole program in one "
        "```python block."
    ),
}


@dataclass(frozen=True)
class Verifier:
    """How one kind of task is judged. `--verifier` takes the names of the table below."""

    verify: Callable  # (text, gold) -> the reward, or None if the text holds no readable answer
    extract: Callable[[str], str] = str  # text -> its answer; the logs count different answers
    system_prompt: str = "none"  # by name: what a language model has to be told
    chat_only: bool = False  # only in a chat template, since the tiny policy reads no English
    # cell of the answer column -> gold; "" if unusable
    gold: Callable[[object], str] = answers.answer_text
    example: Callable[[str], str] | None = None  # gold -> a right text, to try whether it is usable
    surely_usable: str = "(?!)"  # pattern of golds that need not be tried; it matches none here
    no_answer: float = 0.0  # the reward without a readable answer, or at the deadline
    isolated: bool = False  # judge in another process, since the answer could run forever
    load: Callable[[], object] | None = None  # a grader calls it before the time of an answer runs
    keeps_time: bool = False  # verify also takes the seconds for each test and for all tests


INTEGER = "-?[1-9][0-9]{0,8}|0"
IN_A_BOX: dict[str, Any] = dict(system_prompt="boxed", example=answers.boxed, isolated=True)

VERIFIERS = {
    "countdown": Verifier(
        answers.verify_countdown,
        answers.extract_answer,
        "countdown",
        chat_only=True,
        gold=answers.countdown_text,
    ),
    "math": Verifier(answers.verify_math, answers.last_boxed, **IN_A_BOX, surely_usable=INTEGER),
    "number": Verifier(
        answers.verify_number, answers.find_answer, **IN_A_BOX, surely_usable=INTEGER
    ),
    "last_number": Verifier(
        partial(answers.verify_number, find=answers.last_number),
        answers.last_number,
        "number",
        example=str,
        isolated=True,
    ),
    "choice": Verifier(answers.verify_choice, answers.find_answer, **IN_A_BOX),
    "code": Verifier(
        verify_code, system_prompt="code", gold=tests_text, isolated=True, keeps_time=True
    ),
    "reasoning_gym": Verifier(
        answers.verify_entry, system_prompt="answer", gold=str, isolated=True, load=answers.open_gym
    ),
}


def find_verifier(name: str) -> Verifier:
    """Return the entry of a verifier. UserError for an unknown name."""
    if name not in VERIFIERS:
        raise UserError(f"there is no verifier {name!r}; there are {', '.join(VERIFIERS)}")
    return VERIFIERS[name]


def judge(
    verifier: str, text: str, gold, seconds: float, program_seconds: float
) -> tuple[float | None, str]:
    """Grade in this process -> (reward, ""), or (None, "unparsed") without a readable answer.

    `gold` is a text or a sequence of alternatives, of which the best reward counts. Raise a
    ValueError for a reward that is NaN or infinite.
    """
    entry = VERIFIERS[verifier]
    limits = (seconds, program_seconds) if entry.keeps_time else ()
    alternatives = [gold] if isinstance(gold, str) else gold
    rewards = [entry.verify(text, each, *limits) for each in alternatives]
    reward = max((each for each in rewards if each is not None), default=None)
    if reward is None:
        return None, "unparsed"
    if not math.isfinite(reward):
        raise ValueError(f"the verifier {verifier} gave the reward {reward}")
    return float(reward), ""

"""The table of verifiers: each entry is all that a kind of task needs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rlvr.verify import answers
from rlvr.verify.programs import tests_text, verify_code

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
    """What is right, for one kind of task. `--verifier` takes the names of the table below."""

    verify: Callable  # (text, gold) -> the reward, or None where there is no answer to be read
    extract: Callable[[str], str] = str  # text -> its answer; different answers are counted
    system_prompt: str = "none"  # by name: what a language model has to be told
    chat_only: bool = False  # tell it in a chat template only: the tiny policy reads no English
    # cell of the answer column -> gold; "" if unusable
    gold: Callable[[object], str] = answers.answer_text
    example: Callable[[str], str] | None = None  # gold -> a right text, to try golds with
    surely_usable: str = "(?!)"  # pattern of golds that need no trying; by default it fits none
    no_answer: float = 0.0  # the reward where no answer can be read, or not before the deadline
    isolated: bool = False  # what a policy wrote can run for ever: judge it in another process
    keeps_time: bool = False  # verify takes the seconds of a test and of all, and keeps to them


INTEGER = "-?[1-9][0-9]{0,8}|0"
IN_A_BOX = dict(system_prompt="boxed", example=answers.boxed, isolated=True)

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
}


def judge(
    verifier: str, text: str, gold, seconds: float, program_seconds: float
) -> tuple[float | None, str]:
    """A reward and "", or None and "unparsed" where there is no answer to be read; in this process.

    `gold` is a text or a sequence of alternatives, of which the best reward counts. ValueError for
    a reward that is NaN or infinite.
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

"""The table of verifiers. Each entry holds all that one kind of task needs."""

import functools
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, SupportsFloat

from rlvr.errors import UserError, using
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
    gold: Callable = answers.answer_text
    example: Callable[[str], str] | None = None  # gold -> a right text, to try whether it is usable
    isolated: bool = False  # judge in another process, since the answer could run forever
    load: Callable[[], object] | None = None  # a grader calls it before the time of an answer runs
    keeps_time: bool = False  # verify also takes the seconds for each test and for all tests
    file: str = ""  # of a user's function


IN_A_BOX: dict[str, Any] = dict(system_prompt="boxed", example=answers.boxed, isolated=True)

VERIFIERS = {
    "countdown": Verifier(
        answers.verify_countdown,
        answers.extract_answer,
        "countdown",
        chat_only=True,
        gold=answers.countdown_text,
    ),
    "math": Verifier(answers.verify_math, answers.last_boxed, **IN_A_BOX),
    "number": Verifier(answers.verify_number, answers.find_answer, **IN_A_BOX),
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
    """Return an entry of the table, or one for a user's function such as my_reward.py:score.

    UserError for an unknown name, and for a file that cannot be the function's.
    """
    return VERIFIERS.get(name) or own_verifier(name)


@functools.cache
def own_verifier(name: str) -> Verifier:
    """Return the entry for a user's function. UserError as in find_verifier."""
    file, colon, _ = name.rpartition(":")
    if not colon:
        known = ", ".join(VERIFIERS)
        raise UserError(f"there is no verifier {name!r}; there are {known}, my_reward.py:score")
    with using(file, SyntaxError, ValueError):  # the last one for null bytes
        compile(Path(file).read_bytes(), file, "exec")
    return Verifier(
        lambda text, gold: load(name)(text, gold),
        lambda text: text if answers.find_answer(text) == "NA" else answers.find_answer(text),
        gold=lambda cell=None: None if cell == "" else cell,
        isolated=True,
        load=lambda: load(name),
        file=file,
    )


@functools.cache
def load(name: str) -> Callable:
    """Run a user's file, whose folder is put on sys.path, and return the function."""
    file, _, function = name.rpartition(":")
    sys.path.insert(0, str(Path(file).parent))
    names = runpy.run_path(file)
    if not callable(names.get(function)):
        raise UserError(f"--verifier {name}: there is no function {function!r} in that file")
    return names[function]


def judge(
    verifier: str, text: str, gold, seconds: float, program_seconds: float
) -> tuple[float | None, str]:
    """Grade in this process -> (reward, ""), or (None, "unparsed") without a readable answer.

    `gold` is a text or a sequence of alternatives, of which the best reward counts; a user's
    function gets it as it is. Raise a ValueError for a reward that is no finite number. Each error
    has the completion as a note.
    """
    entry = find_verifier(verifier)
    limits = (seconds, program_seconds) if entry.keeps_time else ()
    alternatives = [gold] if isinstance(gold, str) or entry.file else gold
    if not isinstance(alternatives, (list, tuple)):
        raise ValueError(f"the gold of {verifier} is a text or a list of texts, not {gold!r}")
    try:
        rewards = [entry.verify(text, alternative, *limits) for alternative in alternatives]
        rewards = [reward for reward in rewards if reward is not None]
        for reward in rewards:
            # float32 ends at 3.4e38; NaN is not below it
            if not (isinstance(reward, SupportsFloat) and abs(float(reward)) < 3.4e38):
                raise ValueError(f"{verifier} gave {reward!r}, which is no finite number")
    except Exception as error:
        error.add_note(f"The completion was {text!r}")
        raise
    return (float(max(rewards)), "") if rewards else (None, "unparsed")

"""System prompts by name, and how a problem becomes the prompt that the policy reads."""

from dataclasses import replace
from datetime import datetime

from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.verifiers import VERIFIERS

SYSTEM_PROMPTS = {
    "none": "",
    # A-GRAE, App. C.2; two-stage dynamics, App. C.2, has it behind the question
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",
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
    "code": (
        "Solve the problem in Python. Think step by step, then give the whole program in one "
        "```python block."
    ),
}

# What templates take for today. With the real date a resumed run would have other prompts.
A_FIXED_DAY = datetime(2024, 7, 26)


def encode_prompt(tokenizer, prompt: str) -> list[int]:
    """Token ids; a chat template has written its special tokens into the prompt already."""
    return tokenizer.encode(prompt, add_special_tokens=not tokenizer.chat_template)


def choose_system_prompt(verifier: str, chosen: str, tokenizer) -> str:
    """The text of --system_prompt; "auto" stands for what the verifier's entry names."""
    if chosen != "auto":
        return SYSTEM_PROMPTS[chosen]
    if verifier == "countdown" and not tokenizer.chat_template:
        return ""  # the tiny policy reads no English
    return SYSTEM_PROMPTS[VERIFIERS[verifier].system_prompt]


def write_prompt(problem: Problem, system: str, tokenizer) -> Problem:
    """The problem with the system prompt and the chat template around its text."""
    if not tokenizer.chat_template:
        text = f"{system}\n{problem.prompt}\n" if system else problem.prompt
        return replace(problem, prompt=text)
    messages = [dict(role="user", content=problem.prompt)]
    if system:
        messages.insert(0, dict(role="system", content=system))
    try:
        text = fill_template(tokenizer, messages, add_generation_prompt=True)
    except Exception as error:  # jinja's; some templates take no system prompt
        raise UserError(
            f"the model's chat template fails, try --system_prompt none: {error}"
        ) from error
    return replace(problem, prompt=text)


def fill_template(tokenizer, messages: list[dict], **options) -> str:
    """The chat template with the messages in it; it gives the same text on every day."""
    return tokenizer.apply_chat_template(
        messages, tokenize=False, strftime_now=A_FIXED_DAY.strftime, **options
    )


def end_of_turn(tokenizer) -> list[int]:
    """The token by which the chat template ends an answer: a list of one, or [] without any.

    The checkpoint of a base model often names another one, which ends a document.
    """
    answer = "answer"
    turns = [dict(role="user", content="question"), dict(role="assistant", content=answer)]
    try:
        text = fill_template(tokenizer, turns) if tokenizer.chat_template else ""
    except Exception:  # jinja's; some templates take no answers
        return []
    _, found, rest = text.rpartition(answer)
    special = {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}
    special.discard(tokenizer.unk_token_id)
    ids = tokenizer.encode(rest, add_special_tokens=False) if found else []
    return [token for token in ids if token in special][:1]

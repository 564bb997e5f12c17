"""Whether a prompt and a completion fit into the policy's context together."""

import math

from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.prompts import encode_prompt


def context_of(policy) -> float:
    """The most tokens that the policy was made to read; infinite where its checkpoint sets none."""
    return getattr(policy.config.get_text_config(), "max_position_embeddings", math.inf)


def check_context(policy, tokenizer, problems: list[Problem], config) -> None:
    """UserError where a completion of one of the problems can outgrow the context."""
    room = context_of(policy) - config.max_completion_length
    for problem in problems:
        if len(problem.prompt.encode()) + 2 <= room:
            continue  # A token is at least a byte, but for those that may open and close a text.
        length = len(encode_prompt(tokenizer, problem.prompt))
        if length > room:
            raise UserError(
                f"a prompt of {length} tokens and --max_completion_length "
                f"{config.max_completion_length} are over the policy's context of "
                f"{context_of(policy)}; a lower --max_prompt_length drops such prompts"
            )


def room_after(policy, tokenizer, problems: list[Problem]) -> float:
    """How many tokens the context has beside the longest prompt; UserError where it has none."""
    if math.isinf(context_of(policy)):
        return math.inf
    longest = max(len(encode_prompt(tokenizer, problem.prompt)) for problem in problems)
    room = context_of(policy) - longest
    if room < 1:
        raise UserError(
            f"a prompt of {longest} tokens fills the policy's context of {context_of(policy)}; "
            "a lower --max_prompt_length drops such prompts"
        )
    return room

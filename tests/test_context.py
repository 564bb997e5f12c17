"""Whether prompts and completions fit into the policy's context."""

import math
from types import SimpleNamespace

from rlvr.config import Config
from rlvr.context import check_context, room_after
from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.prompts import encode_prompt

import pytest
import transformers


def policy_with(**settings):
    return SimpleNamespace(config=transformers.PreTrainedConfig(**settings))


def problems_of(tokenizer, *lengths):
    """Problems whose prompts have so many tokens."""
    problems = [Problem("1" * length, "1") for length in lengths]
    assert [len(encode_prompt(tokenizer, problem.prompt)) for problem in problems] == [*lengths]
    return problems


@pytest.mark.parametrize("longest, fits", [(35, True), (36, True), (37, False), (200, False)])
def test_a_prompt_and_a_completion_have_to_fit_together(tiny, longest, fits):
    """36 + 64 = 100."""
    policy, config = policy_with(max_position_embeddings=100), Config(max_completion_length=64)
    problems = problems_of(tiny[1], 8, longest, 20)
    if fits:
        check_context(policy, tiny[1], problems, config)
        return
    with pytest.raises(UserError) as error:
        check_context(policy, tiny[1], problems, config)
    for text in (f"{longest} tokens", "--max_completion_length 64", "100", "--max_prompt_length"):
        assert text in str(error.value)


def test_tokens_count_and_not_letters(tiny):
    """A tag is one token; so the text is longer than what the policy reads."""
    problems = [Problem("<think></think>" * 18, "1")]
    config = Config(max_completion_length=64)
    check_context(policy_with(max_position_embeddings=100), tiny[1], problems, config)
    with pytest.raises(UserError, match="36 tokens"):
        check_context(policy_with(max_position_embeddings=99), tiny[1], problems, config)


def test_a_policy_without_a_limit(tiny):
    problems = problems_of(tiny[1], 5000)
    check_context(policy_with(), tiny[1], problems, Config(max_completion_length=10**6))
    assert room_after(policy_with(), tiny[1], problems) == math.inf


def test_the_room_after_the_longest_prompt(tiny):
    policy = policy_with(max_position_embeddings=100)
    assert room_after(policy, tiny[1], problems_of(tiny[1], 8, 30, 20)) == 70
    assert room_after(policy, tiny[1], problems_of(tiny[1], 99)) == 1
    with pytest.raises(UserError, match="--max_prompt_length"):
        room_after(policy, tiny[1], problems_of(tiny[1], 100))

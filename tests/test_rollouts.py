"""Completions of problems: drawn, graded, and made into tensors."""

import dataclasses
import random
from types import SimpleNamespace

from rlvr.config import Config
from rlvr.records import Problem, Sample
from rlvr.rollouts import completion_mask, sample_groups, sampled_logprobs
from rlvr.tasks.countdown import make_countdown
from rlvr.tasks.verifiers import VERIFIERS

import pytest


@pytest.fixture
def sampler_of(tiny):
    """sampler_of(completions, logprobs) is a sampler that gives these, and notes its calls."""

    def make(completions, logprobs):
        calls = []

        def generate(*given):
            calls.append(given)
            return completions, logprobs

        return SimpleNamespace(
            tokenizer=tiny[1],
            stops=[tiny[1].eos_token_id],
            config=Config(verify_seconds=7.0, program_seconds=30.0),
            generate=generate,
            calls=calls,
        )

    return make


def test_sample_groups(tiny, sampler_of):
    """What a Sample holds; one without a stop token is truncated, whatever its reward."""
    tokenizer = tiny[1]
    problem, solution = make_countdown(random.Random(0), 3)
    completions = [
        tokenizer.encode(solution + "<eos>"),
        tokenizer.encode(solution),
        tokenizer.encode("<think><eos>"),
    ]
    logprobs = [[-0.5] * len(completion) for completion in completions]
    sampler = sampler_of(completions, logprobs)
    groups = sample_groups(sampler, [problem], 3, 1.0, 48)
    ids = tokenizer.encode(problem.prompt)
    assert groups == [
        [
            Sample(ids, completions[0], solution, 1.0, False, logprobs[0], success=True),
            Sample(ids, completions[1], solution, 1.0, True, logprobs[1], success=True),
            Sample(ids, completions[2], "<think>", 0.0, False, logprobs[2]),
        ]
    ]


def test_the_completions_of_a_problem_stand_together(tiny, sampler_of):
    """One call of the sampler for all problems, with its settings in their places."""
    tokenizer = tiny[1]
    problems = [make_countdown(random.Random(seed), 2)[0] for seed in range(2)]
    sampler = sampler_of([[1]] * 6, [[-1.0]] * 6)
    first, second = sample_groups(sampler, problems, 3, 0.6, 20, 0.9)
    prompts = [tokenizer.encode(problem.prompt) for problem in problems]
    assert [sample.prompt_ids for sample in first] == [prompts[0]] * 3
    assert [sample.prompt_ids for sample in second] == [prompts[1]] * 3
    assert sampler.calls == [([prompts[0]] * 3 + [prompts[1]] * 3, 0.6, 0.9, 20)]


def test_the_verifier_of_the_problem_grades(tiny, sampler_of, monkeypatch):
    """It gets the text, the gold answer and both deadlines; what it cannot read has a status."""
    asked = []

    def verify(text, gold, *seconds):
        asked.append((text, gold, *seconds))
        return None if text == "2" else 0.5

    entry = dataclasses.replace(VERIFIERS["number"], verify=verify, keeps_time=True, isolated=False)
    monkeypatch.setitem(VERIFIERS, "number", entry)
    ids = [tiny[1].encode(text + "<eos>") for text in "12"]
    sampler = sampler_of(ids, [[-1.0, -1.0]] * 2)
    (group,) = sample_groups(sampler, [Problem("3 : ", "4", "number")], 2, 1.0, 8)
    assert [(sample.reward, sample.status) for sample in group] == [(0.5, ""), (0.0, "unparsed")]
    assert sorted(asked) == [("1", "4", 7.0, 30.0), ("2", "4", 7.0, 30.0)]


def test_a_completion_without_tokens_is_truncated(sampler_of):
    (group,) = sample_groups(sampler_of([[]], [[]]), [Problem("3 : 3 ", "3 : 3 ")], 1, 1.0, 8)
    assert group[0].truncated
    assert group[0].reward == 0


def test_mask_of_truncated_completions():
    samples = [Sample([1], [2, 3]), Sample([1], [2, 3, 4], truncated=True)]
    assert completion_mask(samples, "cpu").tolist() == [[1, 1, 0], [1, 1, 1]]
    assert completion_mask(samples, "cpu", True).tolist() == [[1, 1, 0], [0, 0, 0]]


def test_a_stop_token_that_is_also_the_padding_counts(tiny):
    """mask = (ids != pad) would drop it, and also an earlier token that is the padding."""
    pad = tiny[1].pad_token_id
    samples = [Sample([10, 11], [12, pad, 13, pad]), Sample([10, 11, 12], [13] * 7)]
    assert completion_mask(samples, "cpu").sum(1).tolist() == [4, 7]


def test_sampled_logprobs_are_padded_with_zeros():
    samples = [Sample([1], [5, 6], logprobs=[-1.0, -2.0]), Sample([1], [7], logprobs=[-0.5])]
    assert sampled_logprobs(samples, "cpu").tolist() == [[-1.0, -2.0], [-0.5, 0.0]]

"""Rollouts: the order of problems, completions that are graded, what is logged, what fits."""

import dataclasses
import math
import random
from types import SimpleNamespace

import rlvr.machine.ranks
import rlvr.rollout.rollouts
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.machine.ranks import from_rank_0
from rlvr.rollout.rollouts import (
    check_context,
    completion_mask,
    rollout_metrics,
    room_after,
    sample_groups,
    sampled_logprobs,
    sampler_mismatch,
)
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Problem, ProblemStream, Sample
from rlvr.verify.verifiers import VERIFIERS

import pytest
import torch
import transformers

# ---------------------------------------------------- the order in which problems are drawn

PROBLEMS = [Problem(str(i), "") for i in range(10)]


def test_a_stream_passes_over_all_problems():
    """In another order each time, by the seed, however many are drawn at once."""
    stream = ProblemStream(PROBLEMS, 0)
    drawn = [problem for count in (3, 4, 7, 1, 10, 5) for problem in stream.draw(count)]
    epochs = [drawn[:10], drawn[10:20], drawn[20:]]
    for epoch in epochs:
        assert sorted(epoch, key=lambda problem: problem.prompt) == PROBLEMS
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != PROBLEMS
    assert stream.position == 30
    assert ProblemStream(PROBLEMS, 0).draw(30) == drawn
    assert ProblemStream(PROBLEMS, 1).draw(30) != drawn


def test_ranks_share_the_stream(monkeypatch):
    """Two ranks that draw 3 each take in turn what one process that draws 6 takes."""
    whole = ProblemStream(PROBLEMS, 0)
    expected = [whole.draw(6) for _ in range(4)]
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    drawn_by = []
    for rank in range(2):
        monkeypatch.setattr(world, "RANK", rank)
        stream = ProblemStream(PROBLEMS, 0)
        drawn_by.append([stream.draw(3) for _ in range(4)])
        assert stream.position == whole.position
    for first, second, both in zip(*drawn_by, expected, strict=True):
        assert [problem for pair in zip(first, second, strict=True) for problem in pair] == both


def test_rank_0_finds_out_for_all(monkeypatch):
    """Such as the problems: a verifier that is slow on one rank alone gives no rank others."""
    sent, asked = [], []

    def broadcast(found):
        if world.RANK == 0:
            sent[:] = found
        found[:] = sent

    def slower_each_time(problems):
        asked.append(world.RANK)
        if not problems:
            raise UserError("no such data set")
        return problems[: -len(asked)]

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    for problems in ([1, 2, 3, 4], []):
        for rank in (0, 1):
            monkeypatch.setattr(world, "RANK", rank)
            if problems:
                assert from_rank_0(slower_each_time, problems) == [1, 2, 3]
                continue
            with pytest.raises(UserError, match="no such data set"):
                from_rank_0(slower_each_time, problems)
    assert asked == [0, 0]


# ------------------------------------------------------------------ completions that are graded


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
    """One call for all problems; a completion without a stop token is truncated, though right."""
    encode = tiny[1].encode
    (first, solution), (second, _) = (make_countdown(random.Random(seed), 3) for seed in (0, 1))
    completions = [encode(f"{solution}<eos>"), encode(solution), encode("<think><eos>"), []]
    logprobs = [[-0.5] * len(completion) for completion in completions]
    sampler = sampler_of(completions, logprobs)
    groups = sample_groups(sampler, [first, second], 2, 0.6, 48, 0.9)
    prompts = [encode(problem.prompt) for problem in (first, second)]
    assert groups == [
        [
            Sample(prompts[0], completions[0], solution, 1.0, False, logprobs[0], success=True),
            Sample(prompts[0], completions[1], solution, 1.0, True, logprobs[1], success=True),
        ],
        [
            Sample(prompts[1], completions[2], "<think>", 0.0, False, logprobs[2]),
            Sample(prompts[1], [], "", 0.0, True, []),
        ],
    ]
    assert sampler.calls == [([prompts[0]] * 2 + [prompts[1]] * 2, 0.6, 0.9, 48)]


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


def test_masks_and_log_probs_by_hand(tiny):
    """A stop token that is also the padding counts: `ids != pad` would drop it."""
    pad = tiny[1].pad_token_id
    samples = [
        Sample([1], [2, pad, pad], logprobs=[-1.0, -2.0, -4.0]),
        Sample([1], [7], logprobs=[-0.5], truncated=True),
    ]
    assert completion_mask(samples, "cpu").tolist() == [[1, 1, 1], [1, 0, 0]]
    assert completion_mask(samples, "cpu", True).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert sampled_logprobs(samples, "cpu").tolist() == [[-1.0, -2.0, -4.0], [-0.5, 0.0, 0.0]]


# --------------------------------------------------------------------------------- what is logged


def test_rollout_metrics_by_hand():
    """Four groups of two: all wrong, all right, and twice one of each, whatever their rewards."""
    samples = [
        Sample([1], [2], reward=-1.0, status="unparsed"),
        Sample([1], [2, 3], reward=0.5, truncated=True),
        Sample([1], [2], reward=1.0, success=True),
        Sample([1], [2], reward=0.75, success=True),
        Sample([1], [2, 3, 4], reward=1.0, success=True),
        Sample([1], [2], reward=0.0, status="timeout"),
        Sample([1], [2] * 10, reward=0.0, truncated=True, status="unparsed"),
        Sample([1], [2], reward=0.75, truncated=True, success=True),
    ]
    assert rollout_metrics(samples, 2) == {
        "reward": 3 / 8,
        "all_wrong": 1 / 4,
        "all_right": 1 / 4,
        "length": 20 / 8,
        "truncated": 3 / 8,
        "unparsed": 2 / 8,
        "timeout": 1 / 8,
    }


def test_sampler_mismatch_by_hand():
    """The trainer's log-probs less the sampler's are 0.1 and -0.4, and 0.3 in the second row."""
    samples = [Sample([1], [5, 6], logprobs=[-1.0, -2.0]), Sample([1], [7], logprobs=[-0.5])]
    logprobs = torch.tensor([[-0.9, -2.4], [-0.2, 9.0]])  # the 9.0 is padding
    mismatch = sampler_mismatch(samples, logprobs, sampled_logprobs(samples, "cpu"))
    k3 = sum(math.exp(d) - 1 - d for d in (0.1, -0.4, 0.3)) / 3
    expected = {"mismatch": 0.8 / 3, "mismatch_k3": k3, "mismatch_max_ratio": math.exp(0.3)}
    assert mismatch == pytest.approx(expected, rel=1e-4)


def test_metrics_are_those_of_all_ranks(monkeypatch):
    """This rank has a wrong group, with a difference of 0.1; the other one has a right group."""
    right = (1.0, True, 3, False, "", 1)  # reward, success, length, cut off, status, turns
    monkeypatch.setattr(rlvr.rollout.rollouts, "gather", lambda mine: mine + [right] * 2)
    metrics = rollout_metrics([Sample([1], [2])] * 2, 2)
    of_both = {"reward": 0.5, "all_wrong": 0.5, "all_right": 0.5, "length": 2}
    assert {name: metrics[name] for name in of_both} == of_both

    # of the other rank: sum of |difference|, sum of k3, tokens; and the largest difference
    sums, largest = [0.5, 0.25, 3], 0.7
    monkeypatch.setattr(
        rlvr.machine.ranks,
        "gather",
        lambda mine: [*mine, sums if isinstance(mine[0], list) else largest],
    )
    samples = [Sample([1], [5], logprobs=[-1.0])]
    mismatch = sampler_mismatch(samples, torch.tensor([[-0.9]]), sampled_logprobs(samples, "cpu"))
    expected = {
        "mismatch": (0.1 + 0.5) / 4,
        "mismatch_k3": (math.exp(0.1) - 1 - 0.1 + 0.25) / 4,
        "mismatch_max_ratio": math.exp(0.7),
    }
    assert mismatch == pytest.approx(expected, rel=1e-4)


# -------------------------------------------------------------------- what fits into the context


def policy_with(**settings):
    return SimpleNamespace(config=transformers.PreTrainedConfig(**settings))


@pytest.mark.parametrize("context, room", [(136, 36), (135, 35), (200, 100), (100, 0), (None, 999)])
def test_a_prompt_and_a_completion_have_to_fit_together(tiny, context, room):
    """A prompt of 100 tokens, of which some are tags: its text is longer. The longest counts."""
    policy = policy_with(**({"max_position_embeddings": context} if context else {}))
    problems = [Problem("1" * 8, "1"), Problem("<think></think>" * 18 + "1" * 64, "1")]
    assert room_after(policy_with(), tiny[1], problems) == math.inf
    for wanted in (1, 35, 36, 37):
        config = Config(max_completion_length=wanted)
        if wanted <= room:
            check_context(policy, tiny[1], problems, config)
            continue
        with pytest.raises(UserError) as error:
            check_context(policy, tiny[1], problems, config)
        for text in ("100 tokens", f"--max_completion_length {wanted}", f"{context}", "--max_prom"):
            assert text in str(error.value)
    if room == 0:
        with pytest.raises(UserError, match="--max_prompt_length"):
            room_after(policy, tiny[1], problems)
    elif context:
        assert room_after(policy, tiny[1], problems) == room

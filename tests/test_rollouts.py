"""Rollouts: the order of problems, completions that are graded, what is logged, what fits."""

import contextlib
import math
import random
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.machine.ranks
import rlvr.rollout.rollouts
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.machine.ranks import from_rank_0, gather
from rlvr.rollout.rollouts import check_context, rollout_metrics, room_after, sampler_mismatch
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Problem, ProblemStream, Sample
from rlvr.verify.verifiers import VERIFIERS, Verifier

import pytest
import torch
import transformers
from samples import Scripted

from common import sample_groups

PROBLEMS = [Problem(str(i), "") for i in range(10)]


def test_a_stream_passes_over_all_problems():
    """In another order each time, by the seed, however many are drawn at once."""
    stream = ProblemStream(PROBLEMS, 0)
    drawn = [problem for count in (3, 4, 7, 6) for problem in stream.draw(count)]
    for epoch in (drawn[:10], drawn[10:]):
        assert sorted(epoch, key=lambda problem: problem.prompt) == PROBLEMS != epoch
    assert drawn[:10] != drawn[10:]
    assert ProblemStream(PROBLEMS, 0).draw(20) == drawn
    assert ProblemStream(PROBLEMS, 1).draw(20) != drawn


def test_ranks_share_the_stream(monkeypatch):
    """Two ranks that draw 3 each take in turn what one process that draws 6 takes."""
    expected = ProblemStream(PROBLEMS, 0).draw(24)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    for rank in range(2):
        monkeypatch.setattr(world, "RANK", rank)
        stream = ProblemStream(PROBLEMS, 0)
        drawn = [problem for _ in range(4) for problem in stream.draw(3)]
        assert drawn == expected[rank::2]
        assert stream.position == 24


@pytest.mark.parametrize("error", [None, UserError("no such data set")])
def test_rank_0_finds_out_for_all(monkeypatch, error):
    """Such as the problems, so that all ranks have the same."""
    sent, find = [], Mock(return_value=[2, 3], side_effect=error)

    def broadcast(found):
        sent.extend(found if world.RANK == 0 else [])
        found[:] = sent

    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    for rank in (0, 1):
        monkeypatch.setattr(world, "RANK", rank)
        with pytest.raises(UserError, match=str(error)) if error else contextlib.nullcontext():
            assert from_rank_0(find, "given") == [2, 3]
    find.assert_called_once_with("given")


def test_items_of_all_ranks_come_in_the_order_of_the_ranks(monkeypatch):
    def all_gather(parts, mine):
        parts[:] = [1, 2], mine, []

    monkeypatch.setattr(world, "WORLD_SIZE", 3)
    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather)
    assert gather([3]) == [1, 2, 3]


def test_sample_groups(tiny, monkeypatch):
    """One call for all problems; a completion without a stop token is truncated, though right.

    A parenthesis is a second stop token here. The second problem has an image, and half a reward
    for each answer, before which a tool writes.
    """
    halve = Verifier(lambda text, gold: 0.5 if text else None)
    monkeypatch.setitem(VERIFIERS, "half", halve)
    first, solution = make_countdown(random.Random(0), 3)
    second = Problem("1 2 : ", "3", "half", images=(b"an image",))
    sampler = Scripted(
        tiny[1], [[f"{solution}<eos>", solution, "7*8=", ""], [")"]], tool="calculator"
    )
    sampler.stops += sampler.encode(")")
    groups = sample_groups(sampler, [first, second], 2, 0.6, 48, 0.9)
    ids = [*map(sampler.encode, [f"{solution}<eos>", solution, "7*8=56)"])]
    logprobs = [*([-1.0] * len(each) for each in ids[:2]), [*[-1.0] * 4, 0.0, 0.0, -1.0]]
    prompts = [sampler.encode(problem.prompt) for problem in (first, second)]
    right, none = dict(success=True, replies=[]), dict(replies=[], images=second.images)
    half = none | dict(replies=[range(4, 6)])
    assert groups == [
        [
            Sample(prompts[0], ids[0], solution, 1.0, False, logprobs[0], **right),
            Sample(prompts[0], ids[1], solution, 1.0, True, logprobs[1], **right),
        ],
        [
            Sample(prompts[1], ids[2], "7*8=56)", 0.5, False, logprobs[2], **half),
            Sample(prompts[1], [], "", 0.0, True, [], "unparsed", **none),
        ],
    ]
    asked = [prompts[0]] * 2 + [prompts[1]] * 2
    shown = [(), (), second.images, second.images]
    assert sampler.calls[0] == (asked, 0.6, 0.9, 48, sampler.call_ends, shown)


def test_rollout_metrics_by_hand(monkeypatch):
    """Four groups of two: all wrong, all right, and twice one of each, whatever their rewards.

    On two ranks, too, which have two groups each. A tool has written two tokens of the fifth.
    """
    samples = [
        Sample([1], [2], reward=-1.0, status="unparsed"),
        Sample([1], [2, 3], reward=0.5, truncated=True),
        Sample([1], [2], reward=1.0, success=True),
        Sample([1], [2], reward=0.75, success=True),
        Sample([1], [2, 3, 4], reward=1.0, success=True, replies=[range(1, 3)]),
        Sample([1], [2], reward=0.0, status="timeout"),
        Sample([1], [2] * 10, reward=0.0, truncated=True, status="unparsed"),
        Sample([1], [2], reward=0.75, truncated=True, success=True),
    ]
    expected = {
        "reward": 3 / 8,
        "all_wrong": 1 / 4,
        "all_right": 1 / 4,
        "length": 18 / 8,
        "turns": 9 / 8,
        "truncated": 3 / 8,
        "unparsed": 2 / 8,
        "timeout": 1 / 8,
    }
    assert rollout_metrics(samples, 2) == expected
    found = []
    monkeypatch.setattr(rlvr.rollout.rollouts, "gather", lambda mine: found.extend(mine) or found)
    assert "turns" not in rollout_metrics(samples[:4], 2)
    assert rollout_metrics(samples[4:], 2) == expected


def test_sampler_mismatch_by_hand(monkeypatch):
    """The trainer's log-probs less the sampler's are 0.1 and -0.4, and 0.3 in the second row.

    On two ranks, too, which have a row each.
    """
    sampled = torch.tensor([[-1.0, -2.0], [-0.5, 0.0]])
    logprobs = torch.tensor([[-0.9, -2.4], [-0.2, 9.0]])  # the 9.0 is padding
    own = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    k3 = sum(math.exp(d) - 1 - d for d in (0.1, -0.4, 0.3)) / 3
    expected = {"mismatch": 0.8 / 3, "mismatch_k3": k3, "mismatch_max_ratio": math.exp(0.3)}
    mismatch = sampler_mismatch(logprobs, sampled, own)
    assert mismatch == pytest.approx(expected, rel=1e-4)
    # the largest difference is found in the second row, and the sums of the first one are added
    sums = [0.5, sum(math.exp(d) - 1 - d for d in (0.1, -0.4)), 2.0]
    others = {list: sums, float: 0.1}
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda mine: [*mine, others[type(mine[0])]])
    assert sampler_mismatch(logprobs[1], sampled[1], own[1]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "context, room", [(136, 36), (101, 1), (100, 0), (None, sys.maxsize - 100)]
)
def test_a_prompt_and_a_completion_have_to_fit_together(tiny, context, room):
    """A prompt of 100 tokens, beside a shorter one. By default, one more token has to fit."""
    settings = {"max_position_embeddings": context} if context else {}
    given = SimpleNamespace(config=transformers.PreTrainedConfig(**settings)), tiny[1]
    given = *given, [Problem("1" * 8, "1"), Problem("1" * 100, "1")]
    for wanted in (1, 36, 37):
        fits = contextlib.nullcontext() if wanted <= room else pytest.raises(UserError)
        with fits:
            check_context(*given, Config(max_completion_length=wanted))
        with fits:
            assert room_after(*given, wanted) == room
    with contextlib.nullcontext() if room else pytest.raises(UserError):
        room_after(*given)
    roomy = SimpleNamespace(config=transformers.PreTrainedConfig(max_position_embeddings=150))
    check_context(roomy, None, given[2], Config(max_completion_length=48))  # encodes no prompt

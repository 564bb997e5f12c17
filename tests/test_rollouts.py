"""Rollouts: the order of problems, graded completions, what is logged, what fits, and tools."""

import random
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.machine.ranks import from_rank_0
from rlvr.rollout.noise import add_noise
from rlvr.rollout.rollouts import check_context, rollout_metrics, room_after
from rlvr.rollout.samplers import Sampler
from rlvr.rollout.turns import complete_in_turns
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Problem, ProblemStream, Sample
from rlvr.tasks.tools import TOOLS, Tool, calculate, find_call_ends
from rlvr.verify.verifiers import VERIFIERS, Verifier

import pytest
import torch
import transformers
from runs import rows
from samples import Scripted
from tokenizers.processors import TemplateProcessing

from common import decode, sample_groups

PROBLEMS = [Problem(str(i), "") for i in range(10)]


def test_a_stream_passes_over_all_problems(monkeypatch):
    stream = ProblemStream(PROBLEMS, 0)
    drawn = [problem for count in (3, 4, 7, 6) for problem in stream.draw(count)]
    for epoch in (drawn[:10], drawn[10:]):
        assert sorted(epoch, key=lambda problem: problem.prompt) == PROBLEMS != epoch
    assert drawn[:10] != drawn[10:]
    assert ProblemStream(PROBLEMS, 0).draw(20) == drawn
    assert ProblemStream(PROBLEMS, 1).draw(20) != drawn
    expected = ProblemStream(PROBLEMS, 0).draw(24)  # of which two ranks have every second one
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    for rank in range(2):
        monkeypatch.setattr(world, "RANK", rank)
        stream = ProblemStream(PROBLEMS, 0)
        drawn = [problem for _ in range(4) for problem in stream.draw(3)]
        assert drawn == expected[rank::2]
        assert stream.position == 24


def noisy_rewards(rates, groups=3, draws=1, seed=0):
    """Rewards after noise, from groups of two successes, of 0.25 and of 0: those of each draw."""
    rewards = [1.0, 1.0, 0.25, 0.0]
    group = [Sample([1], [2], reward=reward, success=reward == 1) for reward in rewards]
    stream, drawn = ProblemStream(PROBLEMS, 0), []
    for _ in range(draws):
        noisy = add_noise([group] * len(stream.draw(groups)), rates, stream, seed)
        for sample in sum(noisy, []):
            assert sample.success == (sample.reward >= 1)
        assert {tuple(sample.true_reward for sample in group) for group in noisy} == {(*rewards,)}
        drawn.append([[sample.reward for sample in group] for group in noisy])
    return drawn


def test_noise_flips_rewards_at_its_rates(monkeypatch):
    """Of some 2,000 successes, 5 standard deviations are 0.05 of the rate at most."""
    assert noisy_rewards("0,0") == [[[1, 1, 0.25, 0]] * 3]
    assert noisy_rewards("1,0") == [[[0, 0, 0.25, 0]] * 3]
    assert noisy_rewards("0,1") == [[[1, 1, 0.75, 1]] * 3]
    (groups,) = noisy_rewards("0.3,0.1", 1000)
    right, wrong = torch.tensor(groups).split(2, dim=1)
    assert (right == 0).float().mean().item() == pytest.approx(0.3, abs=0.05)
    assert ((wrong == 0.75) | (wrong == 1)).float().mean().item() == pytest.approx(0.1, abs=0.05)
    first, second = noisy_rewards("0.5,0.5", 50, draws=2)
    assert first != second and noisy_rewards("0.5,0.5", 50, seed=1)[0] != first
    assert sum(noisy_rewards("0.5,0.5", 25, draws=4), []) == first + second  # as does a resumed run
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    for rank in range(2):
        monkeypatch.setattr(world, "RANK", rank)
        assert noisy_rewards("0.5,0.5", 50)[0] == (first + second)[rank::2]


def test_only_training_has_noise(run):
    for folder, rates in (("noisy", "1,1"), ("plain", "")):
        assert run("grpo", max_steps=1, reward_noise=rates, output_dir=folder).code == 0
    noisy, plain = rows("noisy")[0], rows("plain")[0]
    assert noisy["true_reward"] == plain["reward"] == 1 - noisy["reward"]
    assert "true_reward" not in plain
    assert rows("noisy", "eval")[0] == rows("plain", "eval")[0]  # before training


def test_an_error_of_rank_0_ends_all_ranks(monkeypatch):
    sent, find = [], Mock(side_effect=UserError("no such data set"))

    def broadcast(found):
        sent.extend(found if world.RANK == 0 else [])
        found[:] = sent

    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    for rank in (0, 1):
        monkeypatch.setattr(world, "RANK", rank)
        with pytest.raises(UserError, match="no such data set"):
            from_rank_0(find, "given")
    find.assert_called_once_with("given")


def test_sample_groups(tokenizer, monkeypatch):
    """A parenthesis is a second stop token here, and tags are special ones, which are no padding.

    The second problem has a tool.
    """
    tokenizer.add_tokens(["<answer>", "</answer>", "<pad>"], special_tokens=True)
    halve = Verifier(lambda text, gold: 0.5 if text else None)
    monkeypatch.setitem(VERIFIERS, "half", halve)
    first, solution = make_countdown(random.Random(0), 3)
    second = Problem("1 2 : ", "3", "half")
    script = [[f"{solution}<pad><eos>", solution, "7*8=", ""], [")"]]
    sampler = Scripted(tokenizer, script, tool="calculator")
    sampler.stops += sampler.encode(")")
    groups = sample_groups(sampler, [first, second], 2, temperature=0.6, max_tokens=48, top_p=0.9)
    ids = [*map(sampler.encode, [f"{solution}<pad><eos>", solution, "7*8=56)"])]
    logprobs = [*([-1.0] * len(each) for each in ids[:2]), [*[-1.0] * 4, 0.0, 0.0, -1.0]]
    prompts = [sampler.encode(problem.prompt) for problem in (first, second)]
    right = dict(success=True, replies=[], problem=first)
    none = dict(replies=[], problem=second)
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
    assert sampler.calls[0] == (asked, 0.6, 0.9, 48, sampler.call_ends)


def test_rollout_metrics_by_hand(monkeypatch):
    """Four groups of two, of two ranks. A tool has written in the fifth completion."""
    samples = [
        Sample([1], [2], reward=-1.0, status="unparsed"),
        Sample([1], [2, 3], reward=0.5, truncated=True),
        Sample([1], [2], reward=1.0, success=True),
        Sample([1], [2], reward=0.75, success=True),
        Sample([1], [2, 3, 4], reward=1.0, success=True, replies=[range(1, 3)]),
        Sample([1], [2], reward=0.0, status="timeout"),
        Sample([1], [2] * 10, reward=0.0, truncated=True, status="crash"),
        Sample([1], [2], reward=0.75, truncated=True, success=True),
    ]
    expected = dict(reward=3 / 8, all_wrong=1 / 4, all_right=1 / 4, length=18 / 8, turns=9 / 8)
    expected |= dict(reward_std=((3 + 0.5**2 + 2 * 0.75**2) / 8 - 9 / 64) ** 0.5, length_max=10)
    expected |= dict(length_right=(1 + 1 + 1 + 1) / 4, length_wrong=(1 + 2 + 1 + 10) / 4)
    expected |= dict(truncated=3 / 8, unparsed=1 / 8, timeout=1 / 8, crash=1 / 8)
    assert rollout_metrics(samples, 2) == expected
    noisy = [replace(sample, true_reward=1 - sample.reward) for sample in samples]
    assert rollout_metrics(noisy, 2) == expected | {"true_reward": 5 / 8}
    found = []
    monkeypatch.setattr("rlvr.rollout.rollouts.gather", lambda mine: found.extend(mine) or found)
    assert not {"turns", "length_right"} & {*rollout_metrics(samples[:2], 2)}
    rollout_metrics(samples[2:4], 2)
    assert rollout_metrics(samples[4:], 2) == expected


def test_a_prompt_and_a_completion_have_to_fit_together(tiny):
    """A prompt of 100 tokens, beside a shorter one. A checkpoint may set no limit."""
    policy = SimpleNamespace(config=transformers.PreTrainedConfig(max_position_embeddings=136))
    problems = [Problem("1" * 8, "1"), Problem("1" * 100, "1")]
    given = policy, tiny[1], problems
    check_context(*given, Config(max_completion_length=36))
    assert room_after(*given, 36) == 36
    told = "^a prompt of 100 tokens .* of 37 exceed the policy's context of 136; lower"
    for check, wanted in ((check_context, Config(max_completion_length=37)), (room_after, 37)):
        with pytest.raises(UserError, match=told):
            check(*given, wanted)
    check_context(policy, None, problems, Config(max_completion_length=34))  # encodes none
    policy.config.max_position_embeddings = 100
    with pytest.raises(UserError):  # for not one token is left
        room_after(*given)
    policy.config = transformers.PreTrainedConfig()
    check_context(*given, Config(max_completion_length=9**9))


REPLIES = {
    "<think>7*8=56 56+1=": "57",
    "2+3*4=": "14",
    "3-9=": "-6",
    "8/3=": "8/3",  # no rounding
    "((8/3))*3=": "8",
    "1 7 * 8 =": "56",  # numbers without an operator between them are two
    "1, 7*8=": "56",
}
NO_REPLY = [
    *("7*8", "7  *8="),  # no call
    *("7*8=56", "7*8=\n"),  # one that has been answered
    *("7=", "x=", "=", ""),
    *("-7*8=", "+7*8="),  # an expression that has begun before
    *("2.5*2=", "2 ** 3*4=", "8//3*2=", "1,000+5=", "1e3+1=", "x2*3="),
    *("sqrt(4)+1=", "f(7*8=", "(2)(3)+4=", "(7*8=", "7*8)=", "7*="),
    *("6 ÷ 3+1=", "20 − 5+3=", "8/0=", "√4+5=", "2^3*4="),
    *("(" * 99_999 + "=", "(" * 9999 + "7*8" + ")" * 9999 + "="),
    *("9" * 4000 + "*" + "9" * 4000 + "=", "9" * 5000 + "*9="),
]


@pytest.mark.parametrize("text, reply", [*REPLIES.items(), *((text, None) for text in NO_REPLY)])
def test_calculate(text, reply):
    assert calculate(text) == reply


# Each: the limit, and what is written in each turn; and what comes of it: the texts, where the
# replies stand, and how many tokens were allowed in each turn.
SCENES = [
    # a reply needs room for one more token
    (6, [["7*8="]], ["7*8="], [[]], [6]),
    (7, [["7*8="], ["<eos>"]], ["7*8=56<eos>"], [[range(4, 6)]], [7, 1]),
    # behind a call without an answer the policy goes on by itself, in a turn; the last one is
    # written to its end, whatever it holds
    (
        *(48, [["7/0="]] * 7 + [["7*8=7/0="]], ["7/0=" * 7 + "7*8=7/0="]),
        *([[range(i, i) for i in range(4, 32, 4)]], [*range(48, 16, -4)]),
    ),
    # two are asked for together, and the longer one is cut at its own limit
    (
        *(14, [["1+1=", "1+1+7*8="], [")" * 10, ")" * 10]]),
        *(["1+1=2" + ")" * 9, "1+1+7*8=58" + ")" * 4], [[range(4, 5)], [range(8, 10)]], [14, 9]),
    ),
    # one that has finished is not asked again
    (
        *(20, [["1<eos>", "<think>7*8=", "9-1="], ["</think><eos>", "+2+3="], ["<eos>"]]),
        ["1<eos>", "<think>7*8=56</think><eos>", "9-1=8+2+3=13<eos>"],
        *([[], [range(5, 7)], [range(4, 5), range(10, 12)]], [20, 15, 8]),
    ),
]


@pytest.mark.parametrize("limit, script, texts, replies, rooms", SCENES)
def test_scenes(tiny, limit, script, texts, replies, rooms):
    """Each turn goes on from the ids so far. The tool's tokens have log-probs of 0."""
    sampler = Scripted(tiny[1], script, tool="calculator")
    prompts = [[i] for i in range(len(texts))]
    found = complete_in_turns(sampler, prompts, temperature=0.7, top_p=0.9, max_tokens=limit)
    assert [each.ids for each in found] == [*map(sampler.encode, texts)]
    assert [each.replies for each in found] == replies
    for each in found:
        by_tool = {position for reply in each.replies for position in reply}
        assert each.logprobs == [-1.0 * (i not in by_tool) for i in range(len(each.ids))]
    assert [call[3] for call in sampler.calls] == rooms
    offered = [bool(call[4]) for call in sampler.calls]  # the tool
    assert offered == [turn < 8 for turn in range(1, len(rooms) + 1)]
    for asked, *how in sampler.calls:
        assert how[:2] == [0.7, 0.9]
        assert all(found[i].ids[: len(ids)] == ids for i, *ids in asked)
        assert how[2] == limit - min(len(ids) for _, *ids in asked)  # so they are all
    assert not sampler.script


def test_a_tool_may_answer_a_whole_turn(tokenizer, monkeypatch):
    """It hears the whole completion. The token that begins Llama's texts is not in its reply."""
    begins = dict(special_tokens=[("<pad>", 0)])
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="<pad> $A", **begins)
    replies_to = {"1": " 2 ", "3": "no"}
    monkeypatch.setitem(TOOLS, "mine", Tool(replies_to.get, "<eos>"))
    sampler = Scripted(tokenizer, [["1<eos>"], ["3<eos>"]], tool="mine")
    (found,) = complete_in_turns(sampler, [[9]], temperature=1.0, top_p=1.0, max_tokens=48)
    assert sampler.tokenizer.decode(found.ids) == "1<eos> 2 3<eos>"
    assert found.replies == [range(2, 5)]


def test_any_token_may_end_a_call(sharp):
    """Nothing is written where nothing is asked for."""
    generate = Sampler(*sharp, Config(), decode).generate
    how = dict(temperature=0.0, top_p=1.0, max_tokens=5)
    assert generate([], **how) == ([], [])
    assert len(generate([[9]], **how, call_ends=range(24))[0][0]) == 1


def test_find_call_ends(tokenizer, monkeypatch):
    tokenizer.add_tokens(["x=", "=x", "=="])
    ends = find_call_ends(tokenizer, "calculator")
    assert [tokenizer.decode([token]) for token in ends] == ["=", "x=", "=="]
    assert find_call_ends(tokenizer, "none") == []
    monkeypatch.setitem(TOOLS, "mine", Tool(str, "</tool>"))
    with pytest.raises(UserError, match="--tool mine: a call ends with '</tool>', but no token"):
        find_call_ends(tokenizer, "mine")

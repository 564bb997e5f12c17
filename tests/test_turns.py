"""Tools and completions in several turns: what is asked for, the limits, what has a gradient.

vLLM's side is in tests/test_vllm_requests.py.
"""

import copy

import rlvr.rollout.turns
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.rollout.rollouts import sampler_mismatch
from rlvr.rollout.samplers import Sampler
from rlvr.rollout.turns import complete_in_turns
from rlvr.tasks.problems import Sample
from rlvr.tasks.tools import TOOLS, Tool, calculate, find_call_ends

import pytest
import torch
from samples import PROMPTS, Scripted, writer_of_batch
from tokenizers.processors import TemplateProcessing

import common

REPLIES = {
    "<think>7*8=56 56+1=": "57",
    "2+3*4=": "14",
    "3-9=": "-6",
    "8/3=": "8/3",  # no rounding
    "8/3*3=": "8",
    "1 7 * 8 =": "56",  # numbers without an operator between them are two
    "1, 7*8=": "56",
}
NO_REPLY = [
    "7*8",  # no call
    *("7*8=56", "7*8=\n"),  # one that has been answered
    *("7=", "x=", "=", ""),
    "-7*8=",  # an expression that has begun before
    *("2.5*2=", "2 ** 3*4=", "8//3*2=", "1,000+5=", "1e3+1=", "x2*3="),
    *("sqrt(4)+1=", "f(7*8=", "(2)(3)+4=", "(7*8=", "7*8)=", "7*="),
    *("6 ÷ 3+1=", "20 − 5+3=", "8/0="),
    *("(" * 99_999 + "=", "(" * 9999 + "7*8" + ")" * 9999 + "="),
    *("9" * 4000 + "*" + "9" * 4000 + "=", "9" * 5000 + "*9="),
]


@pytest.mark.parametrize("text, reply", [*REPLIES.items(), *((text, None) for text in NO_REPLY)])
def test_calculate(text, reply):
    assert calculate(text) == reply


# Each: the turns, the limit, what is written in each turn; and what comes of it: the texts, where
# the replies stand, and how many tokens were allowed in each turn.
SCENES = [
    # the last turn is written to its end, whatever it holds
    (1, 48, [["7*8=54<eos>", "7*8="]], ["7*8=54<eos>", "7*8="], [[], []], [48]),
    (2, 48, [["7*8="], ["+1=9<eos>"]], ["7*8=56+1=9<eos>"], [[range(4, 6)]], [48, 42]),
    # a reply needs room for one more token
    (8, 6, [["7*8="]], ["7*8="], [[]], [6]),
    (8, 7, [["7*8="], ["<eos>"]], ["7*8=56<eos>"], [[range(4, 6)]], [7, 1]),
    # behind a call without an answer the policy goes on by itself, in a turn
    (
        *(3, 48, [["7/0="], ["1 7*8="], ["<eos>"]]),
        *(["7/0=1 7*8=56<eos>"], [[range(4, 4), range(10, 12)]], [48, 44, 36]),
    ),
    # two are asked for together, and the longer one is cut at its own limit
    (
        *(8, 14, [["1+1=", "1+1+7*8="], [")" * 10, ")" * 10]]),
        *(["1+1=2" + ")" * 9, "1+1+7*8=58" + ")" * 4], [[range(4, 5)], [range(8, 10)]], [14, 9]),
    ),
    # one that has finished is not asked again
    (
        *(8, 20, [["1<eos>", "<think>7*8=", "9-1="], ["</think><eos>", "+2+3="], ["<eos>"]]),
        ["1<eos>", "<think>7*8=56</think><eos>", "9-1=8+2+3=13<eos>"],
        *([[], [range(5, 7)], [range(4, 5), range(10, 12)]], [20, 15, 8]),
    ),
]


@pytest.mark.parametrize("max_turns, limit, script, texts, replies, rooms", SCENES)
def test_scenes(tiny, monkeypatch, max_turns, limit, script, texts, replies, rooms):
    """Each turn goes on from the ids so far. The tool's tokens have log-probs of 0."""
    monkeypatch.setattr(rlvr.rollout.turns, "MAX_TURNS", max_turns)
    sampler = Scripted(tiny[1], script, tool="calculator")
    prompts = [[i] for i in range(len(texts))]
    images = [(bytes(prompt),) for prompt in prompts]
    found = complete_in_turns(sampler, prompts, 0.7, 0.9, limit, images)
    assert [each.ids for each in found] == [*map(sampler.encode, texts)]
    assert [each.replies for each in found] == replies
    for each in found:
        by_tool = {position for reply in each.replies for position in reply}
        assert each.logprobs == [-1.0 * (i not in by_tool) for i in range(len(each.ids))]
    assert [call[3] for call in sampler.calls] == rooms
    offered = [bool(call[4]) for call in sampler.calls]  # the tool
    assert offered == [turn < max_turns for turn in range(1, len(rooms) + 1)]
    for asked, *how, shown in sampler.calls:
        assert how[:2] == [0.7, 0.9]
        assert shown == [(bytes(prompt[:1]),) for prompt in asked]
        assert all(found[i].ids[: len(ids)] == ids for i, *ids in asked)
        assert how[2] == limit - min(len(ids) for _, *ids in asked)  # so they are all
    assert not sampler.script


def test_a_tool_may_answer_a_whole_turn(tiny, monkeypatch):
    """As the other side of a dialogue does. It is over where the tool has nothing to say.

    It hears the whole completion: by the last turn alone it would say no. The token with which a
    tokenizer begins a text, as Llama's does, is no part of what it says.
    """
    tokenizer, begins = copy.deepcopy(tiny[1]), dict(special_tokens=[("<pad>", 0)])
    tokenizer._tokenizer.post_processor = TemplateProcessing(single="<pad> $A", **begins)
    replies_to = {"1": " 2 ", "3": "no"}
    monkeypatch.setitem(TOOLS, "mine", Tool(replies_to.get, "<eos>"))
    sampler = Scripted(tokenizer, [["1<eos>"], ["3<eos>"]], tool="mine")
    (found,) = complete_in_turns(sampler, [[9]], 1.0, 1.0, 48, [()])
    assert sampler.tokenizer.decode(found.ids) == "1<eos> 2 3<eos>"
    assert found.replies == [range(2, 5)]


def test_a_rank_that_has_finished_goes_on_with_the_others(tiny, sharp, monkeypatch):
    """Ranks that share an engine draw together, and up to the length of the one with most room."""
    others = [4, 2, 0]
    monkeypatch.setattr(rlvr.rollout.turns, "global_max", lambda own: max(own, others.pop(0)))
    sampler = Scripted(tiny[1], [["<eos>"], [], []], tool="calculator")
    (found,) = complete_in_turns(sampler, [[9]], 1.0, 1.0, 5, [()])
    assert found.ids == [1]
    assert [(call[0], call[3]) for call in sampler.calls] == [([[9]], 5), ([], 4), ([], 2)]
    assert Sampler(*sharp, Config(), common.decode).generate([], 1.0, 1.0, 5) == ([], [])


def test_find_call_ends(tiny, monkeypatch):
    """Every token whose text ends so: models have many with an equals sign."""
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.add_tokens(["x=", "=x", "=="])
    ends = find_call_ends(tokenizer, "calculator")
    assert [tokenizer.decode([token]) for token in ends] == ["=", "x=", "=="]
    assert find_call_ends(tokenizer, "none") == []
    monkeypatch.setitem(TOOLS, "mine", Tool(str, "</tool>"))
    with pytest.raises(UserError, match="--tool mine: a call ends with '</tool>', but no token"):
        find_call_ends(tokenizer, "mine")


def test_sampler_and_trainer_agree_on_the_policys_own_tokens(sharp, monkeypatch):
    """The sampler has drawn each turn by itself. The tool's tokens count 0 on both sides."""
    monkeypatch.setitem(TOOLS, "mine", Tool(lambda text: "12", "="))
    sampler = Sampler(*sharp, Config(tool="mine"), common.decode)
    prompts = [sharp[1].encode(prompt) for prompt in PROMPTS] * 5
    torch.manual_seed(0)
    drawn = complete_in_turns(sampler, prompts, 1.0, 1.0, 20, [()] * len(prompts))
    samples = [
        Sample(each.prompt_ids, each.ids, logprobs=each.logprobs, replies=each.replies)
        for each in drawn
    ]
    assert {len(sample.replies) for sample in samples} >= {0, 1, 2}
    logprobs, entropies = common.token_logprobs(sampler.policy, samples, range(len(samples)))
    batch = common.make_batch(samples, Config(num_generations=5), writer_of_batch(None))
    assert torch.equal(batch.completion_mask > 0, entropies > 0)
    assert torch.equal(batch.loss_mask, batch.completion_mask)
    sampled = batch.sampled_logprobs
    torch.testing.assert_close(logprobs.detach(), sampled, rtol=0, atol=1e-4)
    mismatch = sampler_mismatch(logprobs.detach(), sampled, batch.completion_mask)
    assert mismatch["mismatch_max_ratio"] < 1.001

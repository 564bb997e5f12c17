"""Tools and completions in several turns: what is asked for, the limits, what has a gradient.

vLLM's side is in tests/test_vllm_requests.py.
"""

import copy
from types import SimpleNamespace

import rlvr.rollout.turns
import rlvr.show.report
import rlvr.tasks.tools
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.rollout.rollouts import rollout_metrics, sampler_mismatch
from rlvr.rollout.samplers import Sampler
from rlvr.rollout.turns import complete_in_turns
from rlvr.tasks.problems import Sample, own_tokens, padded
from rlvr.tasks.tools import TOOLS, Tool, calculate, find_call_ends

import pytest
import torch
from runs import SCRIPTS, first_fast, rows
from samples import PROMPTS

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


class Scripted:
    """A sampler whose policy writes given texts: in each call one for each prompt."""

    complete = Sampler.complete

    def __init__(self, tokenizer, script, **flags):
        self.tokenizer, self.encode, self.script = tokenizer, tokenizer.encode, [*script]
        self.config = Config(**{"tool": "calculator", **flags})
        self.stops = [tokenizer.eos_token_id]
        self.call_ends = find_call_ends(tokenizer, self.config.tool)
        self.calls = []

    def generate(self, prompts, temperature, top_p, max_tokens, call_ends, images):
        """The next texts, with log-probs of -1."""
        self.calls.append((prompts, temperature, top_p, max_tokens, [*call_ends], images))
        ids = [self.encode(text) for text in self.script.pop(0)]
        return ids, [[-1.0] * len(each) for each in ids]


# ------------------------------------------------------------------------------- the conversation


# Each: the turns, the limit, what is written in each turn; and what comes of it: the texts, where
# the replies stand, and how many tokens were allowed in each turn.
SCENES = [
    # the last turn is written to its end, and whatever it likes behind an equals sign
    (1, 48, [["7*8=54<eos>"]], ["7*8=54<eos>"], [[]], [48]),
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
    sampler = Scripted(tiny[1], script)
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

    It hears the whole completion: by the last turn alone it would say no.
    """
    replies_to = {"1": " 2 ", "3": "no"}
    monkeypatch.setitem(TOOLS, "mine", Tool(replies_to.get, "<eos>"))
    sampler = Scripted(tiny[1], [["1<eos>"], ["3<eos>"]], tool="mine")
    (found,) = complete_in_turns(sampler, [[9]], 1.0, 1.0, 48, [()])
    assert sampler.tokenizer.decode(found.ids) == "1<eos> 2 3<eos>"
    assert found.replies == [range(2, 5)]


def test_a_rank_that_has_finished_goes_on_with_the_others(tiny, sharp, monkeypatch):
    """Ranks that share an engine draw together, and up to the length of the one with most room."""
    others = [4, 2, 0]
    monkeypatch.setattr(rlvr.rollout.turns, "global_max", lambda own: max(own, others.pop(0)))
    sampler = Scripted(tiny[1], [["<eos>"], [], []])
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
    sampled = padded([sample.logprobs for sample in samples])
    own = 1.0 * own_tokens(samples)
    assert torch.equal(entropies > 0, own > 0)
    torch.testing.assert_close(logprobs.detach(), sampled, rtol=0, atol=1e-4)
    assert sampler_mismatch(logprobs.detach(), sampled, own)["mismatch_max_ratio"] < 1.001


# --------------------------------------------------------------------------------- what is counted


def test_numbers_by_hand(tiny, tmp_path):
    """Two completions of 5 and 3 tokens, of which the tool has written 2 and none."""
    samples = [
        Sample([9], [5, 6, 7, 8, 1], logprobs=[-1.0, 0, 0, -2, -3], replies=[range(1, 3)]),
        Sample([9], [5, 6, 1], logprobs=[-1.0, -2, -3], truncated=True),
    ]
    own = [[1, 0, 0, 1, 1], [1, 1, 1, 0, 0]]
    mask = 1.0 * own_tokens(samples)
    assert mask.tolist() == own
    metrics = rollout_metrics(samples, 2)
    assert metrics["length"] == 3
    assert metrics["turns"] == 1.5
    assert "turns" not in rollout_metrics(samples[1:], 1)

    # log_tokens: no numbers for the tool's tokens, which report.html underlines
    training = SimpleNamespace(policy=tiny[0], tokenizer=tiny[1])
    run = SimpleNamespace(config=Config(num_generations=2), folder=tmp_path, training=training)
    masks = dict(completion_mask=mask, loss_mask=mask)
    batch = SimpleNamespace(samples=samples, old_logprobs=-2 * mask, **masks)
    rlvr.show.report.log_tokens(run, 1, batch, torch.ones(2, 1))
    first, second = rows(tmp_path, "tokens")[0]["groups"][0]["completions"]
    for name in ("logprob", "entropy", "ratio", "advantage"):
        assert [value is not None for value in first[name]] == [bool(each) for each in own[0]]
    assert (first["by_tool"], second["by_tool"]) == ([1, 2], [])


# ------------------------------------------------------------------------------------- whole runs


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
@pytest.mark.usefixtures("no_evaluation")
def test_no_script_trains_on_the_tools_tokens(run, monkeypatch, script):
    """In every pass of every update, with all the terms that a loss can have."""
    seen = []
    plain = common.token_logprobs

    def watched(policy, samples, chosen, *given):
        own = 1.0 * own_tokens(samples)[[*chosen]]
        found = plain(policy, samples, chosen, *given)
        for values in found:
            values.register_hook(lambda gradient: seen.append((own, gradient)))
        return found

    monkeypatch.setattr(common, "token_logprobs", watched)
    terms = dict(beta=0.1, entropy_coef=0.01, num_iterations=2)
    assert run(script, tool="calculator", max_steps=1, **terms).code == 0
    assert rows("run")[0]["turns"] > 1.5
    assert len(seen) >= 2 * 2 * 2
    for own, gradient in seen:
        assert (gradient[own == 0] == 0).all()
        assert (gradient[own == 1] != 0).any()

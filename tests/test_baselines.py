"""studies/baselines.py: what it refuses, each method by its flags, and how the ranks share.

The masses are in tests/test_fade.py, Clip-Cov's mask in tests/test_cwgrpo.py, CISPO's updates in
tests/test_steps.py, and other losses in tests/test_field.py.
"""

import math
import statistics
from types import SimpleNamespace

import rlvr.machine.ranks
from rlvr import world
from rlvr.errors import UserError
from rlvr.tasks.problems import Sample

import baselines
import pytest
import torch
from baseline_advantages import grpo_lead_advantage, ha_dw, t2t
from baseline_losses import LOSSES, clip_cov_mask, icepop, soft_overlong
from baselines import ADVANTAGES, Config, Memory
from groups import f64, near
from runs import refused, rows
from test_cwgrpo import batch as random_groups
from test_fade import MASSES
from test_steps import RIGHT, batch_of, given_samples

import common

# --------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "command, message",
    [
        ("--advantage mix_pass_k", "--advantage mix_pass_k needs --k"),
        ("--advantage softmax", "--advantage softmax needs --advantage_beta"),
        ("--k 4", "--k is not for --advantage grpo"),
        ("--advantage mix_pass_k --k 5", "k must be a whole number from 1 to G = 4, got 5"),
        ("--advantage power_norm --gamma 99", "some advantages are no finite numbers"),
        ("--advantage asym_power --alpha_s 999 --alpha_f 999", "all advantages are 0"),
        ("--advantage positive_dominant --gamma 2", "--gamma is for --advantage power_norm or"),
        ("--advantage easy_focused --advantage_beta 2", "--advantage_beta is for"),
        ("--advantage ha_dw --ema_beta 1.5", "--ema_beta must be at most 1"),
        ("--token clip_cov --minibatch_size 2", "must hold whole groups"),
        ("--token high_entropy --minibatch_size 2", "must hold whole groups"),
        ("--loss cispo --variant gspo", "sequence is for --loss ppo_clip"),
        ("--use_bias_correction_kl", "--use_bias_correction_kl needs --beta"),
    ],
)
def test_one_clear_line(no_model, command, message):
    assert refused(no_model("baselines", *command.split()), "baselines", message)


def test_clip_cov_needs_whole_groups_on_each_rank(monkeypatch):
    config = Config(token="clip_cov", prompts_per_step=4, num_generations=4, minibatch_size=4)
    config.check()
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    with pytest.raises(UserError, match="whole groups"):
        config.check()


def test_list_has_a_line_for_each_method(capsys):
    baselines.list_methods()
    lines = capsys.readouterr().out.splitlines()
    names = [f"--advantage {name}" for name in ADVANTAGES] + [f"--loss {name}" for name in LOSSES]
    names += ["--token clip_cov", "--token high_entropy", "--token otb", "--importance icepop"]
    names += ["--off_policy_mask_threshold", "--use_bias_correction_kl", "--overlong_cache"]
    assert [line.split(": ")[0] for line in lines] == names
    assert len({line.split(": ")[1] for line in lines}) == len(lines)


# -------------------------------------------------------------------- each method by its flags


def root(p, q):
    return math.sqrt(p * q)


# As MASSES: parameters, and the masses of a group.
OTHERS = {
    "grpo": MASSES["grpo"],
    "rloo": ([{}], lambda p, q, n, G: p * q * G / (G - 1)),
    "batch_std": MASSES["grpo"],  # both groups have the same deviation
    "gdpo": MASSES["grpo"],  # of one reward
    "positive_dominant": ([dict(beta=3)], lambda p, q, n, G, beta: (beta * root(p, q), root(p, q))),
    "negative_dominant": ([{}], lambda p, q, n, G: (root(p, q) / 10, root(p, q))),
    "hard_focused": ([{}], lambda p, q, n, G: math.sqrt(q) / 2),
    "easy_focused": ([dict(gamma=2)], lambda p, q, n, G, gamma: gamma * math.sqrt(p)),
}


@pytest.mark.parametrize("name", ["grpo", *ADVANTAGES])
def test_each_advantage_has_its_masses_by_its_flags(name):
    """Groups with success rates of 1/4 and 3/4, whose completions are all as long.

    HA-DW's moving average is 1/2 before and after the step.
    """
    samples = [
        Sample([5], [7, 1], reward=float(r), logprobs=[-1.0] * 2, success=r == 1)
        for r in torch.tensor(RIGHT).flatten().tolist()
    ]
    settings, mass = (OTHERS | MASSES)[name]
    given = [each for each in settings if each.get("k", 1) <= 4][-1]
    given |= dict(baseline=0.5) if "baseline" in given else {}
    flags = {key: value for key, value in given.items() if key not in baselines.KNOWN}
    if "beta" in flags:
        flags["advantage_beta"] = flags.pop("beta")
    config = Config(advantage=name, num_generations=4, minibatch_size=8, **flags)
    config.check()
    advantages, found = baselines.compute_advantages(batch_of(samples), config, Memory())
    masses = [mass(n / 4, 1 - n / 4, n, 4, **given) for n in (1, 3)]
    masses = f64([m if isinstance(m, tuple) else (m, m) for m in masses]).mean(0)
    assert (found["m_S"], found["m_F"]) == pytest.approx(masses.tolist(), rel=1e-5)
    assert advantages.shape == (4, 4)


def test_the_log_schedule_of_fade():
    """Eqs. 17-18: it starts at alpha 2 and delta 1, and ends at 1.917 and 0.802.

    In the middle, log 4 / log 16 of the way is done.
    """
    assert baselines.log_schedule(3, 15, 2.0, 1.0, 1) == pytest.approx(1.5, abs=1e-12)
    config = Config(advantage="power", log_schedule=True, max_steps=20)
    for step, alpha, delta in ((0, 2.0, 1.0), (20, 1.917, 0.802)):
        found = baselines.advantage_function(config, step)(f64([[1, 0, 0, 0]]))
        success, failure = 0.75 ** (alpha - 1) * 0.75, 0.75 ** (alpha - 1) * -0.25 / delta
        near(found, f64([[success] + [failure] * 3]))
    first = baselines.try_on_groups(baselines.advantage_function(config), config)
    near(first[1, :1], torch.tensor([(1 - 1 / config.num_generations) ** 2]))


@pytest.mark.usefixtures("no_evaluation")
def test_the_rate_of_a_run_and_its_moving_average(run, resume):
    """In groups of 4 the largest |A| of HA-DW is 3/4 e^(1/2 - 1/4), where one is right.

    After each step the average is 0.9 of that before, 0.5 at first, and 0.1 of the mean reward.
    """
    average, flags = 0.5, dict(advantage="ha_dw", ema_beta=0.9, equalize_learning_rate=True)
    assert run("baselines", max_steps=1, learning_rate=1e-3, **flags).code == 0
    assert resume("baselines", "run", max_steps=2).code == 0
    for step, row in enumerate(rows("run"), 1):
        rate = 1e-3 * math.sqrt(3) / (3 / 4 * math.exp(1 / 4))
        assert row["learning_rate"] == pytest.approx(rate)
        average = 0.9 * average + 0.1 * row["reward"]
        saved = torch.load(f"run/checkpoint-{step}/state.pt")["state"]
        assert saved == {"steps": step, "mean_reward": pytest.approx(average)}
    assert average != 0.5


def test_grpo_lead_by_hand():
    """Successes of 2 and 4 tokens are worth e^0.05 and e^-0.05, and failures -1; p = 2/3.

    Where all are as long, none is better.
    """
    rewards, lengths = f64([[1, 1, 0], [1, 1, 1]]), f64([[2, 4, 9], [7, 7, 7]])
    values = math.exp(0.05), math.exp(-0.05), -1.0
    mean, std = statistics.mean(values), statistics.pstdev(values)
    w = [0.4 + 1.1 / (1 + math.exp(10 * (p - 0.75))) for p in (2 / 3, 2 / 3, 1 / 3)]
    expected = [w * (value - mean) / std for w, value in zip(w, values, strict=True)]
    near(grpo_lead_advantage(rewards, lengths), [expected, [0.0] * 3])


# --------------------------------------------------------------------------- what an advantage sees

TAGS = "<think>1+1</think><answer>2</answer>"


def advantages_of(successes, lengths=((2, 2, 2, 2),), texts=(), first=None, worth=1.0, **flags):
    """compute_advantages of one rollout of 12 tokens at most; a success has the reward `worth`."""
    lengths = torch.tensor(lengths).view(-1, 1)
    written = (torch.arange(12) < lengths).double()
    batch = SimpleNamespace(
        rewards=worth * successes,
        successes=successes,
        first_successes=successes if first is None else first,
        completion_mask=written,
        loss_mask=0 * written,  # what a completion's length is does not depend on it
        texts=lambda: texts,
    )
    config = Config(max_completion_length=12, **flags)
    return baselines.compute_advantages(batch, config, Memory())[0]


def test_what_a_batch_tells_an_advantage():
    """The moving average is of the groups as first drawn: 1 of 8 was right, and 3 of 8 are now.

    T2T's lengths are shares of the longest that is allowed, and an empty completion is of 1 token.
    """
    first, now = f64([[1, 0, 0, 0], [0, 0, 0, 0]]), f64([[0, 1, 0, 0], [1, 0, 0, 1]])
    lengths = [[3, 6, 12, 0], [3, 6, 9, 12]]
    found = advantages_of(now, lengths, first=first, worth=9.0, advantage="ha_dw", ema_beta=0.5)
    near(found, ha_dw(now, baseline=0.5 * 0.5 + 0.5 * 1 / 8))
    shares = f64([[3, 6, 12, 1], [3, 6, 9, 12]]) / 12
    near(advantages_of(now, lengths, advantage="t2t", alpha=0.5), t2t(now, shares, 0.5))
    tokens = f64(lengths)
    near(advantages_of(now, lengths, advantage="grpo_lead"), grpo_lead_advantage(now, tokens))


@pytest.mark.parametrize(
    "flags, rewards",
    [
        (dict(format_share=0.9), [1.0, 0.9, 0.1, 0.0]),  # boxed and thought, as in agrae.py
        (dict(format_weight=0.5), [1.0, 0.0, 1.5, 0.5]),  # the answer in tags, as in cwgrpo.py
        (dict(overlong_cache=4), [1.0, -0.5, 1.0, -1.0]),  # of 8, 10, 3 and 12 tokens
    ],
)
def test_what_is_added_to_a_reward(flags, rewards):
    """RLOO's advantage is 4/3 of the distance to the mean of four rewards."""
    boxed = "<think>1+1</think>\\boxed{2}"
    given = f64([[1, 0, 1, 0]]), [[8, 10, 3, 12]], [boxed, boxed, TAGS, TAGS]
    rewards = f64([rewards])
    near(advantages_of(*given, advantage="rloo", **flags), 4 / 3 * (rewards - rewards.mean()), 1e-6)


# ------------------------------------------------------------------------ losses, weights and masks


def test_the_soft_overlong_punishment():
    """DAPO's Eq. 13: a cache of 4 tokens below a limit of 12."""
    near(soft_overlong(f64([0, 8, 9, 10, 12]), 12, 4), [0, 0, -0.25, -0.5, -1])


def test_icepop_drops_what_is_far_off():
    sampled = f64([[-3.0] * 5])
    k = f64([[0.4, 0.6, 1, 4.9, 5.1]])
    near(icepop(sampled + k.log(), sampled), [[0, 0.6, 1, 4.9, 0]])


@pytest.mark.usefixtures("no_evaluation")
def test_icepops_weights_in_a_run(run, monkeypatch):
    """In place of the truncated weights, for each row once, whichever minibatch it is in."""
    batch = batch_of(given_samples())
    batch.sampler.cap = 2.0
    monkeypatch.setattr(common, "roll_out", lambda *_: batch)
    assert run("baselines", importance="icepop", max_steps=1, num_iterations=2).code == 0
    plain = torch.cat([common.token_weights(m, "sequence") for m in batch.loss_mask.split(8)])
    expected = plain * icepop(batch.old_logprobs, batch.sampled_logprobs)
    near(batch.token_weights, expected, atol=1e-7)
    assert 0 < (expected > 0).sum() < (plain > 0).sum()


def test_the_ranks_drop_the_same_tokens(monkeypatch):
    """Each rank holds every second group, in a width of its own, and gets its part of one mask.

    Clip-Cov draws for a minibatch when the loop comes to it, by the log-probs of then, and with
    another seed for each.
    """
    logprobs, advantages, mask = random_groups(19, B=4, T=30)
    mask[1::2, :, 20:] = 0  # the second rank's completions are shorter
    by_rank = [
        [logprobs[0::2], advantages[0::2], mask[0::2]],
        [logprobs[1::2, :, :20], advantages[1::2], mask[1::2, :, :20]],
    ]
    config = Config(token="clip_cov", clip_cov_fraction=0.05, num_generations=4)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda mine: by_rank)
    for rank, (own_logprobs, own_advantages, own_mask) in enumerate(by_rank):
        width = own_mask.shape[2]
        now = torch.cat([own_logprobs] * 2).flatten(0, 1), None
        batch = SimpleNamespace(
            loss_mask=torch.cat([own_mask] * 2).flatten(0, 1),
            samples=None,
            sampler=SimpleNamespace(policy=None),
            minibatches=lambda *_, **__: [[[*range(4)], [*range(4, 8)]], [[*range(8, 16)]]],
        )
        monkeypatch.setattr(world, "RANK", rank)
        monkeypatch.setattr(baselines, "frozen_logprobs", lambda *_, now=now: now)
        plain = torch.cat([own_advantages] * 2).view(-1, 1)
        of_tokens = baselines.without_extreme_tokens(batch, plain, config, seed=7)
        assert torch.equal(of_tokens, plain.expand(16, width))
        for update, _ in enumerate(batch.minibatches(config)):
            generator = torch.Generator().manual_seed(7 + update)
            keep = clip_cov_mask(logprobs, advantages, mask, 0.05, generator=generator)
            assert ((keep == 0) & (mask == 1)).sum() == int(0.05 * mask.sum())
            part, later = slice(8 * update, 8 * update + 8), slice(8 * update + 8, 16)
            own = keep[rank::2, :, :width].flatten(0, 1)
            assert torch.equal(of_tokens[part], plain[part] * own)
            assert torch.equal(of_tokens[later], plain[later].expand(-1, width))

"""studies/baselines/: what is refused, each method by its flags, and how the ranks share.

Clip-Cov's mask is in tests/test_cwgrpo.py, CISPO's updates are in tests/test_steps.py, and other
losses in tests/test_field.py.
"""

import copy
import math
from types import SimpleNamespace

from rlvr import world
from rlvr.policy import load_policies
from rlvr.training import Run

import pytest
import torch
from groups import every_group, f64, near, rollout_of, shared
from runs import before_calls, rows
from samples import by_the_logits
from test_cwgrpo import batch as random_groups
from torch.nn.utils import parameters_to_vector

import common
import fade
import grpo
from fade import fade_advantage
from studies.baselines import baselines
from studies.baselines.advantages import grpo_lead_advantage, t2t
from studies.baselines.baselines import ADVANTAGES, Config
from studies.baselines.losses import LOSSES, clip_cov_mask


def test_list_has_a_line_for_each_method(capsys):
    baselines.list_methods()
    lines = capsys.readouterr().out.splitlines()
    names = [f"--advantage {name}" for name in ADVANTAGES] + [f"--loss {name}" for name in LOSSES]
    names += ["--token clip_cov", "--token high_entropy", "--token otb", "--importance icepop"]
    names += ["--teacher"]
    names += ["--off_policy_mask_threshold", "--use_bias_correction_kl"]
    assert [line.split(": ")[0] for line in lines] == names
    assert len({line.split(": ")[1] for line in lines}) == len(lines)


def test_the_log_schedule_of_fade():
    """Eqs. 17-18: it starts at alpha 2 and delta 1, and ends at 1.917 and 0.802.

    At a third of 3 x 8500 steps alpha has log 2 / log 4 of its way.
    """
    config = Config(advantage="power", log_schedule=True, max_steps=25500)
    way = math.log(1 + 8500 / 12264) / math.log(1 + 25500 / 12264)
    points = (0, 2.0, 1.0), (8500, 2 - 0.083 / 2, 1 - 0.198 * way), (25500, 1.917, 0.802)
    for step, alpha, delta in points:
        found = baselines.advantage_function(config, step)(f64([[1, 0, 0, 0]]))
        success, failure = 0.75 ** (alpha - 1) * 0.75, 0.75 ** (alpha - 1) * -0.25 / delta
        near(found, f64([[success] + [failure] * 3]))
    first = baselines.try_on_groups(baselines.advantage_function(config), config)
    near(first[1, :1], torch.tensor([(1 - 1 / config.num_generations) ** 2]))


@pytest.mark.usefixtures("no_evaluation")
def test_a_stale_rollout(run, monkeypatch):
    """The second rollout is by the first weights, and so is pi_old; the update has its own."""
    batches, terms, ends = [], [], []

    def prepared(batch, advantages, policy, *_):
        batches.append((batch.samples, copy.deepcopy(policy)))

    def at_end(run, step):
        ends.append(parameters_to_vector(run.training.policy.parameters()).clone())

    before_calls(monkeypatch, common, "prepare_update", prepared)
    before_calls(monkeypatch, baselines, "dropped_tokens", lambda _, **given: terms.append(given))
    before_calls(monkeypatch, Run, "end_step", at_end)
    flags = dict(staleness=1, num_iterations=2, learning_rate=1e-3, microbatch_tokens=10**4)
    assert run("baselines", **flags).code == 0
    (_, first), (samples, second) = batches
    assert torch.equal(parameters_to_vector(second.parameters()), ends[0])
    for sample in samples:
        by_first, by_second = (by_the_logits(each, sample)[0] for each in (first, second))
        near(torch.tensor(sample.logprobs), by_first.detach(), atol=1e-4)
        assert (by_first - by_second).abs().max() > 1e-3
    apart = [(each["logprobs"] - each["old_logprobs"]).abs().max() for each in terms]
    assert len(apart) == 8 and apart[0] < 1e-4 < 1e-2 < min(apart[2:])  # two minibatches, twice
    assert all(each["old_logprobs"].equal(each["sampled_logprobs"]) for each in terms)


@pytest.mark.usefixtures("no_evaluation")
def test_a_teacher(run, monkeypatch):
    """Each token's advantage is log pi_teacher - log pi."""
    teacher, _, _ = load_policies(grpo.configure(model="strong"))

    def prepared(batch, advantages, policy, *_):
        assert advantages.std() > 0.1
        for sample, row in zip(batch.samples, advantages.flatten(0, 1), strict=True):
            by_teacher, by_policy = (by_the_logits(each, sample)[0] for each in (teacher, policy))
            near(row[: len(by_policy)], (by_teacher - by_policy).detach(), atol=1e-4)

    before_calls(monkeypatch, common, "prepare_update", prepared)
    assert run("baselines", teacher="strong", max_steps=1).code == 0


@pytest.mark.usefixtures("no_evaluation")
def test_the_rate_of_a_run(run):
    """In groups of 4 the largest |A| of the plain mean is 3/4, where one is right."""
    flags = dict(advantage="mean", equalize_learning_rate=True)
    assert run("baselines", max_steps=1, learning_rate=1e-3, **flags).code == 0
    (row,) = rows("run")
    assert row["learning_rate"] == pytest.approx(1e-3 * math.sqrt(3) / (3 / 4))
    start, *_, end = rows("run", "eval")
    assert start["r1"] == 0 < end["r1"]  # of the head's change


def computed(successes, lengths=2, texts=(), worth=1.0, beta=None, step=1, **flags):
    """compute_advantages of one rollout of 12 tokens at most; a success has the reward `worth`."""
    lengths = torch.as_tensor(lengths).expand(successes.shape).reshape(-1, 1)
    written = (torch.arange(12) < lengths).double()
    batch = rollout_of(
        successes,
        rewards=worth * successes,
        completion_mask=written,
        loss_mask=0 * written,  # what a completion's length is does not depend on it
        texts=lambda: texts,
    )
    config = Config(max_completion_length=12, advantage_beta=beta, **flags)
    config.check()
    return baselines.compute_advantages(batch, config, step)


def advantages_of(*given, **flags):
    return computed(*given, **flags)[0]


# Of the advantages that golden.json does not have: their flags, and the gradient mass (section 8)
# of a group of 16 with the success rate p = 1 - q; m_S and m_F where they differ.
MASSES = {
    "quantile": (dict(tau=0.25), lambda p, q: (p * (p <= 0.25), q * (p > 0.25))),
    "median": ({}, lambda p, q: (p * (p <= 0.5), q * (p > 0.5))),
    "w_reinforce": ({}, lambda p, q: (0.1 * p, q)),
    "positive_dominant": (dict(beta=3), lambda p, q: (3 * math.sqrt(p * q), math.sqrt(p * q))),
}


@pytest.mark.parametrize("name", MASSES)
def test_gradient_masses_of_section_8(name):
    """Also that the successes of a group share m_S equally, and the failures m_F."""
    flags, mass = MASSES[name]
    found = [mass(n / 16, 1 - n / 16) for n in range(17)]
    pairs = [each if isinstance(each, tuple | list) else (each, each) for each in found]
    rewards, flags, (m_S, m_F) = every_group(16), dict(advantage=name, **flags), f64(pairs).T
    advantages, logged = computed(rewards, **flags)
    near(torch.stack(fade.gradient_mass(advantages, rewards)), torch.stack([m_S, m_F]), atol=1e-13)
    assert logged == pytest.approx(dict(m_S=m_S.mean().item(), m_F=m_F.mean().item()))
    worth = shared(rewards, m_S, m_F)
    near(advantages, worth)
    near(advantages_of(rewards.flip(1), **flags), advantages.flip(1), atol=1e-14)
    near(advantages_of(rewards.float(), **flags), worth.float(), atol=2e-5)


def test_what_a_batch_tells_an_advantage():
    """T2T's lengths are shares of the longest that is allowed; an empty completion has 1 token."""
    now, lengths = f64([[0, 1, 0, 0], [1, 0, 0, 1]]), [[3, 6, 12, 0], [3, 6, 9, 12]]
    shares = f64([[3, 6, 12, 1], [3, 6, 9, 12]]) / 12
    near(advantages_of(now, lengths, advantage="t2t", alpha=0.5), t2t(now, shares, 0.5))
    tokens = f64(lengths)
    near(advantages_of(now, lengths, advantage="grpo_lead"), grpo_lead_advantage(now, tokens))
    near(advantages_of(now, worth=9.0, advantage="mean"), now - now.mean(1, keepdim=True))
    found = advantages_of(now, lengths, worth=0.5, advantage="hard_focused", scale_rewards=False)
    p = now.mean(1, keepdim=True)
    near(found, (now - p) / p.sqrt() / 4)
    near(advantages_of(now, lengths, negatives_only=True), (now - 1) * (p / (1 - p)).sqrt())
    found = advantages_of(now, step=3, advantage="power", log_schedule=True, max_steps=3)
    near(found, fade_advantage(now, 1.917, 0.802))  # at the end of its last step


@pytest.mark.parametrize(
    "flags, rewards",
    [
        (dict(format_share=0.9), [1.0, 0.9, 0.1, 0.0]),  # boxed and thought, as in agrae.py
        (dict(format_weight=0.5), [1.0, 0.0, 1.5, 0.5]),  # the answer in tags, as in cwgrpo.py
        (dict(format_weight=0.5, format_tags="think"), [1.5, 0.5, 1.5, 0.5]),
    ],
)
def test_what_is_added_to_a_reward(flags, rewards):
    """RLOO's advantage is 4/3 of the distance to the mean of four rewards."""
    texts = [f"<think>1+1</think>{answer}" for answer in ("\\boxed{2}", "<answer>2</answer>")]
    given = f64([[1, 0, 1, 0]]), [[8, 10, 3, 12]], [texts[0]] * 2 + [texts[1]] * 2
    rewards = f64([rewards])
    near(advantages_of(*given, advantage="rloo", **flags), 4 / 3 * (rewards - rewards.mean()), 1e-6)


def test_the_ranks_drop_the_same_tokens(monkeypatch):
    """This rank holds every second group, in a width of its own, and gets its part of one mask."""
    logprobs, advantages, mask = random_groups(19, B=4, T=30)
    mask[1::2, :, 20:] = 0  # this rank's completions are shorter
    own = mask[1::2, :, :20].flatten(0, 1)
    batch = SimpleNamespace(loss_mask=own, samples=None, sampler=SimpleNamespace(policy=None))
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(world, "RANK", 1)
    monkeypatch.setattr(baselines, "frozen_logprobs", lambda *_: (own, None))
    monkeypatch.setattr(baselines, "gather_groups", lambda *_: (logprobs, advantages, mask))
    config = Config(token="clip_cov", clip_cov_fraction=0.05, num_generations=4)
    plain = advantages[1::2].reshape(-1, 1)
    generator = torch.Generator().manual_seed(7)
    keep = clip_cov_mask(logprobs, advantages, mask, 0.05, generator=generator)
    assert ((keep == 0) & (mask == 1)).sum() == int(0.05 * mask.sum())
    found = baselines.token_mask(batch, [*range(8)], plain, config, seed=7)
    assert torch.equal(found, keep[1::2, :, :20].flatten(0, 1))

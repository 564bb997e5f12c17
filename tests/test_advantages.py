"""agrae.py, asymgrpo.py, fade.py, cwgrpo.py: by hand and by loops; more is in golden.json."""

import math

from rlvr.policy.models import tiny_folder

import pytest
import torch
from groups import every_group, f64, near, rollout_of
from runs import rows, weights

import agrae
import asymgrpo
import cwgrpo
import fade
from agrae import agrae_advantage, difficulty_metrics
from asymgrpo import asymgrpo_advantage, global_kappa, success_gain
from cwgrpo import covariance_statistics, covariance_weights
from fade import Config, FadeController, fade_advantage
from studies.baselines.advantages import controlled_advantage
from studies.baselines.losses import clip_cov_mask

ROOT3 = 3.0**0.5


def test_no_rescaling_at_p_0_and_1_for_a_base_advantage_that_is_not_zero():
    """A reward with a format part still varies where no answer, or every answer, is right."""
    A, p = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([0.0, 1.0])
    assert torch.equal(agrae_advantage(A, p, 0.3, group_level=False), A)
    assert torch.equal(controlled_advantage(A, p, "hard_focused"), A)
    assert torch.equal(controlled_advantage(A, p, "easy_focused"), A)


def test_difficulty_metrics_by_hand(monkeypatch):
    """Four groups, p = 0, 1/4, 1/2 and 3/4, with |A| summing to 0, 3, 4 and 5 in them."""
    successes = f64([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1]])
    advantages = f64([[0, 0, 0, 0], [-1, 1, -1, 0], [1, 1, -1, -1], [1, -2, 1, 1]])
    names = "mean_success success_factor easy_share hard_share".split()
    none = difficulty_metrics(0 * advantages, successes, 0.375, 0.25)
    assert [none[name] for name in names] == [0.375, 1.0, 0.0, 0.0]  # no share divides by 0
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [1 / 16, 1 / 8, 1 / 4]])
    found = difficulty_metrics(advantages / 32, successes, 0.375, 0.5)
    assert [found[name] for name in names] == [0.375, 0.75, (5 + 2) / 20, (3 + 4) / 20]


# by agrae.py, and by cwgrpo.py: as the prompt of App. B asks, and as App. C words it
FORMATS = [
    ("\n<think>\n2+2\n</think>\n\nIt is $\\boxed{\\frac{1}{2}}$.\n", 1, 0, 1),
    (r"<think>It is \boxed{4}</think>", 0, 0, 1),  # the answer stands behind the thought
    (r"Well: <think>2+2</think>\boxed{4}", 0, 0, 1),
    (r"<think>2+2</think>\boxed{4", 0, 0, 1),
    (r"<think>2+2</think>\boxed{4}</think>\boxed{", 1, 0, 0),  # the first ones count
    (" <think>a\nb</think>\n\n<answer>c\nd</answer>\n", 0, 1, 1),
    ("<think>a</think><answer>b</answer> so", 0, 0, 1),
    ("<think>a</think> so <answer>b</answer>", 0, 0, 1),
    ("<think>a</think><answer>b</answer><answer>c</answer>", 0, 0, 1),
    ("", 0, 0, 0),
    ("</think>a<think>", 0, 0, 0),
    ("<think><think>a</think></think>", 0, 0, 0),
]


@pytest.mark.parametrize("text, boxed, as_asked, as_worded", FORMATS)
def test_the_format(text, boxed, as_asked, as_worded):
    assert agrae.format_reward(text) == boxed
    assert cwgrpo.format_reward(text) == as_asked
    assert cwgrpo.format_reward(text, "think") == as_worded


def test_the_format_is_nine_tenths_of_the_reward(monkeypatch):
    """0.1 accuracy + 0.9 format (C.2): 1, 0.9, 0.9 and 0.1, of mean 0.725, variance 0.131875."""
    # p is that of the successes, one of four. w is that of the groups as first drawn: one of eight,
    # and none on another rank, where nothing is well-formed. Eq. 12 scales by w/2 / (1/2) +
    # (1-w)/2 / (sqrt(3)/2), and Eq. 13 leaves w / (1/2) of A > 0.
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [0.0] * len(mine[0])])
    good, bad = "<think>1+1</think>\\boxed{2}", "\\boxed{2}"
    rewards, successes = f64([[[1, 0, 0, 1]], [[1, 0, 0, 0]]])
    known = dict(rewards=rewards, first_successes=f64([[1, 0, 0, 0], [0, 0, 0, 0]]))
    batch = rollout_of(successes, texts=lambda: 3 * [good] + [bad], **known)
    found, logged = agrae.compute_advantages(batch, agrae.Config(alpha=0.5, format_share=0.9))
    w, base = 1 / 16, f64([[0.275, 0.175, 0.175, -0.625]]) / math.sqrt(0.131875)
    near(found, (w + (1 - w) / ROOT3) * torch.where(base > 0, 2 * w * base, base), atol=1e-6)
    of_batch = [logged[name] for name in "format mean_success success_factor hard_share".split()]
    assert of_batch == pytest.approx([3 / 8, w, 2 * w, 1])
    assert "format" not in agrae.compute_advantages(batch, agrae.Config())[1]


def test_global_kappa_is_a_mean_over_the_mixed_groups_of_all_ranks(monkeypatch):
    """By hand: 3/16 x 2 x log(1/3), with a gap of -1 + 3, and 3/16 x 1 x log 3."""
    # Groups that are all right or all wrong do not count. The other rank has a sum of 0.3 over one.
    rewards = f64([[1, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]])
    mean_logprobs = f64([[-1, -2, -3, -4], [-4, -1, -1, -2], [-1, -2, -2, 0], [-1, -2, -3, -5]])
    total = -3 / 16 * math.log(3)
    batch = rollout_of(rewards, rewards=rewards / 2, mean_logprobs=lambda: mean_logprobs)
    _, logged = asymgrpo.compute_advantages(batch, asymgrpo.Config())
    assert logged == pytest.approx({"kappa": total / 2}, abs=1e-15)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, [0.3, 1.0]])
    assert global_kappa(rewards, mean_logprobs) == pytest.approx((total + 0.3) / 3, abs=1e-15)


def test_success_gain_by_hand(monkeypatch):
    """Rows 0, 2, 3 and 5 succeed, with 3 + 2 + 1 + 2 tokens. Off them stand 9s."""
    successes, lengths = f64([[1, 0], [1, 1], [0, 1]]), torch.tensor([[3], [1], [2], [1], [0], [2]])
    written = (torch.arange(3) < lengths).double()
    old = torch.where(written == 1, -1.0, 9.0)
    new = torch.where(written == 1, old + f64([[0.1], [7], [0.2], [0.3], [7], [-0.7]]), -9.0)
    given = "policy", "samples", "config"
    monkeypatch.setattr(asymgrpo, "frozen_logprobs", lambda *asked: {given: (new, None)}[asked])
    batch = rollout_of(0 * successes, samples="samples", completion_mask=written, old_logprobs=old)
    assert {*success_gain(batch, "policy", "config").values()} == {0}
    batch.successes = successes
    # on another rank the 2 tokens of a single success lose 1
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, [-1.0, 2.0, 1.0]])
    total = 0.3 + 0.4 + 0.3 - 1.4 - 1.0
    expected = {"success_gain": total / 10, "success_gain_completion": total / 5}
    assert success_gain(batch, "policy", "config") == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    "settings, signal, expected",
    [
        (dict(alpha_max=7.0), (0.0, 9.0), (7.0, 1.0)),  # nothing solved: alpha would be infinite
        (dict(alpha_max=9.0, target_entropy=0.9), (0.25, 0.5), (4.5, 0.6)),
        ({}, (1.0, 0.2), (1.0, 0.3)),
        # the ablations of Figure 9: delta is 1 throughout, or alpha is, or alpha is 3, 2 and 1 at
        # twice, 1.5 times and once the target, whatever is solved
        (fade.VARIANTS["alpha-only"], (0.5, 0.0), (1.5, 1.0)),
        (fade.VARIANTS["delta-only"], (0.2, 1.0), (1.0, 0.5)),
        *((fade.VARIANTS["entropy-only"], (rate, 9.0), (3.0, 1.0)) for rate in (0.0, 1.0)),
        *((fade.VARIANTS["entropy-only"], (rate, 2.25), (2.0, 1.0)) for rate in (0.0, 1.0)),
        *((fade.VARIANTS["entropy-only"], (rate, 1.25), (1.0, 0.75)) for rate in (0.0, 1.0)),
        # by default the target is half of the first entropy, where alpha therefore is at its limit
        (dict(target_entropy=None, alpha_from_entropy=True), (0.9, 1.0), (3.0, 1.0)),
        (dict(target_entropy=None, alpha_from_entropy=True), (0.9, 0.0), (1.0, 1.0)),  # H* = 0
    ],
)
def test_the_controller_by_flags(settings, signal, expected):
    """With a past that does not count, and a target of 1.5. A tensor gives floats, too."""
    controller = FadeController(None, **dict(target_entropy=1.5, ema_beta=0.0) | settings)
    found = controller.step(*f64(signal))
    assert found == pytest.approx(expected, abs=1e-12) and {*map(type, found)} == {float}


@pytest.mark.usefixtures("no_evaluation")
def test_the_controller_and_the_head_of_a_run(run):
    """The controller has the run's flags; the head's change is that since the first policy."""
    flags = dict(target_entropy=0.1, ema_beta=0.25, alpha_max=9.0, alpha_from_entropy=True)
    assert run("fade", **flags).code == 0
    first, second = rows("run")
    solve_rate = 0.25 * (0.25 * 0.5 + 0.75 * first["reward"]) + 0.75 * second["reward"]
    assert second["solve_rate_ema"] == pytest.approx(solve_rate)
    assert second["alpha"] == pytest.approx(1 + 8 * (second["entropy_ema"] / 0.1 - 1))
    start, _, end = rows("run", "eval")
    assert (start["r1"], start["ratio"], start["srank"]) == (0, 1, 0)
    folders = tiny_folder(Config()), "run/checkpoint-2"
    before, after = (weights(folder)["lm_head.weight"] for folder in folders)
    expected = fade.rank1_statistics(after - before)
    assert {key: end[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    assert 0 < end["r1"] < 1


def test_rank1_statistics_by_hand():
    """s = 80, 20, 16, 4: 120 x 0.99 = 118.8 takes all four."""
    # s = 100, 99, 1: 200 x 0.99 = 198 takes two.
    random = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turn, tilt = torch.linalg.qr(random).Q[:, :4], torch.linalg.qr(random[:4, :4]).Q
    four = turn @ torch.diag(f64([80, 20, 16, 4])) @ tilt
    tall = torch.zeros(9000, 2)  # with more rows than are added up at once
    tall[0], tall[-1] = torch.tensor([[5000.0, 4999.0], [4999.0, 5000.0]])  # s = 9999, 1
    for weight, r1, ratio, srank in (
        (four, 6400 / 7072, 4, 4),
        (-four.T * 1e-200, 6400 / 7072, 4, 4),  # squares of 1e-200 are 0 in float64
        (-torch.diag(torch.tensor([99.0, 1.0, 100.0])), 10000 / 19802, 100 / 99, 2),
        (torch.diag(torch.tensor([3.0, 0.0])), 1, 1e8, 1),  # what is smaller counts as rounding
        (torch.zeros(6, 7), 0, 1, 0),
        (tall, 99980001 / 99980002, 9999, 1),  # 1e-8 of a square is less than float32 tells apart
    ):
        expected = {"r1": pytest.approx(r1), "ratio": pytest.approx(ratio), "srank": srank}
        assert fade.rank1_statistics(weight) == expected


def test_what_is_out_of_range_is_refused():
    for values in ((0.9, 0.4, "both"), (-0.1, 0.4), (0.9, -0.1)):
        with pytest.raises(ValueError, match=" must be .* got "):
            asymgrpo_advantage(every_group(4), *values)
    for settings in (dict(ema_beta=1.0), dict(ema_beta=-0.1), dict(alpha_max=0.5)):
        with pytest.raises(ValueError, match="0 <= ema_beta < 1 <= alpha_max"):
            FadeController(1.0, **settings)
    with pytest.raises(ValueError, match="^delta must be .* got 0.0"):
        fade_advantage(every_group(4), 2.0, 0.0)
    logprobs, advantages, mask = batch(11)
    for a, m in ((advantages[:, :1], mask), (advantages, mask[..., :1])):
        with pytest.raises(ValueError, match="BGT: "):  # they would spread over the others
            covariance_weights(logprobs, a, m)
    with pytest.raises(ValueError, match="tokens, responses or own; got 'token'"):
        covariance_weights(logprobs, advantages, mask, "token")


@pytest.mark.parametrize(
    "flags, largest",
    [
        # FADE has (1-p)^alpha of a success, at most at p = 1/8; alpha is 3 (1 - s) / (2 s) at 1/2
        (dict(), (7 / 8) ** 1.5),
        (dict(alpha_max=1.2), (7 / 8) ** 1.2),
        # its limit, since the entropy is twice its target
        (dict(alpha_from_entropy=True), (7 / 8) ** 3.0),
        # 1/2 stands for the mean of the batch: (1/2)^(alpha-1) times 1/2 for all of them
        (dict(alpha_max=1.2, batch_mean=True), 0.5**1.2),
    ],
)
def test_the_factor_of_the_learning_rate_by_hand(flags, largest):
    """lr times the largest |A| in groups of eight is as GRPO's, which is sqrt(8 - 1)."""
    config = Config(num_generations=8, equalize_learning_rate=True, **flags)
    assert fade.learning_rate_factor(config) * largest == pytest.approx(math.sqrt(7), rel=1e-6)
    assert fade.learning_rate_factor(Config(num_generations=8, **flags)) == 1


def test_what_is_logged_by_hand(monkeypatch):
    """First this rank's means 1/2, 1/4 and entropy 2 with another's, then masses and drift."""
    # The controller sees the groups as first drawn. The mean entropy is 1.5, 0.5 below its target,
    # and r_mean of the batch is 0.6, so that A is 0.4 and -0.6 / 0.5. Centred log-probs are
    # (1, 0, -1, 0), and Eq. 7 is (m_S - m_F) H - Cov = (0.1 - 0.9) H - (0.4 + 1.2) / 4.
    others = iter([[0.8, 0.95, 1.0], [0.5, 0.7, -0.1]])
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, next(others)])
    controller = FadeController(target_entropy=2.0, ema_beta=0.0, alpha_max=1.0)
    known = dict(rewards=f64([[9, 0, 0, 0]] * 2), first_successes=f64([[1, 0, 0, 1]] * 2))
    known |= dict(mean_logprobs=lambda: f64([[-1, -2, -3, -2]] * 2))
    batch = rollout_of(f64([[1, 0, 0, 0]] * 2), **known)
    _, logged = fade.compute_advantages(batch, Config(batch_mean=True), controller)
    expected = dict(alpha=1.0, delta=0.5, solve_rate_ema=(0.5 + 0.8) / 2, entropy_ema=1.5)
    expected |= dict(m_S=(0.1 + 0.5) / 2, m_F=(0.9 + 0.7) / 2)
    expected |= dict(entropy_drift=(-0.8 * 1.5 - 0.4 - 0.1) / 2)
    assert logged == pytest.approx(expected)
    # each prompt's log-probs have their own mean
    near(fade.entropy_drift(f64([[1, 0], [0, -2]]), f64([[0, -2], [-5, -7]]), 1.0), [0.0, -2.0])


def batch(seed, B=3, G=4, T=7):
    """Random log-probs, group-normalised advantages, lengths from 1 to T."""
    g = torch.Generator().manual_seed(seed)
    logprobs = -4 * torch.rand(B, G, T, generator=g, dtype=torch.float64)
    advantages = torch.randn(B, G, generator=g, dtype=torch.float64)
    advantages -= advantages.mean(1, keepdim=True)
    advantages /= advantages.std(1, keepdim=True, correction=0)
    lengths = torch.randint(1, T + 1, (B, G, 1), generator=g)
    mask = (torch.arange(T) < lengths).double()
    return logprobs, advantages, mask


def plain_covariances(logprobs, advantages, mask, means="tokens"):
    """The covariances of each group's tokens [tokens], response by response."""

    def mean(responses):
        values = responses if means == "tokens" else [x.mean(0, keepdim=True) for x in responses]
        return torch.cat(values).mean()

    groups = []
    for group in zip(logprobs, advantages, mask == 1, strict=True):
        rows = [(row[on].double(), a) for row, a, on in zip(*group, strict=True) if on.any()]
        logp, adv = [row for row, _ in rows], [torch.full_like(row, a) for row, a in rows]
        centres = [x.mean() if means == "own" else mean(logp) for x in logp]
        triples = zip(logp, centres, adv, strict=True)
        groups.append(torch.cat([(x - centre) * (a - mean(adv)) for x, centre, a in triples]))
    return groups


def plain_weights(logprobs, advantages, mask, means="tokens", padded_sum=False):
    """The formulas of section 2.3 as printed: kernel first, then the normalisation."""
    weights = torch.zeros(mask.shape, dtype=torch.float64)
    groups = plain_covariances(logprobs, advantages, mask, means)
    for i, (tokens, cov) in enumerate(zip(mask == 1, groups, strict=True)):
        kernel = (-(cov**2) / (2 * cov.var(correction=0))).exp()
        total = len(tokens) * tokens.sum(1).max() if padded_sum else len(cov)
        weights[i, tokens] = kernel * total / kernel.sum()
    return weights


def mirrored(values):
    """Log-probs and A of two responses, where token t has the covariance values[t] in both."""
    logprobs = torch.stack((-10 + f64(values), -10 - f64(values)))[None]  # [1, 2, T]
    return logprobs, f64([[1, -1]])


@pytest.mark.parametrize("padded_sum", [False, True])
@pytest.mark.parametrize("means", ["tokens", "responses", "own"])
def test_weights_equal_the_plain_loops(means, padded_sum):
    """Whatever stands off the mask, on which a response may have no token."""
    for seed, garbage in enumerate([1e30, -math.inf, math.nan]):
        logprobs, advantages, mask = batch(seed)
        mask[0, 1] = 0
        given = logprobs.masked_fill(mask == 0, garbage), advantages, mask, means, padded_sum
        near(covariance_weights(*given), plain_weights(*given), atol=1e-10)


def test_nothing_goes_through_the_weights_of_a_group_without_contrast():
    """Nor is anything NaN where a response, or a whole group, is left out of the loss."""
    logprobs, advantages, mask = batch(24, B=4)
    advantages[1] = 0  # a prompt that is always or never solved
    mask[2, 1] = 0
    mask[3] = 0
    logprobs.requires_grad_()
    assert not covariance_weights(logprobs, advantages, mask).requires_grad
    weights = covariance_weights(logprobs, advantages, mask, "own", True, detach=False)
    share = torch.arange(mask.numel(), dtype=torch.float64).view_as(mask)
    near(weights[1], mask[1] * 4 * mask[1].sum(1).max() / mask[1].sum())  # of padded_sum
    (found,) = torch.autograd.grad((share * weights).sum(), logprobs)
    assert found.isfinite().all()
    assert (found[1] == 0).all() and (found[3] == 0).all() and (found[mask == 0] == 0).all()
    assert (found[0] != 0).any() and (found[2] != 0).any()


def test_equal_covariances_give_ones():
    """Also where the rounding of a long group makes them differ."""
    logprobs = -20 - 5 * torch.rand(2, 64, 8192, generator=torch.Generator().manual_seed(0))
    ones, advantages = torch.ones_like(logprobs), torch.linspace(-1, 1, 128).view(2, 64)
    ones[:, :, -1] = 0  # off the mask
    equal_advantages, equal_logprobs = 0 * advantages + 0.37, 0 * logprobs - 0.37
    assert torch.equal(covariance_weights(logprobs, equal_advantages, ones), ones)
    assert torch.equal(covariance_weights(equal_logprobs, advantages, ones), ones)
    # two responses of one token: (x - mean)(A - mean) is (x1 - x2)(A1 - A2) / 4 for both
    pairs = logprobs[..., :2].reshape(-1, 2, 1)
    different = torch.tensor([[0.2, -0.7]]).expand(len(pairs), 2)
    assert torch.equal(covariance_weights(pairs, different, 1 + 0 * pairs), 1 + 0 * pairs)


def test_small_spreads_are_not_taken_for_none():
    """Scaling A or log-probs to a spread of 1e-6 leaves c / std."""
    logprobs, advantages, mask = batch(4)
    expected = plain_weights(logprobs, advantages, mask)
    near(covariance_weights(-1 + 1e-6 * logprobs, advantages, mask), expected, atol=1e-7)
    in_fp32 = covariance_weights(logprobs.float(), 1e-6 * advantages.float(), mask)
    near(in_fp32, expected, atol=1e-4)
    # bf16 has 8 bits, which round the log-probs and the weights, but not the covariances
    rounded = -torch.linspace(0, 1, 256).view(1, 4, 64).bfloat16()
    rounded[0, 0, 0] = -20.0
    given = f64([[1, -1, 0.5, -0.5]]), torch.ones(1, 4, 64)
    found = covariance_weights(rounded, given[0].float(), given[1])
    near(found, plain_weights(rounded.double(), *given), atol=1 / 64)


def test_far_off_covariances_do_not_underflow():
    """Of 1 and 1.01 with std 0.005 both kernels are below the smallest float, e^-402 apart."""
    logprobs, advantages = mirrored([1.0, 1.01])
    weights = covariance_weights(logprobs, advantages, torch.ones_like(logprobs))
    near(weights[0, :, 0], [2, 2], atol=1e-9)
    near((weights[0, :, 1] / weights[0, :, 0]).log(), [-402, -402], atol=1e-7)


def test_clip_cov_range_is_open_and_counts_over_the_batch():
    """Covariances 1, 5, 2, 3, 0 in the only response of both groups: 2 and 3 lie inside (1, 5)."""
    # They are centred over the batch, as if it were one group, and without the last column.
    logprobs, advantages = mirrored([1.0, 5.0, 2.0, 3.0, 0.0, 40.0])
    logprobs, advantages = logprobs.transpose(0, 1).clone(), advantages.T  # [2, 1, 6], [2, 1]
    logprobs[0, 0, 5] = math.nan
    mask = f64([1, 1, 1, 1, 1, 0]).expand_as(logprobs)
    expected = f64([1, 1, 0, 0, 1, 0]).expand_as(logprobs)
    assert torch.equal(clip_cov_mask(logprobs, advantages, mask, fraction=1.0), expected)
    # 0.3 of all 10 tokens is 3 (0.3 of the 4 eligible ones would be 1), which a generator draws.
    generator, state = torch.Generator().manual_seed(0), torch.random.get_rng_state()
    kept = [clip_cov_mask(logprobs, advantages, mask, 0.3, generator=generator) for _ in range(40)]
    assert {(keep < mask).sum().item() for keep in kept} == {3}
    assert len({str(keep) for keep in kept}) == 4
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(clip_cov_mask(logprobs, advantages, mask), mask)  # floor(2e-4 * 10) = 0
    # Without the second 0 the mean A is 1/9: times 8/9 here, and 10/9 there.
    shorter = f64([[[1, 1, 1, 1, 1, 0]], [[1, 1, 1, 1, 0, 0]]])
    kept = clip_cov_mask(logprobs, advantages, shorter, fraction=1.0)
    assert torch.equal(kept, f64([[[1, 0, 0, 0, 1, 0]], [[0, 1, 0, 0, 0, 0]]]))


@pytest.mark.parametrize(
    "means, T, garbage", [("tokens", 400, 1e30), ("responses", 7, -math.inf), ("own", 7, math.nan)]
)
def test_statistics_equal_the_plain_loops(means, T, garbage):
    """Without a response, and a group, whose tokens are all off the mask."""
    logprobs, advantages, mask = batch(14, B=4, T=T)
    mask[0, 1] = mask[3] = 0
    logprobs = logprobs.masked_fill(mask == 0, garbage)
    weights = covariance_weights(logprobs, advantages, mask, means)
    given = logprobs[:3], advantages[:3], mask[:3]
    cov = torch.cat(plain_covariances(*given, means)).tolist()
    expected = {}
    for name, sign in (("positive", 1), ("negative", -1)):
        side = sorted([c for c in cov if sign * c > 0], key=abs, reverse=True)
        for percent in (0.01, 1, 20, 40, 100):
            k = math.ceil(len(side) * percent / 100 - 1e-9)
            expected[f"covariance_{name}_top_{percent}%"] = side[k - 1]
    sizes = sorted(map(abs, cov), reverse=True)
    largest = sizes[: math.ceil(len(sizes) / 100)]
    expected["covariance_top_1%_share"] = math.fsum(largest) / math.fsum(sizes)
    used = weights[mask == 1].tolist()
    expected["effective_tokens"] = math.fsum(used) ** 2 / math.fsum(w * w for w in used)
    found = covariance_statistics(logprobs, advantages, mask, weights, means)
    assert all(type(value) is float for value in found.values())
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_statistics_without_covariances_are_zero():
    logprobs, advantages, mask = batch(17)
    found = covariance_statistics(logprobs, 0 * advantages, mask, mask)
    assert found.pop("effective_tokens") == int(mask.sum())
    assert len(found) == 11 and set(found.values()) == {0.0}
    empty = covariance_statistics(logprobs, advantages, 0 * mask, 0 * mask)
    assert len(empty) == 12 and set(empty.values()) == {0.0}


def test_the_format_is_a_part_of_the_reward(monkeypatch):
    """Rewards are 1.5, 1, 0 and 0 (App. C). On another rank no completion is well-formed."""
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [0.0]])
    good = "<think></think>"
    batch = rollout_of(f64([[1, 1, 0, 0]]), texts=lambda: [good, "b", "b", "b"])
    config = cwgrpo.Config(num_generations=4, format_weight=0.5, format_tags="think")
    advantages, logged = cwgrpo.compute_advantages(batch, config)
    near(advantages, f64([[7, 3, -5, -5]]) / math.sqrt(27), atol=1e-6)
    assert logged == {"format": 0.125}

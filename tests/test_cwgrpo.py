"""CW-GRPO's weights (section 2.3) and Clip-Cov, by hand and by loops over groups and responses."""

import math

import pytest
import torch
from groups import f64, near, rollout_of

import cwgrpo
from cwgrpo import Config, covariance_statistics, covariance_weights, format_reward
from studies.baselines.losses import clip_cov_mask


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
    """Scaling A or log-probs, in each group or of all to a spread of 1e-6, leaves c / std."""
    logprobs, advantages, mask = batch(4)
    expected = plain_weights(logprobs, advantages, mask)
    scale = f64([1e-20, 1, 1e20])[:, None]
    scaled = scale[..., None] * logprobs, scale.roll(1, 0) * advantages, mask
    near(covariance_weights(*scaled), expected, atol=1e-10)
    near(covariance_weights(-1 + 1e-6 * logprobs, advantages, mask), expected, atol=1e-7)
    in_fp32 = covariance_weights(logprobs.float(), 1e-6 * advantages.float(), mask)
    near(in_fp32, expected, atol=1e-4)


def test_far_off_covariances_do_not_underflow():
    """Of 1 and 1.01 with std 0.005 both kernels are below the smallest float, e^-402 apart."""
    logprobs, advantages = mirrored([1.0, 1.01])
    weights = covariance_weights(logprobs, advantages, torch.ones_like(logprobs))
    near(weights[0, :, 0], [2, 2], atol=1e-9)
    near((weights[0, :, 1] / weights[0, :, 0]).log(), [-402, -402], atol=1e-7)


def test_wrong_shapes_and_an_unknown_centre_are_refused():
    """Numbers of one shape too few would spread over the others in silence."""
    logprobs, advantages, mask = batch(11)
    for a, m in ((advantages[:, :1], mask), (advantages, mask[..., :1])):
        told = rf"BGT: \[3, 4, 7\], \[3, {a.shape[1]}\], \[3, 4, {m.shape[2]}\]$"
        with pytest.raises(ValueError, match=told):
            covariance_weights(logprobs, a, m)
    with pytest.raises(ValueError, match="tokens, responses or own; got 'token'"):
        covariance_weights(logprobs, advantages, mask, "token")


def test_clip_cov_range_is_open_and_counts_over_the_batch():
    """Covariances 1, 5, 2, 3, 0 in the only response of both groups: 2 and 3 lie inside (1, 5).

    They are centred over the batch, as if it were one group, and without the last column.
    """
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
    assert torch.equal(torch.stack(kept).amin(0), expected)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(clip_cov_mask(logprobs, advantages, mask), mask)  # floor(2e-4 * 10) = 0
    # Without the second 0 the mean A is 1/9: times 8/9 here, and 10/9 there.
    shorter = f64([[[1, 1, 1, 1, 1, 0]], [[1, 1, 1, 1, 0, 0]]])
    kept = clip_cov_mask(logprobs, advantages, shorter, fraction=1.0)
    assert torch.equal(kept, f64([[[1, 0, 0, 0, 1, 0]], [[0, 1, 0, 0, 0, 0]]]))
    for none_eligible in ((logprobs, 1e-3 * advantages, mask), (logprobs, advantages, 0 * mask)):
        assert torch.equal(clip_cov_mask(*none_eligible, fraction=0.5), none_eligible[2])


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
    for name, side in (
        ("positive", [c for c in cov if c > 0]),
        ("negative", [c for c in cov if c < 0]),
    ):
        side.sort(key=abs, reverse=True)
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
    alike = f64([1, -1]).repeat(1, 2, 25)  # the covariances of 100 tokens are 1 or -1
    found = covariance_statistics(alike, f64([[1, -1]]), alike.abs(), alike.abs())
    assert found["covariance_top_1%_share"] == pytest.approx(0.01)


WELL_FORMED = "<think>9*5=45</think><answer>3+9*5</answer>"


@pytest.mark.parametrize(
    "text, as_asked, as_worded",
    [  # by the prompt of App. B, and by "properly matched <think> tags" of App. C
        (WELL_FORMED, 1, 1),
        (" <think>a\nb</think>\n\n<answer>c\nd</answer>\n", 1, 1),
        ("", 0, 0),
        (f"{WELL_FORMED} so", 0, 1),
        ("<think>a</think> so <answer>b</answer>", 0, 1),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0, 1),
        ("</think>a<think>", 0, 0),
        ("<think><think>a</think></think>", 0, 0),
        ("<think>a</think>b</think>", 0, 0),
    ],
)
def test_format_reward(text, as_asked, as_worded):
    assert (format_reward(text), format_reward(text, "think")) == (as_asked, as_worded)


def test_the_format_is_a_part_of_the_reward(monkeypatch):
    """Rewards are 1.5, 1, 0 and 0 (App. C). On another rank no completion is well-formed."""
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [0.0]])
    good = "<think></think>"
    batch = rollout_of(f64([[1, 1, 0, 0]]), texts=lambda: [good, "b", "b", "b"])
    config = Config(num_generations=4, format_weight=0.5, format_tags="think")
    advantages, logged = cwgrpo.compute_advantages(batch, config)
    near(advantages, f64([[7, 3, -5, -5]]) / math.sqrt(27), atol=1e-6)
    assert logged == {"format": 0.125}

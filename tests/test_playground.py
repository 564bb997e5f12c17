"""docs/playground.html: its functions are the Python ones, and its sliders and boxes work."""

import html
import importlib
import itertools
import json
import re
from functools import partial
from types import SimpleNamespace

import rlvr.machine

import pytest
import torch
from browser import evaluate, open_page
from runs import ROOT, SCRIPTS

import cwgrpo
import fade
from grpo import grpo_advantage

PAGE = (ROOT / "docs" / "playground.html").read_text()
FORMULAS = re.search(r'<script id="formulas">(.*?)</script>', PAGE, re.S)[1]
MODULES = {script: importlib.import_module(script) for script in SCRIPTS}
BATCH = dict(mean_success=0.37)
CHOSEN = {  # flags that have a slider in the page, away from their defaults
    "agrae": dict(alpha=0.8, control_beta=7.0, control_gamma=0.3, success_weight=0.2),
    "asymgrpo": dict(beta_pos=1.3, beta_neg=0.6),
    "fade": dict(
        initial_entropy=1.1,
        entropy=0.9,
        target_entropy=0.6,
        ema_beta=0.3,
        alpha_max=4.0,
        step=700,
        max_steps=2000,
    ),
    "cwgrpo": dict(format_weight=0.5, clip_cov_fraction=1.0),
}
WEIGHT_ARGS = """power:alpha=3.5 asym:delta=0.4 t2t:alpha=0.6 analytic_pass_k:k=2 mix_pass_k:k=2
    scaled_power:alpha=1.7 easy_power:alpha=2.6 asym_power:alpha_s=2.2,alpha_f=0.7 shifted:delta=0.1
    quantile:tau=0.6 power_norm:gamma=0.3 softmax:beta=3.1 logmeanexp:beta=2.4
    ha_dw:baseline=0.3,scale=0.8"""
WEIGHT_ARGS = dict(pair.split(":") for pair in WEIGHT_ARGS.split())


@pytest.fixture
def page(tmp_path):
    """page(expression) -> its value in JavaScript, where the functions of the page are known."""
    return lambda expression: evaluate(FORMULAS, expression, tmp_path)


def make_group(size, successes, seed):
    """A group whose completions differ in length, format and log-probs, as the page holds it."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (size,), generator=generator)
    formats = torch.randint(0, 2, (size,), generator=generator)
    return dict(
        rewards=[1.0] * successes + [0.0] * (size - successes),
        lengths=lengths.tolist(),
        formats=formats.tolist(),
        logprobs=[
            (-3 * torch.rand(length, generator=generator, dtype=torch.float64)).tolist()
            for length in lengths.tolist()
        ],
    )


# of each size, with every number of successes
GROUPS = [make_group(size, k, 100 * size + k) for size in (2, 5, 8) for k in range(size + 1)]


def as_tensor(values):
    return torch.tensor([values], dtype=torch.float64)  # [1, G]


def padded(logprobs):
    """Log-probs and mask, [1, G, T] each."""
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    rows = [torch.tensor(row, dtype=torch.float64) for row in logprobs]
    return pad(rows)[None], pad([torch.ones_like(row) for row in rows])[None]


# ------------------------------------------------------------- step 2 of main, script by script


def of_a_script(script, flags, group):
    """The script's own compute_advantages, of a batch of this group alone."""
    flags.format_share = 0  # the page shows rewards of 0 and 1 alone
    flags.max_completion_length = max(group["lengths"])
    batch = SimpleNamespace(
        rewards=as_tensor(group["rewards"]),
        successes=as_tensor(group["rewards"]),
        first_successes=None,
        written=padded(group["logprobs"])[1][0],
        mean_logprobs=lambda: as_tensor([0.0] * len(group["rewards"])),
    )
    given = []
    if script == "fade":
        controller = fade.make_controller(flags)
        controller.entropy = flags.initial_entropy
        given = [controller, flags.step]
    # the mean over a batch whose other groups are not known, and whose entropy is
    means = [BATCH["mean_success"], BATCH["mean_success"], getattr(flags, "entropy", None)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rlvr.machine, "global_mean", lambda *values: means[: len(values)])
        return MODULES[script].compute_advantages(batch, flags, *given)[0]


def of_cwgrpo(flags, group):
    rewards = as_tensor(group["rewards"]) + flags.format_weight * as_tensor(group["formats"])
    advantages = grpo_advantage(rewards, flags.scale_rewards)
    logprobs, mask = padded(group["logprobs"])
    kernel = mask
    if flags.method == "cwgrpo":
        kernel = cwgrpo.covariance_weights(
            logprobs, advantages, mask, flags.means, flags.padded_sum
        )
    elif flags.method == "clip_cov":
        kernel = cwgrpo.clip_cov_mask(logprobs, advantages, mask, flags.clip_cov_fraction)
    weighted = kernel * advantages[..., None]
    if flags.method == "cwgrpo" and not flags.detach_weights:
        # what each token's log-prob moves by, where the weights' own gradient counts, too
        scale = mask / mask.sum(2, keepdim=True) / mask.shape[1]
        logprobs = logprobs.clone().requires_grad_()
        kernel = cwgrpo.covariance_weights(
            logprobs, advantages, mask, flags.means, flags.padded_sum, detach=False
        )
        ratio = (logprobs - logprobs.detach()).exp()
        (scale * ratio * kernel * advantages[..., None]).sum().backward()
        weighted = torch.where(mask > 0, logprobs.grad / scale, 0)
    return weighted.sum(2) / mask.sum(2)


def cases_of(page, script):
    """The flags of every row that the page has of a script."""
    shared = page("DEFAULTS")[script] | CHOSEN.get(script, {})
    cases = [shared | preset for preset in page("VARIANTS")[script].values()]
    if script == "fade":
        cases.append(shared | dict(batch_mean=True))
        for weight in fade.POLICY_WEIGHTS:
            cases.append(shared | dict(weight=weight, weight_args=WEIGHT_ARGS.get(weight, "")))
    if script == "cwgrpo":
        cases += [shared | dict(means=means) for means in ("responses", "own")]
        cases.append(shared | dict(padded_sum=True))
    return cases


@pytest.mark.parametrize("script", SCRIPTS)
def test_advantages_are_those_of_the_script(page, script):
    """In float64, as the page computes."""
    grid = [*itertools.product(cases_of(page, script), GROUPS)]
    calls = json.dumps([[flags, group] for flags, group in grid])
    found = page(
        f"{calls}.map(([flags, group]) => {{"
        f'const A = scriptAdvantages("{script}", flags, group, {json.dumps(BATCH)});'
        "return [A, gradientMass(A, group.rewards)]; })"
    )
    assert len(found) == len(grid) > 40
    defaults = vars(MODULES[script].Config())
    for (flags, group), (advantages, masses) in zip(grid, found, strict=True):
        config = SimpleNamespace(**(defaults | flags))
        if script == "cwgrpo":
            expected = of_cwgrpo(config, group)
        else:
            expected = of_a_script(script, config, group)
        masses_expected = torch.cat(fade.gradient_mass(expected, as_tensor(group["rewards"])))
        assert advantages == pytest.approx(expected[0].tolist(), rel=1e-9, abs=1e-9)
        assert masses == pytest.approx(masses_expected.tolist(), rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------------------- what it offers


def test_the_variants_are_those_of_the_scripts(page):
    assert page("VARIANTS") == {script: MODULES[script].VARIANTS for script in SCRIPTS}
    assert set(page("Object.keys(POLICY_WEIGHTS)")) == set(fade.POLICY_WEIGHTS)


def test_the_page_needs_no_network():
    assert not re.search(r"https?:|src=|href=|import |fetch\(|@import|url\(", PAGE)


CLICKS = """
<script>
const errors = [];
window.onerror = (message) => errors.push(message);
const slide = (name, value) => {
  const input = document.querySelector(`[data-slider="${name}"]`);
  input.value = value;
  input.oninput();
};
for (const box of document.querySelectorAll("[data-slider]"))
  for (const value of [box.max, box.min, box.defaultValue]) slide(box.dataset.slider, value);
document.querySelector('[data-row="fade --weight maxrl"]').click();
slide("The group group_size", 10);
slide("The group success_rate", 0.2);
document.title = JSON.stringify([errors, [...document.querySelectorAll("[data-name]")].map((row) =>
  [row.dataset.name, ...[...row.cells].slice(2, 6).map((cell) => cell.innerText)])]);
</script>
</body>
"""


@pytest.mark.slow
def test_sliders_and_boxes_in_a_browser(tmp_path):
    """10 completions, 2 right: GRPO gives 2 and -1/2, and MaxRL 1/p - 1 = 4 and -1."""
    clicked = tmp_path / "clicked.html"
    clicked.write_text(PAGE.replace("</body>", CLICKS))
    text = open_page(clicked)
    errors, seen = json.loads(html.unescape(re.search("<title>(.*?)</title>", text, re.S)[1]))
    assert errors == []
    rows = {name: cells for name, *cells in seen}
    minus = "\N{MINUS SIGN}"
    assert rows["grpo grpo"] == ["2.000", f"{minus}0.500", "0.400", "0.400"]
    assert rows["fade --weight maxrl"] == ["4.000", f"{minus}1.000", "0.800", "0.800"]

"""docs/playground.html: its functions are the Python ones, and its sliders and boxes work."""

import html
import importlib
import itertools
import json
import re
from functools import partial
from types import SimpleNamespace

import baselines
import pytest
import torch
from browser import evaluate, open_page
from runs import ROOT, SCRIPTS

import cwgrpo
import fade
from grpo import grpo_advantage

PAGE = (ROOT / "docs" / "playground.html").read_text()
FORMULAS = re.search(r'<script id="formulas">(.*?)</script>', PAGE, re.S)[1]
MODULES = {script: importlib.import_module(script) for script in (*SCRIPTS, "baselines")}
BATCH = dict(mean_success=0.37)
CHOSEN = {  # flags that have a slider in the page, away from their defaults
    "agrae": dict(alpha=0.8),
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
    "cwgrpo": dict(format_weight=0.5),
    "baselines": dict(clip_cov_fraction=1.0),
}
GIVEN = """power:alpha=3.5 asym:delta=0.4 t2t:alpha=0.6 
    asym_norm:delta=0.2 reinforce_offset:delta=0.3
    scaled_power:alpha=1.7 easy_power:alpha=2.6 asym_power:alpha_s=2.2,alpha_f=0.7 shifted:delta=0.1
    quantile:tau=0.6 power_norm:gamma=0.3 softmax:beta=3.1 logmeanexp:beta=2.4
    ha_dw:baseline=0.3,scale=0.8 w_reinforce:success_weight=0.2 positive_dominant:beta=7
    negative_dominant:beta=7 hard_focused:gamma=0.3 easy_focused:gamma=0.3"""
GIVEN = {
    name: {key: float(value) for key, value in (pair.split("=") for pair in pairs.split(","))}
    for name, pairs in (each.split(":") for each in GIVEN.split())
}
GIVEN["analytic_pass_k"] = GIVEN["mix_pass_k"] = dict(k=2)


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
        completion_mask=padded(group["logprobs"])[1][0],
        mean_logprobs=lambda: as_tensor([0.0] * len(group["rewards"])),
    )
    given = []
    if script == "fade":
        names = ("initial_entropy", "target_entropy", "ema_beta", "alpha_max", "alpha_from_entropy")
        controller = fade.FadeController(*(getattr(flags, name) for name in names))
        given = [controller, flags.step]
    if script == "baselines":  # the moving average of HA-DW is one of the page's arguments
        baseline = flags.given.get("baseline", 0.5)
        given = [SimpleNamespace(step=lambda *_: baseline)]
        for name, value in flags.given.items():
            setattr(flags, "advantage_beta" if name == "beta" else name, value)
    # the mean over a batch whose other groups are not known, and whose entropy is
    means = [BATCH["mean_success"], BATCH["mean_success"], getattr(flags, "entropy", None)]
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(MODULES[script], "global_mean"):
            patch.setattr(MODULES[script], "global_mean", lambda *values: means[: len(values)])
        return MODULES[script].compute_advantages(batch, flags, *given)[0]


def of_cwgrpo(flags, group):
    rewards = as_tensor(group["rewards"]) + flags.format_weight * as_tensor(group["formats"])
    advantages = grpo_advantage(rewards, flags.scale_rewards)
    logprobs, mask = padded(group["logprobs"])
    kernel = mask
    if flags.weigh_tokens:
        kernel = cwgrpo.covariance_weights(
            logprobs, advantages, mask, flags.means, flags.padded_sum
        )
    weighted = kernel * advantages[..., None]
    if flags.weigh_tokens and not flags.detach_weights:
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


def of_clip_cov(flags, group):
    advantages = grpo_advantage(as_tensor(group["rewards"]))
    logprobs, mask = padded(group["logprobs"])
    keep = baselines.clip_cov_mask(logprobs, advantages, mask, flags.clip_cov_fraction)
    return (keep * advantages[..., None]).sum(2) / mask.sum(2)


def cases_of(page, script):
    """The flags of every row that the page has of a script."""
    shared = page("DEFAULTS")[script] | CHOSEN.get(script, {})
    cases = [shared | preset for preset in page("VARIANTS").get(script, {}).values()]
    if script == "fade":
        cases.append(shared | dict(batch_mean=True))
    if script == "baselines":
        cases.append(shared | dict(token="clip_cov"))
        for name in baselines.ADVANTAGES.keys() - baselines.OF_THE_WHOLE_BATCH:
            cases.append(shared | dict(advantage=name, given=GIVEN.get(name, {})))
    if script == "cwgrpo":
        cases += [shared | dict(means=means) for means in ("responses", "own")]
        cases.append(shared | dict(padded_sum=True))
    return cases


@pytest.mark.parametrize("script", MODULES)
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
        elif vars(config).get("token") == "clip_cov":
            expected = of_clip_cov(config, group)
        else:
            expected = of_a_script(script, config, group)
        masses_expected = torch.cat(fade.gradient_mass(expected, as_tensor(group["rewards"])))
        assert advantages == pytest.approx(expected[0].tolist(), rel=1e-9, abs=1e-9)
        assert masses == pytest.approx(masses_expected.tolist(), rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------------------- what it offers


def test_the_variants_are_those_of_the_scripts(page):
    assert page("VARIANTS") == {script: MODULES[script].VARIANTS for script in SCRIPTS}
    of_a_group = [n for n in baselines.ADVANTAGES if n not in baselines.OF_THE_WHOLE_BATCH]
    assert page("Object.keys(ADVANTAGES)") == of_a_group


def test_the_page_needs_no_network():
    assert not re.search(r"https?:|src=|href=|import |fetch\(|@import|url\((?!#)", PAGE)


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
document.getElementById("all").open = true;
draw();
document.querySelector('[data-row="baselines --advantage maxrl"]').click();
slide("The group group_size", 10);
slide("The group success_rate", 0.2);
const rows = [...document.querySelectorAll("[data-name]")].map((row) =>
  [row.dataset.name, ...[...row.cells].slice(2, 6).map((cell) => cell.innerText)]);
const text = (id) => document.getElementById(id).textContent;
const sliders = () => [...document.querySelectorAll("#knobs input")].map((one) => one.value);
const ticks = () => [...document.querySelectorAll("#simple-charts text")].map((x) => x.textContent);
const buttons = (id) => [...document.getElementById(id).children];
const methods = buttons("methods").map((button) => {
  button.click();
  return [text("simple-legend"), text("group"), ticks().join(), sliders().length];
});
const experiments = buttons("experiments").map((button) => {
  button.click();
  return [text("told"), text("group"), sliders()];
});
document.title = JSON.stringify([errors, rows, methods, experiments]);
</script>
</body>
"""


@pytest.mark.slow
def test_sliders_and_boxes_in_a_browser(tmp_path):
    """10 completions, 2 right: GRPO gives 2 and -1/2, and MaxRL 1/p - 1 = 4 and -1."""
    clicked = tmp_path / "clicked.html"
    clicked.write_text(PAGE.replace("</body>", CLICKS))
    text = open_page(clicked)
    title = html.unescape(re.search("<title>(.*?)</title>", text, re.S)[1])
    errors, seen, methods, experiments = json.loads(title)
    assert errors == []
    rows = {name: cells for name, *cells in seen}
    minus = "\N{MINUS SIGN}"
    assert rows["grpo grpo"] == ["2.000", f"{minus}0.500", "0.400", "0.400"]
    assert rows["baselines --advantage maxrl"] == ["4.000", f"{minus}1.000", "0.800", "0.800"]
    # GRPO beside one method, with three sliders, on axes that are the same for all
    legends, groups, ticks, counts = zip(*methods, strict=True)
    assert legends == ("GRPO A-GRAE", "GRPO AsymGRPO", "GRPO FADE", "GRPO CW-GRPO")
    assert {*counts} == {3} and len({*groups}) == 4 and len({*ticks}) == 1
    told, groups, sliders = zip(*experiments, strict=True)
    assert sliders == (["8", "0.13", "0.9"], ["16", "0.25", "0.2"], ["16", "0.75", "0.2"])
    for number in ("2.65", "5.76"):  # 7^0.5 and 7^0.9
        assert f"a success {number}" in groups[0] and number in told[0]
    assert "alpha = 3.00" in groups[2] and "alpha = 3" in told[2]

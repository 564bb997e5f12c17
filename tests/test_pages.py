"""The pages of docs/: their numbers are Python's, and they open on a phone without an error."""

import importlib
import inspect
import json
import math
import re
from functools import partial
from pathlib import Path

from rlvr.show.report import PAGE as PAGE_OF_REPORT

import pytest
import torch
from browser import evaluate, open_page
from groups import every_group, f64, near
from runs import ROOT, SCRIPTS, module_of
from torch.nn.utils.rnn import pad_sequence

from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import FadeController, fade_advantage, gradient_mass
from grpo import grpo_advantage, negative_only
from studies.baselines import baselines
from studies.tours import front_page

DOCS = ROOT / "docs"
PAGE, PLAYGROUND = ((DOCS / f"{name}.html").read_text() for name in ("index", "playground"))
NUMBERS = front_page.numbers_in(PAGE)
TOURS = [f"tours/{script}.html" for script in SCRIPTS]


@pytest.fixture
def front(tmp_path):
    """front(expression) -> its value in JavaScript, beside the functions of both pages."""
    scripts = re.findall(
        r'<script id="(?:formulas|methods-of-the-page)">(.*?)</script>', PAGE, re.S
    )
    return partial(evaluate, tmp_path, "\n".join(scripts))


def test_the_page_is_its_template_with_its_numbers():
    """`python studies/tours/front_page.py` makes it anew."""
    assert front_page.make_page(NUMBERS) == PAGE
    assert len(PAGE) < 600_000
    for page in (PAGE, PLAYGROUND):
        assert not re.search(r"src=|@import|url\((?!#)|fetch\(", page)
        assert {*re.findall(r"https?://[\w.]+", page)} <= {"https://arxiv.org"}
    links = re.findall(r'href="([^"#]+)"', PAGE)
    assert len(links) > 10 and all((DOCS / link).exists() for link in links)
    right = [one["right"] for one in NUMBERS["completions"]]
    assert len(right) == 8 and sum(right) in range(2, 5)
    assert PAGE.count("three seeds") == 2 and len(NUMBERS["curves"]["pass@1"]) == 3
    assert f" in {len((DOCS / 'nano.py').read_text().splitlines())} lines." in PAGE


def test_the_report_is_one_that_a_run_leaves_today(run):
    """`python grpo.py --output_dir runs/grpo` has left it there; it names no place of a machine."""
    text = (DOCS / "report.html").read_text()
    before, after = PAGE_OF_REPORT.read_text().split("DATA_OF_THE_RUNS")
    assert text.startswith(before) and text.endswith(after)
    assert len(text) < 1_000_000 and not re.search("/(?:home|root|tmp|work)/", text)
    assert run("grpo", log_tokens=1).code == 0
    (kept,), (now,) = map(front_page.numbers_in, (text, Path("run/report.html").read_text()))
    groups = [each["steps"][0]["groups"][0] for each in (kept, now)]
    for one, other in ((kept, now), groups, [group["completions"][0] for group in groups]):
        assert one.keys() == other.keys()


def test_advantages_weights_and_the_clip_are_those_of_the_scripts(front):
    """Three right of eight; ratios of 1.5 to 0.5, held where they have gone far along A."""
    group, rewards = [1] * 3 + [0] * 5, f64([[1] * 3 + [0] * 5])
    settings, A = dict(w=0.4, alpha=1.7, delta=0.6), grpo_advantage(rewards)
    expected = {
        "GRPO": A,
        "A-GRAE": agrae_advantage(A, rewards.mean(1), 0.4),
        "AsymGRPO": asymgrpo_advantage(rewards),
        "FADE": fade_advantage(rewards, 1.7, 0.6),
        "CW-GRPO": A,
    }
    logprobs = [one["logprobs"][0][: 5 + i] for i, one in enumerate(NUMBERS["completions"])]
    clips = [(ratio, a) for ratio in (1.5, 1.1, 0.9, 0.5) for a in (1, -1)]
    *found, weights, alike, held = front(
        f"[...{[*expected]}.map((name) => ADVANTAGE_OF[name]({group}, {json.dumps(settings)})), "
        f"...{[group, [1] * 8]}.map((each) => tokenWeights('CW-GRPO', each, {logprobs})), "
        f"{[[math.log(ratio) - 1, a] for ratio, a in clips]}"
        ".map(([logp, a]) => clipping(-1, logp, a, 0.2))]"
    )
    near(f64(found), torch.cat([*expected.values()]), atol=1e-9)
    padded = pad_sequence([*map(f64, logprobs)], True, padding_value=1.0)[None]
    of_tokens = covariance_weights(padded, A, padded < 1)[padded < 1]
    near(f64(sum(weights, [])), of_tokens, atol=1e-9)
    assert {*sum(alike, [])} == {1}
    assert [bool(one["clipped"]) for one in held] == [True, *[False] * 6, True]
    assert [one["ratio"] for one in held] == pytest.approx([ratio for ratio, _ in clips])


EQUATION = r"[:=] ([\d.()/ ^\u00d7\u2212\u221a+]+) = (?=([+\u2212]?[\d.]+))"  # left, right


def value_of(text):
    for sign, python in (("\u2212", "-"), ("\u00d7", "*"), ("^", "**")):
        text = text.replace(sign, python)
    return eval(re.sub("\u221a(\\([^)]*\\)|[\\d.]+)", r"(\1)**0.5", text))


def test_the_arithmetic_follows_from_the_numbers_shown(front):
    """Every `= number` on the page is what stands left of it, rounded to the digits shown."""
    settings = [dict(zip(("w", "alpha", "delta"), row, strict=True)) for row in NUMBERS["settings"]]
    names = ["GRPO", "A-GRAE", "AsymGRPO", "FADE", "CW-GRPO"]
    groups = [[1] * k + [0] * (8 - k) for k in range(9)]
    grid = [(name, group, step) for name in names for group in groups for step in settings[::10]]
    found = front(f"{json.dumps(grid)}.map(([name, group, step]) => worked(name, group, step))")
    checked = 0
    for case, lines in zip(grid, found, strict=True):
        text = "\n".join(f"{line}{''.join(value)}" for _, line, *value in lines)
        for left, right in re.findall(EQUATION, text, re.M):
            half = 0.5 * 10 ** -len(right.partition(".")[2])
            assert abs(value_of(left) - value_of(right)) <= half + 1e-9, (case, text)
            checked += 1
    assert checked > 700


# On playground.html: of five, none to all are right; the mean success of the batch is 0.37.
REWARDS, FORMATS, LENGTHS = every_group(5), [1, 0, 1, 0, 0], [4, 2, 3, 1, 4]
LOGPROBS = -6 * torch.rand(6, 5, 4, generator=torch.Generator().manual_seed(0)).double()
GROUPS = [
    dict(rewards=rewards, lengths=LENGTHS, formats=FORMATS, logprobs=logprobs)
    for rewards, logprobs in zip(REWARDS.tolist(), LOGPROBS.tolist(), strict=True)
]
A, WELL_FORMED = grpo_advantage(REWARDS), grpo_advantage(REWARDS + 0.5 * f64([FORMATS]))
ODDS = dict(beta_pos=1.3, beta_neg=0.6)
FADE = dict(initial_entropy=1.1, entropy=0.9, ema_beta=0.3, alpha_max=4.0)


def of_tokens(advantages, *options):
    """CW-GRPO's w A of each token, and what a gradient through w adds to it."""
    logprobs = LOGPROBS.clone().requires_grad_()
    weights = covariance_weights(logprobs, advantages, torch.ones_like(logprobs), *options)
    found = weights * advantages[..., None]
    if found.requires_grad:
        found = found + torch.autograd.grad(found.sum(), logprobs)[0]
    return found.detach()


def of_fade(target, mean=None, by_entropy=False):
    alpha, delta = FadeController(1.1, target, 0.3, 4.0, by_entropy).step(0.37, 0.9)
    return fade_advantage(REWARDS, alpha, delta, mean)


of_agrae = partial(agrae_advantage, success_rate=REWARDS.mean(1), mean_success=0.37, alpha=0.8)
CASES = [
    ("grpo", dict(scale_rewards=False), grpo_advantage(REWARDS, False)),
    ("grpo", dict(negatives_only=True), negative_only(A)),
    ("agrae", dict(alpha=0.8), of_agrae(A)),
    ("agrae", dict(alpha=0.8, sample_level=False), of_agrae(A, sample_level=False)),
    ("agrae", dict(alpha=0.8, group_level=False), of_agrae(A, group_level=False)),
    *(
        ("asymgrpo", dict(**ODDS, flip=flip), asymgrpo_advantage(REWARDS, **ODDS, flip=flip))
        for flip in ("none", "positive", "negative")
    ),
    ("fade", FADE | dict(target_entropy=1.2), of_fade(1.2)),
    ("fade", FADE | dict(target_entropy=2, batch_mean=True), of_fade(2, 0.37)),
    ("fade", FADE | dict(target_entropy=0.6, alpha_from_entropy=True), of_fade(0.6, None, True)),
    ("cwgrpo", dict(format_weight=0.5), of_tokens(WELL_FORMED).mean(2)),
    ("baselines", dict(token="clip_cov", clip_cov_fraction=0), A),
]
# arguments without a default
NEEDED = dict(k=3, alpha=0.5, delta=0.25, alpha_s=2.0, alpha_f=1.5, tau=0.3, gamma=0.25, beta=2.0)
NEEDED |= dict(baseline=0.5)


def test_the_playground_has_what_the_scripts_have(front, tmp_path):
    """Presets, and the advantages of the scripts and of the other methods."""
    names = [name for name in baselines.ADVANTAGES if name not in baselines.OF_THE_WHOLE_BATCH]
    assert f"worth {7**0.5:.2f}, in AsymGRPO {7**0.9:.2f}." in PLAYGROUND  # the odds are 7 : 1
    assert f"alpha = {FadeController(1.0, 0.5, 0.02).step(0.2, 0.4)[0]:.0f}, and a" in PLAYGROUND
    presets = {script: importlib.import_module(script).VARIANTS for script in SCRIPTS}
    *found, flags, sliders = front("[VARIANTS, Object.keys(ADVANTAGES), DEFAULTS, SLIDERS]")
    assert found == [presets, names]
    for script, shown in flags.items():
        shown |= {name: first for name, (*_, first) in sliders.get(script, {}).items()}
        own = vars(module_of(script).Config())
        assert all(own.get(name, value) in (value, None) for name, value in shown.items()), script
    lengths = f64([LENGTHS]).expand(6, -1)
    known = dict(rewards=REWARDS, advantages=A, success_rate=REWARDS.mean(1))
    known |= dict(lengths=lengths, shares=lengths / 4)
    calls, expected = [case[:2] for case in CASES], [case[2] for case in CASES]
    for name in names:
        function = baselines.ADVANTAGES[name]
        given = {
            each.name: NEEDED[each.name] if each.default is each.empty else each.default
            for each in inspect.signature(function).parameters.values()
            if each.name not in known
        }
        calls.append(["baselines", dict(advantage=name, given=given)])
        expected.append(baselines.call(partial(function, **given), **known))
    found = front(
        f"{json.dumps(calls)}.map(([script, flags]) => {json.dumps(GROUPS)}.map((group) => "
        "scriptAdvantages(script, {...DEFAULTS[script], ...flags}, group, {mean_success: 0.37})))"
    )
    near(f64(found), torch.stack(expected), atol=1e-9)
    # A_t of CW-GRPO; of 10 covariances, 1, 5, 2, 3 and 0 twice, 3 of 4 are drawn, and all 4
    logprobs = [[-9, -5, -8, -7, -10], [-11, -15, -12, -13, -10]]
    masses, plain, released, *shares = front(
        "[...[(group, A) => gradientMass(A, group.rewards), "
        "...[DEFAULTS.cwgrpo, VARIANTS.cwgrpo.released]"
        ".map((flags) => (group, A) => tokenAdvantages(flags, group.logprobs, A))]"
        f".map((f) => {json.dumps(GROUPS)}.map((group, i) => f(group, {A.tolist()}[i]))), "
        f"...[0.35, 1].map((fraction) => clipCovShare({logprobs}, [1, -1], fraction))]"
    )
    near(f64(masses).T, torch.stack(gradient_mass(A, REWARDS)), atol=1e-9)
    near(f64(plain), of_tokens(A), atol=1e-9)
    near(f64(released), of_tokens(A, "own", True, False), atol=1e-9)
    assert shares == [[[1, 1, 0.25, 0.25, 1]] * 2, [[1, 1, 0, 0, 1]] * 2]
    # a failure is more surprising than a success, and each chart has its mass
    script = "const [[success], [failure]] = makeGroup(2, 1).logprobs;"
    script += "const seen = [success / failure, ...Object.keys(QUANTITIES).slice(2)"
    script += ".map((m) => [m[2], QUANTITIES[m]({ masses: 'SF' })])];"
    _, (share, *masses) = open_page(tmp_path, PLAYGROUND, script)
    assert share == pytest.approx(0.4 / 0.6) and masses == [["S", "S"], ["F", "F"]]


def test_what_the_front_page_says(tmp_path):
    """Means over the seeds, the answers after step 60, and FADE at step 1, by its numbers."""
    shown = ["story", "answers-head", "chart-pass", "worked-method", "token"]
    script = 'state.method = "FADE"; drawMethod(); '
    script += f"const seen = {shown}.map((id) => byId(id).textContent);"
    script += "for (const { mark, spans } of rowsOf.advantage)"
    script += "  seen.push([mark.textContent, spans[0].style.backgroundColor]);"
    _, (story, answers, chart, worked, token, *tints) = open_page(tmp_path, PAGE, script)
    assert {(mark, color[11:15]) for mark, color in tints} == {("✓", "good"), ("✗", "bad)")}
    sign, limit = re.search("1 ([+\u2212]) \u03b5 = ([\\d.]+): clipped", token).groups()
    assert float(limit) == pytest.approx(value_of(f"1 {sign} {NUMBERS['epsilon']}"))
    for key in ("pass@1", "pass@16"):
        first, *_, last = (sum(seeds) / 3 for seeds in zip(*NUMBERS["curves"][key], strict=True))
        assert f"{key}, {'rises' if last > first else 'falls'} from {first:.2f} to" in story
        assert f"{key} = {last:.2f}" in chart
    right = [text.split("<answer>")[1] for text, success in NUMBERS["answers"]["60"] if success]
    assert f"{len(right)} of 8 are right, with {len({*right})} different" in answers
    _, alpha, delta = NUMBERS["settings"][0]
    assert f"α = {alpha:.3f}    δ = {delta:.3f}" in worked


USE_ALL = """
const root = document.documentElement;
const seen = [root.scrollWidth];
for (const closed of document.querySelectorAll("details")) closed.open = true;
for (const input of document.querySelectorAll("input[type=range]"))
  for (const value of [input.max, input.min]) {
    input.value = value;
    input.dispatchEvent(new Event("input"));
  }
for (const control of [...document.querySelectorAll("button, input[type=checkbox]")].slice(0, 99))
  control.click();
seen.push(root.scrollWidth, root.clientWidth, document.body.textContent.length);
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "playground.html", *TOURS])
def test_on_a_phone(name, tmp_path):
    """As a page opens, and when all sliders and buttons have been used."""
    errors, (*widths, length) = open_page(tmp_path, (DOCS / name).read_text(), USE_ALL)
    assert errors == [] and len({*widths}) == 1 and length > 1000

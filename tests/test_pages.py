"""The pages of docs/: their numbers are Python's, and they open on a phone; tours; docs/nano.py."""

import importlib
import inspect
import json
import math
import random
import re
import sys
from functools import partial
from pathlib import Path

from rlvr.show.report import PAGE as PAGE_OF_REPORT
from rlvr.verify.answers import verify_countdown

import pytest
import torch
from browser import evaluate, open_page
from groups import every_group, f64, near
from runs import ROOT, SCRIPTS, countdown_problems, left_as_it_was, module_of
from torch.nn.utils.rnn import pad_sequence

import common
from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import FadeController, fade_advantage, gradient_mass
from grpo import grpo_advantage, negative_only
from studies.baselines import baselines
from studies.tours import tour

DOCS = ROOT / "docs"
TOURS = [f"tours/{script}.html" for script in SCRIPTS]
PAGE, PLAYGROUND = ((DOCS / f"{name}.html").read_text() for name in ("index", "playground"))


def numbers_in(page):
    """What a page was made from."""
    return json.loads(page.split('application/json">')[1].split("</script>")[0])


NUMBERS = numbers_in(PAGE)


@pytest.fixture
def front(tmp_path):
    """front(expression) -> its value in JavaScript, beside the functions of both pages."""
    scripts = re.findall(
        r'<script id="(?:formulas|methods-of-the-page)">(.*?)</script>', PAGE, re.S
    )
    return partial(evaluate, tmp_path, "\n".join(scripts))


def test_the_front_page_stands_alone():
    """Its formulas are a copy of the playground's."""
    copy, formulas = (page.split('id="formulas">')[1] for page in (PAGE, PLAYGROUND))
    assert copy.split("</script>")[0] == formulas.split("</script>")[0]
    assert len(PAGE) < 600_000
    for page in (PAGE, PLAYGROUND):
        assert not re.search(r"src=|@import|url\((?!#)|fetch\(", page)
        assert {*re.findall(r"https?://[\w.]+", page)} <= {"https://arxiv.org"}
    links = re.findall(r'href="([^"#]+)"', PAGE)
    assert len(links) > 10 and all((DOCS / link).exists() for link in links)
    assert PAGE.count("three seeds") == 2 and len(NUMBERS["curves"]["pass@1"]) == 3
    nano = (DOCS / "nano.py").read_text()  # which imports nothing of this project
    assert f" in {len(nano.splitlines())} lines." in PAGE
    imported = re.findall(r"^ *(?:import|from) (\w+)", nano, re.M)
    assert imported == ["random", "re", "sys", "pathlib", "torch", "transformers"]


def test_the_report_is_one_that_a_run_leaves_today(run):
    """`python grpo.py --num_threads 1` has left it there; it names no place of a machine."""
    text = (DOCS / "report.html").read_text()
    before, after = PAGE_OF_REPORT.read_text().split("DATA_OF_THE_RUNS")
    assert text.startswith(before) and text.endswith(after)
    assert len(text) < 1_000_000 and not re.search("/(?:home|root|tmp|work)/", text)
    assert run("grpo", log_tokens=1).code == 0
    (kept,), (now,) = map(numbers_in, (text, Path("run/report.html").read_text()))
    (one, *_), (other, *_) = (each["steps"][0]["groups"][0]["completions"] for each in (kept, now))
    assert kept.keys() == now.keys() and one.keys() == other.keys()


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
        if case[0] == "AsymGRPO":  # of the formula, too
            assert {*re.findall(r"\^([\d.]+)", text)} == {"0.9", "0.4"}
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
    # three of six are right: quantiles of 40 tokens, lengths of 100 to 50, two failures in format
    script = "const { logprobs, lengths, formats } = makeGroup(6, 3);"
    script += "const seen = [[logprobs[0][0], logprobs[3][0], lengths, formats, roundTicks([7])]];"
    script += "seen[0].push(cell([1, 3]));"
    script += "seen.push(Object.values(QUANTITIES)"
    script += ".map((f) => f({ ofSuccesses: [1], ofFailures: [2], masses: [3, 4] })));"
    script += "choose('fade'); seen.push(document.getElementById('group').textContent);"
    script += "document.querySelector('#experiments button').click();"
    script += "document.getElementById('all').open = true; draw();"
    script += "const { cells } = document.querySelector('[data-name$=\" reinforce\"]');"
    script += "seen.push([...cells].slice(2, 6).map((cell) => cell.textContent));"
    script += "for (const svg of document.querySelectorAll('#simple-charts svg')) seen.push(["
    script += "...svg.querySelector('polyline').getAttribute('points').split(' ').slice(0, 2), "
    script += "svg.querySelector('[stroke-dasharray=\"3 3\"]').getAttribute('x1')]);"
    script += "const box = document.querySelector('#table input'); box.click();"
    script += "const { activeElement } = document;"
    script += "seen.push(activeElement !== box && activeElement.dataset.row === box.dataset.row);"
    script += "seen.push(document.getElementById('group').textContent);"
    _, seen = open_page(tmp_path, PLAYGROUND, script)
    made, shown, fade, table, *charts, keeps_focus, group = seen
    assert re.search(r"^1 of 8 is right.*a success \d.*a failure \u2212", group) and keeps_focus
    surprises = [pytest.approx(mean * math.log(79 / 80)) for mean in (0.4, 0.6)]
    of_cell = "2.000<br><small>1.000 to 3.000</small>"
    assert made == [*surprises, [100, 75, 50] * 2, [1, 1, 1, 1, 1, 0], [0, 2, 4, 6, 8], of_cell]
    assert shown == [1, 2, 3, 4] and table == ["1.000", "\u22121.000", "0.125", "0.875"]
    assert fade.endswith("alpha = 1.50 and delta = 0.91.")  # H is 0.02 + 0.98 * 0.4
    # p is 1/8 of 380 pixels, and GRPO's sqrt(7) and -sqrt(1/7) are parts of 6, of 214 pixels
    assert charts == [["93.5,147.6", "141.0,180.2", "93.5"], ["46.0,28.0", "93.5,41.5", "93.5"]]


def test_what_the_front_page_says(tmp_path):
    """Means over the seeds, the answers after step 60, and FADE at step 1, by its numbers."""
    shown = ["clip-count", "story", "answers-head", "chart-pass", "worked-method", "token"]
    shown += ["pass-count", "pass-text", "method-text"]
    script = 'state.method = "FADE"; drawMethod(); '
    script += "const seen = [document.querySelectorAll('.clipped').length];"
    script += f"seen.push(...{shown}.map((id) => byId(id).textContent));"
    script += "const [right, wrong] = curves('GRPO', {}).map((points) => points[15]);"
    script += "setCount(2); seen.push([...right, ...wrong], [...state.rewards]);"
    script += "for (const { mark, spans, bar } of rowsOf.advantage) seen.push([mark.textContent,"
    script += "  spans[0].style.backgroundColor, bar.querySelector('i').style.left === '50%']);"
    script += "seen.push(document.querySelector('.chosen').style.backgroundColor);"
    script += "state.epsilon = 0.5; drawUpdate(); seen.push(byId('clip-count').textContent);"
    script += "seen.push(document.querySelector('#token :is(.right, .wrong)').className);"
    _, (clipped, count, *texts) = open_page(tmp_path, PAGE, script)
    story, answers, chart, worked, token, *passes, method, curves, two = texts[:10]
    *tints, color, of_one, kind = texts[10:]
    assert clipped > 0 and re.search(f"^{clipped} of .* in pass 4$", count)
    assert re.search(r"^1 of \d+ tokens is clipped", of_one)
    kinds = {(mark, color[11:15], goes_right) for mark, color, goes_right in tints}
    assert kinds == {("✓", "good", True), ("✗", "bad)", False)}
    assert curves == pytest.approx([1 / 4, 3**0.5, 1 / 4, -(3**-0.5)])  # 16 of 64 are right
    assert two == [0, 0, 0, 1, 1, 0, 0, 0]  # of the three that really are
    assert f"{min(row[2] for row in NUMBERS['settings'])}" in method
    assert passes[0] == "four" and "updated three times" in passes[1]
    sign, limit = re.search("1 ([+\u2212]) \u03b5 = ([\\d.]+): clipped", token).groups()
    assert float(limit) == pytest.approx(value_of(f"1 {sign} {NUMBERS['epsilon']}"))
    assert ("good" if sign == "+" else "bad") in color
    assert (kind == "right") == ("A = +" in token)
    old, now, ratio = re.search(r"prob: (.*) when.*, (.*) in .*\) = ([\d.]+)", token).groups()
    assert math.exp(value_of(now) - value_of(old)) == pytest.approx(float(ratio), abs=1e-3)
    for key in ("pass@1", "pass@16"):
        first, *_, last = (sum(seeds) / 3 for seeds in zip(*NUMBERS["curves"][key], strict=True))
        assert f"{key}, {'rises' if last > first else 'falls'} from {first:.2f} to" in story
        assert f"{key} = {last:.2f}" in chart
    right = [text.split("<answer>")[1] for text, success in NUMBERS["answers"]["60"] if success]
    assert f"{len(right)} of 8 are right, with {len({*right})} different" in answers
    _, alpha, delta = NUMBERS["settings"][0]
    assert f"α = {alpha:.3f}    δ = {delta:.3f}" in worked


CHART = """
chart("chart-pass", { title: "a", label: "b", width: 158, height: 182, x: [0, 10], y: [0, 1],
  xTicks: [5], yTicks: [0.5], mark: 5, dots: [[5, 0.5], [5, 1.5]],
  bands: [{ points: [[0, 0, 1], [10, 0, 1]] }],
  lines: [{ points: [[0, 0], [10, 1]], label: ["c", 5, 0.5] }] });
const nodes = document.querySelectorAll("#chart-pass :is(line, text, path, circle)");
const names = ["d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy"];
const seen = [...nodes].map((one) => names.map((name) => one.getAttribute(name)).join(" ").trim());
"""


def test_a_chart_of_the_front_page_by_hand(tmp_path):
    """It is 100 pixels wide and high between its margins, and one of its dots is out of range."""
    _, seen = open_page(tmp_path, PAGE, CHART)
    title, label, of_y, of_x, name, dot = "0 15", "146 176", "39 87", "96 152", "96 82", "96.0 82.0"
    grid, mark = "46 146 82 82", "96 96 32 132"
    paths = ["M46.0 132.0L146.0 132.0L146.0 32.0L46.0 32.0Z", "M46.0 132.0L146.0 32.0"]
    assert seen == [title, label, grid, of_y, of_x, mark, *paths, name, dot]


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
for (const card of document.querySelectorAll("[tabindex='0']"))
  for (const key of [...Array(99).fill("ArrowDown"), ...Array(99).fill("ArrowRight")])
    card.dispatchEvent(new KeyboardEvent("keydown", { key }));
const outside = []; // of their figures, or nowhere
for (const svg of document.querySelectorAll("svg[viewBox]")) {
  const sizes = svg.getAttribute("viewBox").split(" ").slice(2).map(Number);
  for (const [i, names] of [["x", "x1", "x2", "cx"], ["y", "y1", "y2", "cy"]].entries())
    for (const name of names)
      for (const node of svg.querySelectorAll(`[${name}]`))
        if (!(node.getAttribute(name) >= 0 && node.getAttribute(name) <= sizes[i]))
          outside.push(node.outerHTML);
}
seen.push(root.scrollWidth, root.clientWidth, document.body.textContent.length, outside);
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "playground.html", *TOURS])
def test_on_a_phone(name, tmp_path):
    """As a page opens, and when all sliders and buttons have been used."""
    errors, (*widths, length, outside) = open_page(tmp_path, (DOCS / name).read_text(), USE_ALL)
    assert (errors, outside) == ([], []) and len({*widths}) == 1 and length > 1000


# Sizes that differ from each other: B 8, G 3, N 24, n 12, m 7 or less, and T some 26.
SIZES = "--prompts_per_step 8 --num_generations 3 --minibatch_size 12 --num_iterations 1"
SIZES += " --top_p 0.9 --eval_problems 1 --eval_samples 1 --microbatch_tokens 260"
# Together they come to all lines that have a shape comment.
RUNS = [
    ("grpo", "--variant two-stage-gspo"),  # a reference, and one ratio per response
    ("agrae", "--format_share 0.5 --vllm_importance_sampling_cap 2"),
    ("asymgrpo", "--log_gain"),
    ("fade", ""),
    ("cwgrpo", ""),
    ("cwgrpo", "--variant released"),
]


def data_of(page):
    """What a page shows."""
    data = numbers_in(page)
    data["tables"] = [[data["rows"][row] for row in table] for table in data["tables"]]
    return data


@pytest.mark.slow
def test_shape_comments_are_true(tmp_path, monkeypatch):
    """All of the five scripts and common.py: each stands beside a tensor of that shape."""
    # A page made now has the functions of the one in docs/.
    monkeypatch.setattr("rlvr.tasks.datasets.load_problems", countdown_problems)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(tmp_path)
    checked, written = set(), set()
    for i, (script, flags) in enumerate(RUNS):
        found = tour.Tour(ROOT / f"{script}.py")
        with left_as_it_was():
            tour.run(found, [*SIZES.split(), *flags.split(), f"--output_dir={i}"])
        assert not found.wrong, script
        data, kept = data_of(found.page("")), data_of((DOCS / f"tours/{script}.html").read_text())
        if not flags:
            assert data["functions"] == kept["functions"]
        checked |= found.checked
        for source in found.sources.values():
            written |= {(source.name, line) for line in source.comments}
    assert {name for name, _ in written} == {"common.py", *(f"{script}.py" for script in SCRIPTS)}
    assert written - checked == set()


@pytest.mark.parametrize("script", SCRIPTS)
def test_pages_of_the_scripts(script):
    """docs/tours/: small, alone, and of the script as it is."""
    # Where a script has changed, `python studies/tours/tour.py --make` makes them anew.
    text = (ROOT / "docs" / "tours" / f"{script}.html").read_text()
    assert len(text) < 300_000
    assert "http" not in text.replace("https://arxiv.org", "")
    assert not re.search("/(?:home|root|tmp|work)/", text)
    template = (ROOT / "studies/tours/tour.html").read_text().replace("NAME", f"{script}.py")
    before, after = template.split("DATA_OF_THE_TOUR")
    assert text.startswith(before) and text.endswith(after)
    data = data_of(text)
    sources = {name: tour.Source(ROOT / name) for name in (f"{script}.py", "common.py")}
    for function in data["functions"]:
        described = sources[function["file"]].describe(function["first"], function["name"])
        assert json.loads(json.dumps(described)) == function
    assert not data["wrong"]


def seen_in(data):
    """The calls of a tour, with the name and the kind of each value."""

    def kind_of(value):
        known = data["values"][value] if isinstance(value, int) else {}
        fields = known.values() if "kind" not in known else ()
        shown = [known.get(key) for key in ("kind", "labels", "words", "text")]
        return [*shown, "before" in known, *(isinstance(field, int) for field in fields)]

    for visit in (visit for call in data["calls"] for visit in call["visits"]):
        visit[2] = [(name, *kind_of(value)) for name, value in visit[2]]
    return data["calls"]


def test_a_tour_made_now_shows_what_the_page_does(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [])
    found = tour.Tour(ROOT / "grpo.py")
    with left_as_it_was():
        tour.run(found, ["--output_dir", f"{tmp_path}/run"])
    kept = data_of((DOCS / "tours/grpo.html").read_text())
    now = data_of(found.page(""))
    assert now["right"] == [reward == 1 for *_, reward in now["samples"]]
    assert now["letters"]["T"] in (len(rows[0]) for rows in now["tables"])
    assert tour.number(2 / 3) == 0.6667
    assert seen_in(now) == seen_in(kept)


SEEN = """
const all = (selector) => [...document.querySelectorAll(selector)];
const pass = all("[data-pass]").at(-1); // that is shown
pass.click();
const { activeElement } = document;
document.getElementById("all").click();
const count = (one) => [parseInt(one.textContent), one.parentNode.querySelectorAll(".new").length];
const seen = [document.getElementById("letters").textContent,
  all("#samples .label").map((one) => one.textContent), all(".changed").map(count)];
seen.push(activeElement !== pass && activeElement.dataset.pass === pass.dataset.pass);
"""


def test_what_a_tour_shows(tmp_path):
    """Its letters, marks and counts of changes; advantages are (r - mean) / std by hand."""
    text = (DOCS / "tours" / "grpo.html").read_text()
    data = data_of(text)
    _, (letters, labels, changed, keeps_focus) = open_page(tmp_path, text, SEEN)
    assert keeps_focus
    assert letters.startswith("B = 2 prompts, G = 4 completions of each, N = 8 completions, T = ")
    assert labels == [f"{i} {'✓' if r else '✗'}" for i, (*_, r) in enumerate(data["samples"])]
    assert all(marked in (0, count) for count, marked in changed if count)  # 0 of many
    rewards = f64([reward for *_, reward in data["samples"]]).view(2, 4)
    p = rewards.mean(1, keepdim=True)
    assert tour.rounded(((rewards - p) / (p * (1 - p)).sqrt()).tolist()) in data["tables"]


# nano.py has GRPO's mean over tokens in all methods, and FADE's controller without a memory.
FLAGS = dict(asymgrpo=dict(aggregation="sequence"))
FLAGS["fade"] = FLAGS["asymgrpo"] | dict(ema_beta=0, target_entropy=0.08)


@pytest.fixture
def nano(monkeypatch):
    """The file as a module, in the sizes of runs.SMALL."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("nano")
    for name, value in dict(STEPS=2, B=4, G=4, MINIBATCH=8, HELD_OUT=16).items():
        monkeypatch.setattr(module, name, value)
    with torch.random.fork_rng():
        yield module


def as_in_nano(batch):
    """What nano.roll_out returns, for a batch of a script."""
    prompts = [torch.tensor(sample.prompt_ids) for sample in batch.samples]
    completions = [torch.tensor(sample.completion_ids) for sample in batch.samples]
    left = pad_sequence(prompts, True, padding_side="left", padding_value=-1)
    ids = torch.cat([left, pad_sequence(completions, True, padding_value=-1)], 1)  # [N, L + T]
    real = (ids >= 0).float()
    return ids.clamp(min=0), real, real[:, left.shape[1] :], batch.rewards


@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_and_gradients_of_the_scripts(script, nano, run, no_evaluation, monkeypatch, capsys):
    """Two steps of two updates each, with the completions that the script has sampled."""
    batches, losses, updates = [], [], []
    roll_out, backward = common.roll_out, torch.Tensor.backward
    clip = torch.nn.utils.clip_grad_norm_

    def keep_batch(*given):
        batches.append(roll_out(*given))
        return batches[-1]

    def keep_loss(loss):
        losses.append(loss.item())
        backward(loss)

    def keep_update(parameters, most):  # what clips the gradient's norm
        parameters = [*parameters]
        updates.append((sum(losses), torch.cat([each.grad.flatten() for each in parameters])))
        losses.clear()
        return clip(parameters, most)

    monkeypatch.setattr(common, "roll_out", keep_batch)
    monkeypatch.setattr(torch.Tensor, "backward", keep_loss)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", keep_update)
    assert run(script, **FLAGS.get(script, {})).code == 0
    evaluation = [f64([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])]
    answers = iter([evaluation, *map(as_in_nano, batches), evaluation])
    monkeypatch.setattr(nano, "roll_out", lambda *_: next(answers))
    nano.main(script)
    shown = capsys.readouterr().out
    assert "pass@1 0.250  pass@4 0.500\n" in shown and "\n 2/2  reward" in shown
    assert len(updates) == 8
    for (loss, gradient), (expected, theirs) in zip(updates[4:], updates[:4], strict=True):
        assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
        near(gradient / theirs.norm(), theirs / theirs.norm(), atol=1e-5)


def test_rewards_of_verify_countdown(nano, monkeypatch):
    """All answers of a run, and each of them with one character changed."""
    verify, changed, rewards = nano.verify, random.Random(0), []

    def check(text, numbers, target):
        gold = f"{' '.join(map(str, numbers))} : {target}"
        place = changed.randrange(len(text) - 9)
        for sign in ("", *changed.choices("123456789+-*/()= ", k=3), "**"):
            other = text[:place] + sign + text[place + changed.randrange(2) :]
            assert verify(other, numbers, target) == verify_countdown(other, gold), other
        rewards.append(verify(text, numbers, target))
        assert rewards[-1] == verify_countdown(text, gold), text
        return rewards[-1]

    monkeypatch.setattr(nano, "verify", check)
    nano.main()
    assert 30 < sum(rewards) < len(rewards) - 30
    for text in ("9**9**9", "9//9+9", "(9)(9)+9", "(9+9+9", "9/(9-9)", "9+9+9</answer><answer>9"):
        assert verify(f"<answer>{text}</answer>", [9, 9, 9], 27) == 0


def test_the_mask_ends_with_each_completion(nano, tiny):
    """The untrained policy writes end tokens anywhere, or none."""
    ids, _, mask, _ = nano.roll_out(*tiny, [([1, 2, 3], 6)] * 8)
    for row, counted in zip(ids[:, -mask.shape[1] :].tolist(), mask.tolist(), strict=True):
        assert sum(counted) == (row.index(1) + 1 if 1 in row else len(row))

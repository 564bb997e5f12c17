"""docs/playground.html: a few of its values by hand and by Python; its sliders and boxes work."""

import html
import importlib
import inspect
import json
import re

import baselines
import pytest
import torch
from browser import evaluate, open_page
from groups import f64
from runs import ROOT, SCRIPTS
from test_baselines import OTHERS
from test_fade import MASSES

from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import FadeController, fade_advantage
from grpo import grpo_advantage

PAGE = (ROOT / "docs" / "playground.html").read_text()
FORMULAS = re.search(r'<script id="formulas">(.*?)</script>', PAGE, re.S)[1]
OF_A_GROUP = [name for name in baselines.ADVANTAGES if name not in baselines.OF_THE_WHOLE_BATCH]


@pytest.fixture
def page(tmp_path):
    """page(expression) -> its value in JavaScript, where the functions of the page are known."""
    return lambda expression: evaluate(FORMULAS, expression, tmp_path)


# Two of five are right, and the mean success of the batch is 0.37.
REWARDS = f64([[1, 1, 0, 0, 0]])
LOGPROBS = -3 * torch.rand(1, 5, 4, generator=torch.Generator().manual_seed(0)).double()
GROUP = dict(rewards=REWARDS[0].tolist(), lengths=[4] * 5, formats=[1, 0, 1, 0, 0])
GROUP |= dict(logprobs=LOGPROBS[0].tolist())
FADE = dict(initial_entropy=1.1, entropy=0.9, target_entropy=0.6, ema_beta=0.3, alpha_max=4.0)
A, P = grpo_advantage(REWARDS), REWARDS.mean(1)
WELL_FORMED = grpo_advantage(REWARDS + 0.5 * f64([GROUP["formats"]]))


def kernel(*how):
    """CW-GRPO's mean weight of each completion."""
    return covariance_weights(LOGPROBS, WELL_FORMED, torch.ones_like(LOGPROBS), *how).mean(2)


CASES = [
    ("grpo", dict(scale_rewards=False), f64([[0.6, 0.6, -0.4, -0.4, -0.4]])),
    ("agrae", dict(alpha=0.8), agrae_advantage(A, P, 0.37, 0.8)),
    (
        "asymgrpo",
        dict(beta_pos=1.3, beta_neg=0.6, flip="negative"),
        asymgrpo_advantage(REWARDS, 1.3, 0.6, "negative"),
    ),
    ("fade", FADE, fade_advantage(REWARDS, *FadeController(1.1, 0.6, 0.3, 4.0).step(0.37, 0.9))),
    ("cwgrpo", dict(format_weight=0.5), kernel() * WELL_FORMED),
    ("cwgrpo", dict(format_weight=0.5, means="own"), kernel("own") * WELL_FORMED),
]


@pytest.mark.parametrize("script, flags, expected", CASES)
def test_advantages_of_a_script(page, script, flags, expected):
    given = f"{{...DEFAULTS.{script}, ...{json.dumps(flags)}}}, {json.dumps(GROUP)}"
    found = page(f'scriptAdvantages("{script}", {given}, {{mean_success: 0.37}})')
    assert found == pytest.approx(expected[0].tolist(), rel=1e-9)


def test_masses_of_the_other_methods(page):
    """By the formulas of section 8, and of A-GRAE's control experiments."""
    cases = {}
    for name in OF_A_GROUP:
        settings, mass = (OTHERS | MASSES)[name]
        parameters = inspect.signature(baselines.ADVANTAGES[name]).parameters.values()
        given = {each.name: each.default for each in parameters if each.default is not each.empty}
        given |= {key: settings[0][key] for key in settings[0].keys() - {"lengths", "shares"}}
        masses = mass(0.4, 0.6, 2, 5, **settings[0])
        cases[name] = given, masses if isinstance(masses, tuple) else (masses, masses)
    calls = json.dumps([[name, given] for name, (given, _) in cases.items()])
    found = page(
        f"{calls}.map(([advantage, given]) => gradientMass(scriptAdvantages('baselines', "
        f"{{token: 'none', advantage, given}}, {json.dumps(GROUP)}), {GROUP['rewards']}))"
    )
    for masses, (name, (_, expected)) in zip(found, cases.items(), strict=True):
        assert masses == pytest.approx(expected, rel=1e-9), name


def test_it_offers_what_the_scripts_have(page):
    presets = {script: importlib.import_module(script).VARIANTS for script in SCRIPTS}
    assert page("VARIANTS") == presets
    assert page("Object.keys(ADVANTAGES)") == OF_A_GROUP
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
const methods = [...document.getElementById("methods").children].map((button) => {
  button.click();
  return document.getElementById("simple-legend").textContent;
});
const cells = Object.fromEntries(rows.map(([name, ...rest]) => [name, rest]));
document.title = JSON.stringify([errors, cells, methods]);
</script>
</body>
"""


@pytest.mark.slow
def test_sliders_and_boxes_in_a_browser(tmp_path):
    """10 completions, 2 right: GRPO gives 2 and -1/2, and MaxRL 1/p - 1 = 4 and -1."""
    clicked = tmp_path / "clicked.html"
    clicked.write_text(PAGE.replace("</body>", CLICKS))
    title = re.search("<title>(.*?)</title>", open_page(clicked), re.S)[1]
    errors, rows, legends = json.loads(html.unescape(title))
    assert errors == []
    minus = "\N{MINUS SIGN}"
    assert rows["grpo grpo"] == ["2.000", f"{minus}0.500", "0.400", "0.400"]
    assert rows["baselines --advantage maxrl"] == ["4.000", f"{minus}1.000", "0.800", "0.800"]
    assert legends == ["GRPO A-GRAE", "GRPO AsymGRPO", "GRPO FADE", "GRPO CW-GRPO"]

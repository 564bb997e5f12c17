"""docs/index.html: its numbers follow from each other and from the scripts; its controls work."""

import html
import json
import math
import re

import front_page
import pytest
import torch
from browser import evaluate, open_page
from groups import near
from runs import ROOT

from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import fade_advantage
from grpo import grpo_advantage

PAGE = (ROOT / "docs" / "index.html").read_text()
NUMBERS = front_page.numbers_in(PAGE)
COMPLETIONS = NUMBERS["completions"]
VERDICTS = [one["right"] for one in COMPLETIONS]
SETTINGS = [dict(zip(("w", "alpha", "delta"), row, strict=True)) for row in NUMBERS["settings"]]
GROUPS = [[1] * k + [0] * (8 - k) for k in range(9)]
METHODS = ["GRPO", "A-GRAE", "AsymGRPO", "FADE", "CW-GRPO"]


@pytest.fixture
def page(tmp_path):
    """page(expression) -> its value in JavaScript, where the functions of the page are known."""
    blocks = [re.search(rf'<script id="{name}">(.*?)</script>', PAGE, re.S)[1] for name in BLOCKS]
    return lambda expression: evaluate("\n".join(blocks), expression, tmp_path)


BLOCKS = ("formulas", "methods-of-the-page")


def as_tensor(values):
    return torch.tensor([values], dtype=torch.float64)


# ------------------------------------------------------------------------------------- the numbers


def test_the_page_is_its_template_with_its_numbers():
    """Where a template has changed, `python studies/front_page.py --same_numbers` makes it anew."""
    assert front_page.make_page(NUMBERS) == PAGE
    assert len(PAGE) < 600_000
    assert not re.search(r"src=|@import|url\((?!#)|fetch\(", PAGE)
    assert {*re.findall(r"https?://[\w.]+", PAGE)} == {"https://arxiv.org"}
    links = re.findall(r'href="([^"#]+)"', PAGE)
    assert len(links) > 10 and all((ROOT / "docs" / link).exists() for link in links)


def reaches_the_target(text):
    """Whether an answer is right, by Python's own arithmetic."""
    found = re.search(r"<answer>([-+*/()\d]+)</answer>", text)
    used = sorted(re.findall(r"\d+", found[1])) if found else []
    return used == sorted(NUMBERS["numbers"]) and eval(found[1]) == int(NUMBERS["target"])


def test_the_attempts_are_what_the_page_says_of_them():
    """Right or wrong; ratios that begin at 1; tokens that the clip holds in the last pass."""
    assert len(VERDICTS) == 8 and sum(VERDICTS) in front_page.RIGHT
    for one in COMPLETIONS:
        assert reaches_the_target("".join(one["tokens"])) == one["right"]
        assert {len(row) for row in one["logprobs"]} == {len(one["tokens"])}
        assert max(one["logprobs"][0]) <= 0
    for group in NUMBERS["answers"].values():
        assert [reaches_the_target(text) for text, _ in group] == [right for _, right in group]


# ------------------------------------------------------------------------------------ JavaScript


def test_advantages_and_weights_are_those_of_the_scripts(page):
    """Three right of eight, with the settings of the first step."""
    group, settings = [1] * 3 + [0] * 5, SETTINGS[0]
    rewards = as_tensor(group)
    A = grpo_advantage(rewards)
    expected = {
        "GRPO": A,
        "A-GRAE": agrae_advantage(A, rewards.mean(1), settings["w"]),
        "AsymGRPO": asymgrpo_advantage(rewards),
        "FADE": fade_advantage(rewards, settings["alpha"], settings["delta"]),
        "CW-GRPO": A,
    }
    for method, advantages in expected.items():
        found = page(f"ADVANTAGE_OF[{method!r}]({group}, {json.dumps(settings)})")
        assert found == pytest.approx(advantages[0].tolist(), rel=1e-9)
    logprobs = [one["logprobs"][0][:5] for one in COMPLETIONS]
    weights = covariance_weights(as_tensor(logprobs), A, torch.ones(1, 8, 5))[0]
    found = page(f"tokenWeights('CW-GRPO', {group}, {logprobs})")
    near(as_tensor(found)[0], weights, atol=1e-9)


def test_the_clip_holds_a_token(page):
    """Ratios of 1.5 and 0.5: each is held where it has gone along its advantage."""
    for ratio, advantage, held in ((1.5, 1, True), (1.5, -1, False), (0.5, -1, True), (0.5, 1, 0)):
        found = page(f"clipping(-1, {math.log(ratio) - 1}, {advantage}, 0.2)")
        assert found["ratio"] == pytest.approx(ratio) and found["clipped"] == held


EQUATION = r"[:=] ([\d.()/ ^\u00d7\u2212\u221a+]+) = (?=([+\u2212]?[\d.]+))"  # left, right


def value_of(text):
    """What an expression of the page is, by Python's own arithmetic."""
    for sign, python in (("\u2212", "-"), ("\u00d7", "*"), ("^", "**")):
        text = text.replace(sign, python)
    return eval(re.sub("\u221a(\\([^)]*\\)|[\\d.]+)", r"(\1)**0.5", text))


def test_the_arithmetic_follows_from_the_numbers_shown(page):
    """Every `= number` on the page is what stands left of it, rounded to the digits shown."""
    settings = SETTINGS[::10]
    grid = [(method, group, step) for method in METHODS for group in GROUPS for step in settings]
    found = page(f"{json.dumps(grid)}.map(([name, group, step]) => worked(name, group, step))")
    checked = 0
    for case, lines in zip(grid, found, strict=True):
        text = "\n".join(f"{line}{''.join(value)}" for _, line, *value in lines)
        for left, right in re.findall(EQUATION, text, re.M):
            half = 0.5 * 10 ** -len(right.partition(".")[2])
            assert abs(value_of(left) - value_of(right)) <= half + 1e-9, (case, text)
            checked += 1
    assert checked > 700


# ---------------------------------------------------------------------------------- the controls

CLICKS = """
<script>
const errors = [];
window.onerror = (message) => errors.push(message);
const text = (id) => byId(id).textContent;
const slide = (id, value) => { byId(id).value = value; byId(id).oninput({ target: byId(id) }); };
const bars = () => rowsOf.advantage.map(({ bar }) => bar.textContent);
const found = { opened: text("clip-count") };
slide("count", 4);
found.four = bars();
rowsOf.advantage[0].mark.click();
found.flipped = [sum(state.rewards), bars()[0]];
slide("count", 8);
found.all = text("worked-grpo");
byId("reset").click();
found.reset = [...state.rewards];
document.querySelector(`[data-pass="${LAST_PASS}"]`).click();
slide("epsilon", 0.05);
found.narrow = text("clip-count");
slide("step", 0);
found.methods = [...document.querySelectorAll("[data-method]")].map((button) => {
  button.click();
  return text("worked-method");
});
document.title = JSON.stringify({ errors, ...found });
</script>
</body>
"""


@pytest.mark.slow
def test_controls_in_a_browser(tmp_path):
    """Four right of eight: +1 and -1. All right: no advantage. Buttons change what they say."""
    clicked = tmp_path / "clicked.html"
    clicked.write_text(PAGE.replace("</body>", CLICKS))
    title = re.search("<title>(.*?)</title>", open_page(clicked), re.S)[1]
    found = json.loads(html.unescape(title))
    assert found["errors"] == []
    assert sorted(found["four"]) == ["+1.00"] * 4 + ["\u22121.00"] * 4
    count, bar = found["flipped"]
    assert bar == {3: "\u22120.77", 5: "+0.77"}[count]  # sqrt(3/5)
    assert "every advantage is 0" in found["all"] and found["reset"] == VERDICTS
    assert int(found["narrow"].split()[0]) > int(found["opened"].split()[0]) > 0
    assert len({*found["methods"]}) == 5

"""docs/index.html: its numbers follow from each other and from the scripts; its controls work."""

import html
import json
import math
import re

import rlvr.tasks.datasets

import front_page
import pytest
import torch
from browser import evaluate, open_page
from runs import ROOT, countdown_problems, left_as_it_was, rows

import common
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


def test_the_curves_do_what_the_text_says():
    """In every seed pass@1 rises and pass@16 falls."""
    assert NUMBERS["steps"][0] == 0 and [*map(str, NUMBERS["steps"])] == [*NUMBERS["answers"]]
    for key, sign in (("pass@1", 1), ("pass@16", -1)):
        for seed in NUMBERS["curves"][key]:
            assert len(seed) == len(NUMBERS["steps"]) and sign * (seed[-1] - seed[0]) > 0.02


# ------------------------------------------------------------------------------------ JavaScript


def by_the_scripts(method, group, w, alpha, delta):
    """The advantages of a group [1, 8], in float64."""
    rewards = as_tensor(group)
    base = grpo_advantage(rewards)
    if method == "A-GRAE":
        return agrae_advantage(base, rewards.mean(1), w)
    if method == "AsymGRPO":
        return asymgrpo_advantage(rewards)
    return fade_advantage(rewards, alpha, delta) if method == "FADE" else base


def test_advantages_are_those_of_the_scripts(page):
    """Of every number of right attempts, with the settings of every step."""
    grid = [(method, group, step) for method in METHODS for group in GROUPS for step in SETTINGS]
    found = page(
        f"{json.dumps(grid)}.map(([name, group, step]) => ADVANTAGE_OF[name](group, step))"
    )
    assert len(found) == len(METHODS) * 9 * 60
    for (method, group, step), advantages in zip(grid, found, strict=True):
        expected = by_the_scripts(method, group, **step)[0].tolist()
        assert advantages == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_weights_of_tokens_are_those_of_cwgrpo(page):
    logprobs = [one["logprobs"][0] for one in COMPLETIONS]
    length = max(map(len, logprobs))
    padded = as_tensor([row + [0.0] * (length - len(row)) for row in logprobs])
    mask = as_tensor([[1.0] * len(row) + [0.0] * (length - len(row)) for row in logprobs])
    for group in (VERDICTS, *GROUPS):
        found = page(f"tokenWeights('CW-GRPO', {group}, {logprobs})")
        expected = covariance_weights(padded, grpo_advantage(as_tensor(group)), mask)[0]
        for row, weights in zip(found, expected, strict=True):
            assert row == pytest.approx(weights[: len(row)].tolist(), rel=1e-9)
    assert page(f"tokenWeights('GRPO', {VERDICTS}, [[-1, -2], [-3]])") == [[1, 1], [1]]


def test_clipped_tokens_have_no_gradient(page):
    """Those that the page frames are those to which the loss gives none, in every pass."""
    A = grpo_advantage(as_tensor(VERDICTS))[0]
    framed = []
    for one, advantage in zip(COMPLETIONS, A, strict=True):
        old, *others = one["logprobs"]
        for now in others:
            logprobs = as_tensor(now).requires_grad_()
            loss, _ = common.ppo_clip_loss(
                logprobs=logprobs,
                old_logprobs=as_tensor(old),
                advantages=advantage.view(1, 1),
                loss_mask=torch.ones(1, len(old)),
                token_weights=1.0,
            )
            loss.backward()
            pairs = json.dumps([*zip(old, now, strict=True)])
            found = page(f"{pairs}.map(([old, now]) => clipping(old, now, {advantage}, 0.2))")
            assert [each["clipped"] for each in found] == (logprobs.grad[0] == 0).tolist()
            ratios = (as_tensor(now) - as_tensor(old)).exp()[0].tolist()
            assert [each["ratio"] for each in found] == pytest.approx(ratios)
            framed.append(sum(each["clipped"] for each in found))
    assert sum(framed) > 0


EQUATION = r"[:=] ([\d.()/ ^\u00d7\u2212\u221a+]+) = (?=([+\u2212]?[\d.]+))"  # left, right


def value_of(text):
    """What an expression of the page is, by Python's own arithmetic."""
    for sign, python in (("\u2212", "-"), ("\u00d7", "*"), ("^", "**")):
        text = text.replace(sign, python)
    return eval(re.sub("\u221a(\\([^)]*\\)|[\\d.]+)", r"(\1)**0.5", text))


def test_the_arithmetic_follows_from_the_numbers_shown(page):
    """Every `= number` on the page is what stands left of it, rounded to the digits shown."""
    grid = [(method, group, step) for method in METHODS for group in GROUPS for step in SETTINGS]
    found = page(f"{json.dumps(grid)}.map(([name, group, step]) => worked(name, group, step))")
    checked = 0
    for case, lines in zip(grid, found, strict=True):
        text = "\n".join(f"{line}{''.join(value)}" for _, line, *value in lines)
        for left, right in re.findall(EQUATION, text, re.M):
            half = 0.5 * 10 ** -len(right.partition(".")[2])
            assert abs(value_of(left) - value_of(right)) <= half + 1e-9, (case, text)
            checked += 1
    assert checked > 7_000


# ---------------------------------------------------------------------------------- the controls

CLICKS = """
<script>
const errors = [];
window.onerror = (message) => errors.push(message);
const text = (id) => byId(id).textContent;
const slide = (id, value) => { byId(id).value = value; byId(id).oninput({ target: byId(id) }); };
const bars = () => rowsOf.advantage.map(({ bar }) => bar.textContent);
const pressed = document.querySelector("#passes [aria-pressed=true]").textContent;
const found = { opened: { clipped: text("clip-count"), pressed } };
found.rows = document.querySelectorAll(".row").length;
slide("count", 4);
found.four = bars();
rowsOf.advantage[0].mark.click();
found.flipped = [sum(state.rewards), bars()[0]];
slide("count", 8);
found.all = [text("worked-grpo"), new Set(bars()).size];
byId("reset").click();
found.reset = [...state.rewards];
document.querySelector('[data-pass="0"]').click();
found.first = [text("clip-count"), text("pass-text")];
document.querySelector(`[data-pass="${LAST_PASS}"]`).click();
slide("epsilon", 0.05);
found.narrow = text("clip-count");
byId("rows-update").onkeydown({ key: "ArrowDown", preventDefault() {} });
found.token = text("token");
slide("step", 0);
found.before = [text("answers-head"), byId("answers").children.length];
found.methods = [...document.querySelectorAll("[data-method]")].map((button) => {
  button.click();
  return [text("worked-method"), text("method-text"), byId("settings").hidden,
    byId("chart-method").innerHTML.length,
    rowsOf.method[0].spans.map((span) => span.style.backgroundColor).join()];
});
document.querySelector('[data-method="FADE"]').click();
const early = text("worked-method");
slide("setting", D.settings.length);
found.moved = early !== text("worked-method");
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
    assert found["errors"] == [] and found["rows"] == 4 * 8
    assert not found["opened"]["clipped"].startswith("0 of")
    assert found["opened"]["pressed"] == "pass 4"
    assert sorted(found["four"]) == ["+1.00"] * 4 + ["\u22121.00"] * 4
    count, bar = found["flipped"]
    assert count in (3, 5) and bar == {3: "\u22120.77", 5: "+0.77"}[count]  # sqrt(3/5)
    assert "every advantage is 0" in found["all"][0] and found["all"][1] == 1
    assert found["reset"] == VERDICTS
    assert found["first"][0].startswith("0 of") and "every ratio is 1" in found["first"][1]
    assert int(found["narrow"].split()[0]) > int(found["opened"]["clipped"].split()[0])
    assert found["token"].startswith("Attempt ")
    right = sum(VERDICTS)
    assert found["before"][0].startswith(f"The same problem after step 0: {right} of 8 are right")
    assert found["before"][1] == 8
    formulas, texts, hidden, charts, _ = zip(*found["methods"], strict=True)
    assert len({*formulas}) == len({*texts}) == len({*charts}) == 5
    assert hidden == (True, False, True, False, True)
    of_grpo, *_, of_cwgrpo = ({*re.findall(r"[.\d]+\)", row[-1])} for row in found["methods"])
    assert len(of_grpo) == 1 < len(of_cwgrpo)
    assert found["moved"]


@pytest.mark.slow
def test_the_recorder_hears_what_a_run_logs(tmp_path, monkeypatch, cache_dir):
    """Log-probs before and after the first step as tokens.jsonl has them, and the policies."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", countdown_problems)
    monkeypatch.setattr("sys.argv", [])
    flags = f"--numbers 2 --sft_steps 80 --cache_dir {cache_dir} --eval_problems 4 --eval_samples 4"
    flags += " --max_steps 2 --prompts_per_step 4 --num_generations 4 --minibatch_size 16"
    flags += f" --num_iterations 2 --log_tokens 4 --learning_rate 1e-3 --output_dir {tmp_path}/run"
    recorder = front_page.Recorder()
    with left_as_it_was():
        recorder.run(f"grpo.py {flags}")
    assert common.roll_out is recorder.originals["roll_out"]
    groups = rows(tmp_path / "run", "tokens")[0]["groups"]
    for row, one in enumerate(each for group in groups for each in group["completions"]):
        old, second, after = recorder.logprobs(row)
        assert second != old
        assert old == pytest.approx(one["logprob"], abs=6e-4)
        ratios = [math.exp(now - before) for now, before in zip(after, old, strict=True)]
        assert ratios == pytest.approx(one["ratio"], abs=1e-3)
    success_rates = [row["reward"] for row in rows(tmp_path / "run")]
    assert [rate for rate, _ in recorder.batches] == pytest.approx(success_rates)
    assert [*recorder.policies] == [0, 2]
    problem = recorder.problems[1]
    samples = recorder.answer(problem, 2)
    assert len(samples) == 4 and {*map(str, samples)} != {*map(str, recorder.answer(problem, 0))}
    assert all(sample.prompt_ids == recorder.first.samples[4].prompt_ids for sample in samples)

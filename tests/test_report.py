"""tokens.jsonl and report.html: their numbers in a second way, their size, and the page clicked."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from types import SimpleNamespace

import rlvr.show.report
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.show.logs import append_row
from rlvr.show.report import before_and_after, standard_errors, write_report
from rlvr.tasks.problems import Sample, own_tokens

import pytest
import torch
from browser import open_page
from runs import rows
from samples import by_the_logits

from common import pass_at_k

EVIL = "</script><script>document.title = 'fooled'</script><!--<b>&amp;"


def step_of_a_run(policy, tokenizer, folder):
    """(run, batch) of one step: two groups of two completions. A tool has written in the first."""
    ids = tokenizer("1+2=3 4-1")["input_ids"]
    samples = [
        Sample(ids[:4], ids[:end], reward=i - 1.0, success=i == 0, truncated=i == 1, status=status)
        for i, (end, status) in enumerate(zip([5, 3, 1, 4], ["", "", "timeout", ""], strict=True))
    ]
    samples[0] = replace(samples[0], replies=[range(2, 3), range(4, 5)])
    training = SimpleNamespace(policy=policy, tokenizer=tokenizer)
    run = SimpleNamespace(config=Config(num_generations=2), folder=folder, training=training)
    mask = 1.0 * own_tokens(samples)
    counted = mask * torch.tensor([[1.0], [0.0], [1.0], [1.0]])  # not the truncated completion
    masks = dict(completion_mask=mask, loss_mask=counted)
    return run, SimpleNamespace(samples=samples, old_logprobs=-2 * mask, **masks)


def test_the_numbers_of_each_token(tiny, tmp_path, monkeypatch):
    """Log-prob -2 before; after the step what one plain forward pass says.

    Of long completions, the first tokens are kept. The tool's tokens have no numbers.
    """
    run, batch = step_of_a_run(*tiny, tmp_path)
    training, state = run.training, torch.get_rng_state()
    monkeypatch.setattr(rlvr.show.report, "MOST_TOKENS", 8)
    advantages = torch.tensor([[1.5], [-0.5], [1 / 3], [math.nan]])
    for groups in (0, 1, 9):  # there are two
        run.config.log_tokens = groups
        weights = torch.ones(4, 5) if groups == 9 else None
        rlvr.show.report.log_tokens(run, 3, batch, advantages, weights)
    assert (torch.get_rng_state() == state).all()  # the training goes on as without it
    one_group, two_groups = rows(run.folder, "tokens")  # 0 writes nothing
    assert len(one_group["groups"]) == 1 and len(two_groups["groups"]) == 2
    assert "weight" not in one_group["groups"][0]["completions"][0]
    found = [one for group in two_groups["groups"] for one in group["completions"]]
    assert [one["length"] for one in found] == [5, 3, 1, 4]
    for sample, one, n, advantage in zip(
        batch.samples, found, [4, 3, 1, 4], [1.5, -0.5, 0.333, None], strict=True
    ):
        assert "".join(one["tokens"]) == training.tokenizer.decode(sample.completion_ids[:n])
        own = [t for t in range(n) if not (sample.replies and t == 2)]
        for name, value in (("logprob", -2.0), ("weight", 1.0), ("advantage", advantage)):
            assert one[name] == [value if t in own else None for t in range(n)]
        logprobs, entropies = by_the_logits(training.policy, sample)
        for name, values in (("ratio", (logprobs + 2).exp()), ("entropy", entropies)):
            shown = torch.tensor([one[name][t] for t in own])
            torch.testing.assert_close(shown, values[own], rtol=0, atol=6e-4)
    assert [one["by_tool"] for one in found] == [[2], [], [], []]
    assert [one["verdict"] for one in found] == ["right", "wrong", "timeout", "wrong"]
    assert [one["truncated"] for one in found] == [False, True, False, False]


CONFIG = dict(script="grpo.py", variant="grpo", seed=3, num_threads=1, eval_problems=4, own=False)


def write_run(folder, step_count, right_from=1, **config):
    """A run folder with the logs that the page reads. Groups are mixed from a step on."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    for step, rate in ((0, 0.25), (step_count, 0.5)):
        row = {"pass@1": rate, "pass@2": 0.5, "greedy": 0.5, "length": math.nan}
        append_row(folder, "eval", {"step": step, **row})
    right = dict(reward=1.0, verdict="right", length=2, truncated=False, tokens=[EVIL, " 7"])
    right |= dict(logprob=[-1.25, -0.5], entropy=[0.3, None], ratio=[1.1, 0.9])
    right |= dict(advantage=[0.01, 0.01], by_tool=[])
    wrong = right | dict(reward=0.0, verdict="wrong", advantage=[-0.005, -0.005])
    for step in range(1, step_count + 1):
        group = [right] * (8 if step >= right_from else 0)
        group += [wrong] * (16 - len(group))
        append_row(folder, "metrics", {"step": step, "reward": 0.5, "entropy": 0.1})
        groups = [dict(prompt=EVIL, completions=group)]
        append_row(folder, "tokens", {"step": step, "groups": groups})
    return folder


def data_of(page):
    """What the page holds, read as a browser does: up to the first closing tag."""
    inside = page.read_text().split('<script id="data" type="application/json">')[1]
    return json.loads(inside.split("</script>")[0], parse_constant=pytest.fail)


def test_the_page_holds_all_and_no_tag_of_a_model(tmp_path):
    folder = write_run(tmp_path / EVIL.replace("/", ""), 2)
    page = tmp_path / "report.html"
    write_report(page, [folder, folder])
    first, second = data_of(page)
    assert first == second
    assert (first["name"], first["steps"]) == (folder.name, rows(folder, "tokens"))
    assert first["command"] == "python grpo.py --variant grpo --seed 3 --eval_problems 4 --no_own"
    assert first["curves"] == {
        "pass@1": [[0, 0.25], [2, 0.5]],
        "pass@2": [[0, 0.5], [2, 0.5]],
        "reward": [[1, 0.5], [2, 0.5]],
        "entropy": [[1, 0.1], [2, 0.1]],
    }
    assert first["steps"][0]["groups"][0]["completions"][0]["tokens"][0] == EVIL
    assert EVIL not in page.read_text()
    text = page.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search("innerHTML|https?:|src=|href=", text)
    with pytest.raises(UserError, match="nothing has no tokens.jsonl"):
        write_report(page, [tmp_path / "nothing"])


def test_standard_errors_are_those_of_the_problems(tmp_path):
    """By the shares of four problems themselves: 0, 1, 2 and 4 right of 4 samples.

    The first row and the last one count, and k as far as both of them have it.
    """
    corrects = [0, 1, 2, 4]
    row = {f"pass@{k}": mean(pass_at_k(4, c, k) for c in corrects) for k in (1, 2, 4)}
    row |= {"greedy": 0.5, "token_entropy": 0.25}
    folder = write_run(tmp_path / "run", 1)
    (folder / "eval.jsonl").unlink()
    for step, each in enumerate((row, {"pass@1": 0.0}, row | {"pass@8": 0.9})):
        append_row(folder, "eval", each | {"step": step})
    table = {name: cells for name, *cells in before_and_after(folder)}
    for name, values in {
        "pass@1": [c / 4 for c in corrects],
        "pass@4": [0, 1, 1, 1],
        "greedy": [0, 0, 1, 1],
    }.items():
        value, error = (pytest.approx(x, abs=6e-5) for x in (mean(values), stdev(values) / 2))
        assert table.pop(name) == [[value, error], [value, None]]
    assert table == {"token_entropy": [[0.25, None]] * 2, "length": [[None, None]] * 2}
    assert standard_errors(row, "", 5) == {}  # so many problems the set has not


def test_a_long_run_has_a_page_of_bounded_size(tmp_path, monkeypatch):
    """One step in four; the others stay in tokens.jsonl."""
    folders = [write_run(tmp_path / "a", 50), write_run(tmp_path / "b", 40)]
    page = tmp_path / "report.html"
    whole = sum((folder / "tokens.jsonl").stat().st_size for folder in folders)
    monkeypatch.setattr(rlvr.show.report, "MOST_BYTES", whole // 4 + 1)
    monkeypatch.setattr(rlvr.show.report, "MOST_POINTS", 10)
    write_report(page, folders)
    a, b = data_of(page)
    assert [row["step"] for row in a["steps"]] == [*range(1, 50, 4)]
    assert [row["step"] for row in b["steps"]] == [*range(1, 40, 4)]
    assert a["stride"] == 4
    assert [step for step, _ in a["curves"]["reward"]] == [*range(1, 50, 5)]
    (folders[0] / "tokens.jsonl").write_text("")
    write_report(page, folders[:1])
    assert data_of(page)[0]["steps"] == []


@pytest.mark.usefixtures("no_evaluation")
def test_a_run_that_keeps_no_tokens_has_no_page(run):
    run("grpo", max_steps=1, save_steps=1, log_tokens=0)
    files = {path.name for path in Path("run").iterdir()}
    assert "metrics.jsonl" in files and not {"tokens.jsonl", "report.html"} & files


CLICKS = """
<script>
const errors = [];
window.onerror = (message) => errors.push(message);
const colors = {};
const select = document.getElementById("quantity");
const opened = [select.value, document.getElementById("step").textContent];
for (const { value } of [...select.options]) {
  select.value = value;
  select.oninput();
  const color = document.querySelector(".tokens span").style.backgroundColor;
  colors[value] = [color, document.getElementById("legend").textContent];
}
const slider = document.getElementById("slider");
slider.value = 2;
slider.oninput();
const token = document.querySelector(".tokens span");
const title = document.title;
document.title = JSON.stringify({
  errors, colors, title, opened,
  step: document.getElementById("step").textContent,
  numbers: token.title,
  token: token.textContent,
  verdicts: document.querySelectorAll(".completion > .right").length,
  table: [...document.querySelectorAll("#table tr")].map((line) => line.textContent),
  lines: document.querySelectorAll("#charts polyline").length,
  prompts: [...document.querySelectorAll(".prompt")].map((one) => one.textContent),
  completions: document.querySelectorAll(".completion").length,
});
</script>
</body>
"""


@pytest.mark.slow
def test_two_runs_clicked_in_a_browser(tmp_path):
    """It opens at the first mixed group, and what a model wrote is shown as text."""
    page = tmp_path / "report.html"
    write_report(page, [write_run(tmp_path / name, 3, right_from=2) for name in ("a", "b")])
    page.write_text(page.read_text().replace("</body>", CLICKS))
    seen = open_page(page)
    assert seen["errors"] == [] and seen["title"].startswith("Before and after")
    assert seen["opened"] == ["logprob", "2 of 3"] and seen["step"] == "3 of 3"
    assert seen["token"] == EVIL and seen["prompts"] == [EVIL, EVIL]
    assert seen["completions"] == 32 and seen["verdicts"] == 16
    # the shares of 4 problems: 1/4, and 1/2 with pass@2 = 1/2, so that two are always right
    assert seen["table"][1] == "pass@1" + 2 * "0.250 ± 0.1440.500 ± 0.289"
    assert seen["lines"] == 8  # two charts with two metrics of two runs
    for number in ("-1.25", "0.3", "1.1"):
        assert number in seen["numbers"]
    # no weight, which only CW-GRPO has; the small advantages of these runs have the full colour
    assert [*seen["colors"]] == ["logprob", "advantage", "entropy", "ratio"]
    color, legend = seen["colors"]["advantage"]
    assert color.endswith("0.75)") and "0.01 in a, 0.01 in b" in legend
    assert len({color for color, _ in seen["colors"].values()}) == 4

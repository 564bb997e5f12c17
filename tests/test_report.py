"""tokens.jsonl and report.html: their numbers in a second way, their size, and the page clicked."""

import html
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import rlvr.show.report
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.show.logs import append_row
from rlvr.show.report import write_report
from rlvr.tasks.problems import Sample

import pytest
import torch
from browser import open_page
from runs import rows

EVIL = "</script><script>document.title = 'fooled'</script><!--<b>&amp;"


@pytest.fixture
def step_of_a_run(tiny, tmp_path):
    """(run, batch, training) of one step: two groups of two completions."""
    policy, tokenizer = tiny
    ends = [5, 3, 1, 4]
    ids = tokenizer("1+2=3 4-1")["input_ids"]
    samples = [
        Sample(ids[:4], ids[:end], reward=float(i == 0), success=i == 0, truncated=i == 1)
        for i, end in enumerate(ends)
    ]
    mask = torch.tensor([[float(t < end) for t in range(5)] for end in ends])
    config = Config(num_generations=2)
    run = SimpleNamespace(config=config, folder=tmp_path)
    batch = SimpleNamespace(samples=samples, written=mask, mask=mask, old_logprobs=-2 * mask)
    return run, batch, SimpleNamespace(policy=policy, tokenizer=tokenizer)


def kept_completions(folder):
    """All completions of the last row of tokens.jsonl."""
    return [one for group in rows(folder, "tokens")[-1]["groups"] for one in group["completions"]]


@torch.no_grad()
def by_the_logits(policy, sample):
    """Log-probs and entropies of the completion's tokens, [T] each, as a textbook writes them."""
    ids = torch.tensor(sample.prompt_ids + sample.completion_ids)
    start, end = len(sample.prompt_ids) - 1, len(ids) - 1
    logprobs = policy(ids[None]).logits[0, start:end].log_softmax(-1)  # [T, V]
    chosen = logprobs.gather(1, ids[start + 1 :, None])[:, 0]
    return chosen, -(logprobs.exp() * logprobs).sum(1)


def test_the_numbers_of_each_token(step_of_a_run):
    """Log-prob -2 before; after the step what one plain forward pass says."""
    run, batch, training = step_of_a_run
    advantages = torch.tensor([[1.5], [-0.5], [0.0], [math.nan]])
    for groups in (0, 1, 9):  # there are two
        run.config.log_tokens = groups
        weights = torch.ones(2, 2, 5) if groups == 9 else None
        rlvr.show.report.log_tokens(run, 3, batch, advantages, training, weights)
    one_group, two_groups = rows(run.folder, "tokens")  # 0 writes nothing
    assert len(one_group["groups"]) == 1 and len(two_groups["groups"]) == 2
    assert "weight" not in one_group["groups"][0]["completions"][0]
    found = kept_completions(run.folder)
    assert [one["length"] for one in found] == [5, 3, 1, 4]
    for i, one in enumerate(found):
        assert "".join(one["tokens"]) == training.tokenizer.decode(batch.samples[i].completion_ids)
        n = one["length"]
        assert one["logprob"] == [-2.0] * n and one["weight"] == [1.0] * n
        expected = [None if i == 3 else advantages[i].item()] * n
        assert one["advantage"] == expected
        logprobs, entropies = by_the_logits(training.policy, batch.samples[i])
        ratio = (logprobs + 2).exp()
        torch.testing.assert_close(torch.tensor(one["ratio"]), ratio, rtol=0, atol=6e-4)
        torch.testing.assert_close(torch.tensor(one["entropy"]), entropies, rtol=0, atol=6e-4)
    assert [one["verdict"] for one in found] == ["right", "wrong", "wrong", "wrong"]
    assert [one["truncated"] for one in found] == [False, True, False, False]


def test_of_long_completions_the_first_tokens_are_kept(step_of_a_run):
    _, batch, training = step_of_a_run
    numbers = {"ratio": [-1 / 3] * 5}
    one = rlvr.show.report.describe(batch.samples[0], numbers, training.tokenizer, 3)
    assert (one["length"], len(one["tokens"]), one["ratio"]) == (5, 3, [-0.333] * 3)


def write_run(folder, step_count):
    """A run folder with the log that the page reads."""
    folder.mkdir()
    completion = dict(reward=1.0, verdict="right", length=2, truncated=False, tokens=[EVIL, " 7"])
    completion |= dict(logprob=[-1.25, -0.5], entropy=[0.3, None], ratio=[1.1, 0.9])
    completion |= dict(advantage=[1.0, 1.0], by_tool=[])
    groups = [dict(prompt=EVIL, completions=[completion] * 16)]
    for step in range(1, step_count + 1):
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
    assert first == second == {"name": folder.name, "steps": rows(folder, "tokens")}
    assert first["steps"][0]["groups"][0]["completions"][0]["tokens"][0] == EVIL
    assert EVIL not in page.read_text()
    assert not re.search("innerHTML|https?:|src=|href=", page.read_text())
    with pytest.raises(UserError, match="nothing has no tokens.jsonl"):
        write_report(page, [tmp_path / "nothing"])


@pytest.mark.usefixtures("no_evaluation")
def test_a_run_writes_the_page_at_its_end(run):
    """CW-GRPO's has a weight, and what is kept does not touch the training."""
    for folder, groups in (("with", 1), ("without", 0)):
        run("cwgrpo", max_steps=1, save_steps=1, log_tokens=groups, output_dir=folder)
    assert rows("with") == rows("without")
    kept = kept_completions("with")
    assert len(kept) == 4 and "weight" in kept[0]
    [page] = data_of(Path("with/report.html"))
    assert page["steps"] == rows("with", "tokens")
    assert not {"tokens.jsonl", "report.html"} & {path.name for path in Path("without").iterdir()}


CLICKS = """
<script>
const errors = [];
window.onerror = (message) => errors.push(message);
const colors = {};
const select = document.getElementById("quantity");
for (const { value } of [...select.options]) {
  select.value = value;
  select.oninput();
  colors[value] = document.querySelector(".tokens span").style.backgroundColor;
}
const slider = document.getElementById("slider");
const opened = document.getElementById("step").textContent;
slider.value = 0;
slider.oninput();
const token = document.querySelector(".tokens span");
const title = document.title;
document.title = JSON.stringify({
  errors, colors, title, opened,
  step: document.getElementById("step").textContent,
  numbers: token.title,
  token: token.textContent,
  prompts: [...document.querySelectorAll(".prompt")].map((one) => one.textContent),
  bold: document.querySelectorAll("#runs b").length,
  completions: document.querySelectorAll(".completion").length,
});
</script>
</body>
"""


@pytest.mark.slow
def test_two_runs_clicked_in_a_browser(tmp_path):
    """What a model wrote is shown as text."""
    page = tmp_path / "report.html"
    write_report(page, [write_run(tmp_path / name, 3) for name in ("a", "b")])
    page.write_text(page.read_text().replace("</body>", CLICKS))
    text = open_page(page)
    seen = json.loads(html.unescape(re.search("<title>(.*?)</title>", text, re.S)[1]))
    assert (
        seen["errors"] == [] and seen["title"] == "What each token was worth" and seen["bold"] == 0
    )
    assert seen["opened"] == "3 of 3" and seen["step"] == "1 of 3"
    assert seen["token"] == EVIL and seen["prompts"] == [EVIL, EVIL]
    assert seen["completions"] == 32
    for number in ("-1.25", "0.3", "1.1"):
        assert number in seen["numbers"]
    # no weight, which only CW-GRPO has; and each of the four has another colour
    assert [*seen["colors"]] == ["advantage", "logprob", "entropy", "ratio"]
    assert len({*seen["colors"].values()}) == 4 and all(seen["colors"].values())

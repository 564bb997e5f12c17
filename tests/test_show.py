"""What a run shows: rows in the terminal, the .jsonl files, curves.png, and report.html clicked."""

import importlib
import io
import json
import math
import os
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.show.report
from rlvr import progress
from rlvr.errors import UserError, fail
from rlvr.flags.config import Config
from rlvr.show import plots
from rlvr.show.console import Console, duration
from rlvr.show.logs import append_row, drop_rows_after, keep_problems, read_rows
from rlvr.show.plots import choose_panels
from rlvr.show.report import before_and_after, write_report
from rlvr.tasks.problems import Sample, own_tokens

import pytest
import torch
from browser import open_page
from matplotlib.figure import Figure
from runs import before_calls, rows
from samples import by_the_logits

ROW = dict(reward=0.3376, length=24.51, truncated=0.02, entropy=0.1634, all_wrong=0.25)
ROW |= dict(all_right=0.125, clip_low=0.001, clip_high=0.002, grad_norm=1.239, unparsed=0.0)
ROW |= dict(kl=0.0, seconds_rollout=2.0, seconds_update=1.0, reward_std=0.0)
ROW |= dict(timeout=0.25, memory=0.125)
HEADER = "  step  reward  length  cut off  entropy   mixed  clipped  gradient  seconds  time left"
LINE = "  1/60   0.338    24.5       2%    0.163     62%    0.30%      1.24      3.0      3 min"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal of 100 columns, whatever the tests run on."""
    monkeypatch.setenv("COLUMNS", "100")


def test_a_step_is_a_row_of_a_table(monkeypatch):
    console = Console()
    assert console.step(1, 60, ROW) == ["", HEADER, LINE]
    later = {**ROW, "seconds_rollout": 5.0}  # a mean of 4.5 s, and 19 steps are left
    (line,) = console.step(41, 60, later)
    assert line.split()[-3:] == ["6.0", "86", "s"] and len(line) == len(HEADER)
    assert [len(console.step(step, 60, ROW)) for step in range(3, 22)] == [1] * 18 + [3]
    (line,) = console.step(22, 60, {"loss": 0.5})  # of a script that logs other metrics
    assert line.split()[:4] == ["22/60", "nan", "nan", "nan%"]
    console.evaluation(22, 60, "", {"pass@1": 0.5}, {"step": 0})  # which parts rows from a header
    assert console.step(23, 60, ROW)[1] == HEADER
    assert Console().step(9, 100, ROW)[2].startswith("  9/100 ")  # as wide as 100/100
    assert [*map(duration, (89.4, 90, 5399, 5400))] == ["89 s", "2 min", "90 min", "1.5 h"]
    rest = "reward  length  time left", "reward  time left", "time left"
    for columns, kept in zip((33, 32, 9), rest, strict=True):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert Console().step(1, 60, ROW)[1] == f"  step  {kept}"
    monkeypatch.setenv("COLUMNS", "300")
    assert progress.folded("x" * 85 + " runs/grpo-grpo-1") == "x" * 85 + "\nruns/grpo-grpo-1"


def test_a_hint_is_given_where_it_occurs_and_once():
    console = Console()
    console.step(1, 60, ROW)
    for key, limit, beyond, advice in (
        ("truncated", 0.5, 0.51, "raise --max_completion_length."),
        ("unparsed", 0.9, 0.91, "read samples.jsonl, look at --system_prompt."),
        ("entropy", 0.01, 0.009, "try a lower --learning_rate, or --epsilon_high 0.28."),
        ("kl", 1.0, 1.1, "lower --learning_rate, or raise --beta."),
        ("crash", 0.125, 0.126, "read samples.jsonl."),  # half of them with the two above
        ("all_wrong", 0.99, 1, "try easier problems or a larger --num_generations."),
        ("all_right", 0.99, 1, "try harder problems or --dynamic_sampling."),
    ):
        if key.startswith("all"):  # partial rewards, which differ
            lines = console.step(2, 60, ROW | {key: beyond, "reward_std": 0.1})
            assert "hint" not in " ".join(lines)
        steps = [console.step(2, 60, ROW | {key: value}) for value in (limit, beyond, beyond)]
        (_,), (_, hint), (_,) = steps
        assert hint.startswith("hint: ") and hint.endswith(advice)


def test_an_evaluation_is_a_line_of_what_it_was_and_is():
    first = {"step": 0, "pass@1": 0.294, "pass@2": 0.4, "pass@16": 0.938, "greedy": 1.0}
    (line,) = Console().evaluation(0, 60, "", first, first)
    assert line == "eval 0/60  pass@1 .294  pass@16 .938  greedy 1.000"
    now = {"pass@1": 0.58, "pass@1_se": 0.1, "pass@16": 0.9, "greedy": 0.5, "token_entropy": 0.1}
    told = "pass@1 .294 -> .580  pass@16 .938 -> .900  greedy 1.000 -> .500  entropy .100"
    assert Console().evaluation(20, 60, "", now, first) == [f"eval 20/60  {told}"]


def test_a_terminal_has_one_line_that_is_replaced(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    assert not progress.on_terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_COUNTS", 999.0)
    progress.count("loading", 0, 2)
    progress.count("grading", 0, 64)  # what begins is shown at once
    progress.count("grading", 1, 64)  # too soon
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_COUNTS", -1.0)
    progress.count("completions", 512, 1024)
    monkeypatch.setattr(sys, "argv", ["grpo.py"])
    progress.write("what stays")
    with pytest.raises(SystemExit):
        fail("no")
    monkeypatch.setattr("rlvr.world.RANK", 1)
    progress.begin("of another rank")
    shown, end = terminal.getvalue().split(progress.ERASE), "\rgrpo.py: error: no\n"
    assert shown == ["", "loading 0/2\r", "grading 0/64\r", "completions 512/102\r", "\r", end]


def test_a_log_file_has_plain_lines_and_few(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 999.0)
    progress.begin("loading")
    progress.count("completions", 512, 1024)  # too soon
    monkeypatch.setattr(progress, "last", -1e9)
    for done in (0, 512):  # what begins is not shown, and the next one is too soon
        progress.count("completions", done, 1024)
    assert capsys.readouterr() == ("loading\n", "")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1.0)
    progress.count("completions", 1024, 1024)
    assert capsys.readouterr() == ("completions 1024/1024\n", "")


def test_a_run_goes_on_where_nobody_reads_what_it_prints(monkeypatch):
    """Ctrl-C ends the reader of `| tee log`, too."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", open(writer, "w"))
    monkeypatch.setattr(sys, "stderr", Mock(write=Mock(side_effect=OSError)))  # a terminal
    monkeypatch.setenv("TERM", "xterm")
    for _ in range(2):
        progress.write("metrics")
        print("beside them", flush=True)


def test_rows_come_back_and_every_line_is_json_by_the_standard(tmp_path):
    assert read_rows(tmp_path, "metrics") == []
    for step in range(3):
        keep_problems(tmp_path, [{"step": step}])
    assert read_rows(tmp_path, "problems") == [{"step": 0}, {"step": 2}]
    text = {"step": 1, "reward": 1e300, "text": "a\nb\u2028ü"}
    append_row(tmp_path, "metrics", text)
    append_row(tmp_path, "metrics", {"step": 2, "loss": math.nan, "by_token": [{"a": [-math.inf]}]})
    written = (tmp_path / "metrics.jsonl").read_text().split("\n")
    assert written[1:] == ['{"step": 2, "loss": null, "by_token": [{"a": [null]}]}', ""]
    first, second = read_rows(tmp_path, "metrics")
    assert first == text and math.isnan(second["loss"])
    (tmp_path / "eval.jsonl").write_text('{"step": 1}\n\n{"step": 2}\n')
    assert read_rows(tmp_path, "eval") == [dict(step=1), dict(step=2)]  # without a blank one
    drop_rows_after(tmp_path, 1)
    assert (tmp_path / "eval.jsonl").read_text() == '{"step": 1}\n'
    (tmp_path / "eval.jsonl").unlink()
    (tmp_path / "eval.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match="^cannot use .*eval.jsonl: .*No space left on device"):
        append_row(tmp_path, "eval", {"step": 1})


def logs_of(*rows):
    return [{"step": step, **row} for step, row in enumerate(rows)]


EVALS = logs_of(
    {"pass@1": 0.1, "pass@4": 0.3, "pass@4_se": 0.1, "answer_entropy": 0.0, "set": "math"},
    {"pass@1": 0.2, "pass@4": 0.4, "pass@4_se": 0.2, "answer_entropy": 0.5, "set": "math"},
)
METRICS = logs_of(
    {"reward": 0.0, "loss": 0.3, "clip_low": 0.0, "clip_high": 0.0, "grad_norm": math.nan},
    {"reward": 0.1, "loss": 0.3, "clip_low": 0.0, "clip_high": 0.1, "kl_own": 1.0, "p(wrong)": 0.7},
    dict.fromkeys("learning_rate mismatch mismatch_k3 mismatch_max_ratio time tokens".split(), 1.0),
    dict.fromkeys("reward_std advantage_max ratio_max ratio_k3 loss_share".split(), 1.0),
)


def test_what_is_drawn():
    """No line that is 0 throughout, no loss; a script's own metrics come third, as logged."""
    assert choose_panels({"math": EVALS}, METRICS) == [
        ("held-out pass@k", EVALS, ["pass@1", "pass@4"]),
        ("reward of the rollout", METRICS, ["reward"]),
        ("kl_own", METRICS, ["kl_own"]),
        ("p(wrong)", METRICS, ["p(wrong)"]),
        ("held-out entropy of answers (nats)", EVALS, ["answer_entropy"]),
        ("clipped tokens (%)", METRICS, ["clip_high"]),
        ("gradient norm", METRICS, ["grad_norm"]),
    ]
    # panels of each set; also of what the first row lacks: a resumed run may have more samples
    first = {"pass@1": 0.1, "pass@1 level 5": 0.1, "token_entropy": 0.4}
    sets = dict(math=logs_of(first, first | {"pass@16": 0.2}))
    sets["gsm8k"] = logs_of({"pass@1": 0.5, "pass@2": 0.0})
    assert choose_panels(sets, []) == [
        ("held-out pass@k: math", sets["math"], ["pass@1", "pass@16"]),
        ("held-out pass@k: gsm8k", sets["gsm8k"], ["pass@1"]),
        ("held-out entropy of tokens (nats): math", sets["math"], ["token_entropy"]),
    ]
    logged = logs_of(dict.fromkeys("all_right seconds_rollout seconds_update unparsed".split(), 1))
    titles = [title for title, *_ in choose_panels({}, logged)]
    assert titles == ["groups (%)", "seconds", "completions (%)"]
    many = logs_of({f"own_{i}": 1.0 for i in range(20)})
    shown = choose_panels({"math": EVALS}, many)
    assert len(shown) == 15 and shown[0][0] == "held-out pass@k"


def test_curves_are_drawn_by_step_and_by_few_points(tmp_path, monkeypatch):
    """Of both logs; a row without the metric has no point."""
    few = [{"step": 2, "pass@1": 3, "pass@2": 1}, {"step": 3}, {"step": 4, "pass@1": 5}]
    few[2]["pass@2"] = 0.5
    evals = {"a": few}
    steps = logs_of(*({"all_wrong": i / 8192, "own": 1} for i in range(5001)))
    figures = []
    monkeypatch.setattr(plots, "read_evaluations", lambda _: evals)
    monkeypatch.setattr(plots, "read_rows", lambda *_: steps)
    before_calls(monkeypatch, Figure, "savefig", lambda figure, _: figures.append(figure))
    plots.draw_curves(tmp_path)
    evals, steps = {"a": logs_of({"pass@1": 0.0})}, []  # where all is 0, there is no panel
    plots.draw_curves(tmp_path)
    assert (tmp_path / "curves.png").exists()
    shown, empty = (figure.axes for figure in figures)
    assert not empty
    titles = ["held-out pass@k", "own", "groups (%)"]
    assert [axis.get_title("left") for axis in shown] == titles
    (few, _), _, (many,) = (axis.lines for axis in shown)
    legend, none, one = (axis.get_legend() for axis in shown)  # none where the title is the name
    assert [text.get_text() for text in legend.texts] == ["pass@1", "pass@2"] and not none
    assert [text.get_text() for text in one.texts] == ["all_wrong"]
    assert 500 < len(many.get_xdata()) <= 1000 and many.get_xdata()[-1] > 4900
    assert (many.get_ydata() == many.get_xdata() * 100 / 8192).all()
    assert (few.get_xdata().tolist(), few.get_ydata().tolist()) == ([2, 4], [3, 5])


EVIL = "</script><script>document.title = 'fooled'</script><!--<b>&amp;"


def test_the_numbers_of_each_token(tiny, tmp_path, monkeypatch):
    """Two groups of two: log-prob -2 before, and after the step that of a plain forward pass."""
    # Of long completions, the first tokens are kept. A tool's tokens have no numbers.
    policy, tokenizer = tiny
    ids = tokenizer("1+2=3 4-1")["input_ids"]
    samples = [
        Sample(ids[i // 2 : 4], ids[:end], "", i - 1.0, i == 1, status=status, success=i == 0)
        for i, (end, status) in enumerate(zip([5, 3, 1, 4], ["", "", "timeout", ""], strict=True))
    ]
    samples[0] = replace(samples[0], replies=[range(2, 3), range(4, 5)])
    training = SimpleNamespace(policy=policy, tokenizer=tokenizer)
    run = SimpleNamespace(config=Config(num_generations=2), folder=tmp_path, training=training)
    mask = 1.0 * own_tokens(samples)
    counted = mask * torch.tensor([[1.0], [0.0], [1.0], [1.0]])  # not the truncated completion
    masks = dict(completion_mask=mask, loss_mask=counted)
    batch = SimpleNamespace(samples=samples, old_logprobs=-2 * mask, **masks)
    state = torch.get_rng_state()
    monkeypatch.setattr("rlvr.show.report.MOST_TOKENS", 8)
    advantages = torch.tensor([[1.5], [-0.5], [1 / 3], [math.nan]])
    for groups in (0, 1, 9):  # there are two
        run.config.log_tokens = groups
        weights = torch.ones(4, 5) if groups == 9 else None
        rlvr.show.report.log_tokens(run, 3, batch, advantages, weights)
    assert (torch.get_rng_state() == state).all()  # the training goes on as without it
    one_group, two_groups = rows(tmp_path, "tokens")  # 0 writes nothing
    sizes = [
        [len(each["completions"]) for each in row["groups"]] for row in (one_group, two_groups)
    ]
    assert sizes == [[2], [2, 2]] and one_group["step"] == 3
    prompts = [group["prompt"] for group in two_groups["groups"]]
    assert prompts == [tokenizer.decode(ids[start:4]) for start in (0, 1)]
    assert "weight" not in one_group["groups"][0]["completions"][0]
    found = [one for group in two_groups["groups"] for one in group["completions"]]
    assert [one["length"] for one in found] == [5, 3, 1, 4]
    for sample, one, n, advantage in zip(
        samples, found, [4, 3, 1, 4], [1.5, -0.5, 0.333, None], strict=True
    ):
        assert "".join(one["tokens"]) == tokenizer.decode(sample.completion_ids[:n])
        own = [t for t in range(n) if not (sample.replies and t == 2)]
        for name, value in (("logprob", -2.0), ("weight", 1.0), ("advantage", advantage)):
            assert one[name] == [value if t in own else None for t in range(n)]
        logprobs, entropies = by_the_logits(policy, sample)
        for name, values in (("ratio", (logprobs + 2).exp()), ("entropy", entropies)):
            shown = torch.tensor([one[name][t] for t in own])
            torch.testing.assert_close(shown, values[own], rtol=0, atol=6e-4)
    assert [one["by_tool"] for one in found] == [[2], [], [], []]
    assert [one["verdict"] for one in found] == ["right", "wrong", "timeout", "wrong"]
    assert [one["truncated"] for one in found] == [False, True, False, False]
    assert [one["reward"] for one in found] == [-1, 0, 1, 2]


def write_run(folder, step_count, right_from=1, **config):
    """A run folder with the logs that the page reads. Groups are mixed from a step on."""
    told = dict(script="grpo.py", seed=3, learning_rate=1e-4, epsilon=0.2, epsilon_high=0.28)
    told |= dict(importance_sampling_level="token", max_steps=60)
    told["record"] = dict(commands=["python grpo.py --seed 3"], commit="1a", changed=False)
    told["record"] |= dict(ranks=2, versions=dict(torch="3"))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(told | config))
    for step, rate in ((0, 0.25), (step_count, 0.5)):
        row = {"set": "a", "pass@1": rate, "pass@1_se": rate / 5, "pass@2": 0.5, "greedy": 0.5}
        row["length"] = math.nan
        append_row(folder, "eval", {"step": step, **row})
        for problem, count in (("a", 2), ("b", 4 if step == 0 else 1)):  # b has changed most
            about = dict(set=problem, id=0, prompt=EVIL, samples=4, right=count, greedy=0.0)
            append_row(folder, "problems", {"step": step, **about, "greedy_text": f"{step}{EVIL}"})
    right = dict(reward=1.0, verdict="right", length=2, truncated=False, tokens=[EVIL, " 7"])
    right |= dict(logprob=[-1.25, -0.5], entropy=[0.3, None], ratio=[1.6, 0.9])
    right |= dict(advantage=[0.01, 0.01], weight=[0.4, 1.2], by_tool=[])
    wrong = right | dict(reward=0.0, verdict="wrong", advantage=[-0.005, -0.005])
    wrong |= dict(length=9, truncated=True, by_tool=[1])
    for step in range(1, step_count + 1):
        group = [right] * (8 if step >= right_from else 0)
        group += [wrong] * (16 - len(group))
        append_row(folder, "metrics", {"step": step, "reward": 0.5, "entropy": 0.1})
        groups = [dict(prompt=EVIL, completions=group)]
        append_row(folder, "tokens", {"step": step, "groups": groups})
    return folder


def data_of(page):
    inside = page.read_text().split('<script id="data" type="application/json">')[1]
    return json.loads(inside.split("</script>")[0], parse_constant=pytest.fail)


def test_the_page_holds_all_and_no_tag_of_a_model(tmp_path):
    folder = write_run(tmp_path / EVIL.replace("/", ""), 2)
    page = tmp_path / "report.html"
    write_report(page, [folder, folder])
    first, second = data_of(page)
    assert first == second
    assert (first["name"], first["steps"]) == (folder.name, rows(folder, "tokens"))
    assert first["commands"] == ["python grpo.py --seed 3"]
    facts = "commit 1a, no uncommitted changes, ranks 2, torch 3"
    assert first["facts"] == f"seed 3, learning_rate 0.0001, max_steps 60, {facts}"
    assert first["clip"] == pytest.approx([0.8, 1.28])
    assert [row["right"] for row in first["problem"]] == [4, 1]
    assert first["curves"] == {
        "pass@1": [[0, 0.25], [2, 0.5]],
        "pass@2": [[0, 0.5], [2, 0.5]],
        "reward": [[1, 0.5], [2, 0.5]],
        "entropy": [[1, 0.1], [2, 0.1]],
    }
    assert EVIL not in page.read_text()
    text = page.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search("innerHTML|https?:|src=|href=", text)
    for name in ("math", "gsm8k"):
        row = {"set": name, "pass@1": 2 / len(name), "pass@4": 0.5}  # 0.5 of the first set
        append_row(tmp_path, "eval", {"step": 0, **row})
    for step, entropy in ((1, math.nan), (2, 0.12344)):
        append_row(tmp_path, "metrics", {"step": step, "entropy": entropy})
    curves = rlvr.show.report.curves_of(tmp_path)
    assert curves == {
        "pass@1": [[0, 0.5]],
        "pass@4": [[0, 0.5]],
        "reward": [],
        "entropy": [[1, None], [2, 0.1234]],
    }
    with pytest.raises(UserError, match="nothing has no tokens.jsonl"):
        write_report(page, [folder, tmp_path / "nothing"])


def test_before_and_after_by_set(tmp_path):
    """The first and the last row of each set count, and k that both of them have."""
    first = {"pass@1": 0.25, "pass@1_se": 0.125, "pass@4": 0.5, "pass@4_se": math.nan}
    last = first | {"pass@1": 0.123456, "pass@8": 0.9, "greedy": 0.5}
    for name, rows_of_set in {"c++": [first, {"pass@1": 0.0}, last], "new": [first]}.items():
        for step, row in enumerate(rows_of_set):
            append_row(tmp_path, "eval", {"step": step, "set": name, **row})
    table = {name: cells for name, *cells in before_and_after(tmp_path)}
    assert table["c++: pass@1"] == [[0.25, 0.125], [0.1235, 0.125]]
    assert table["c++: pass@4"] == [[0.5, None], [0.5, None]]
    assert table["c++: greedy"] == [[None, None], [0.5, None]]
    assert table["new: pass@1"] == [[0.25, 0.125], [0.25, 0.125]] and len(table) == 10


def test_a_long_run_has_a_page_of_bounded_size(tmp_path, monkeypatch):
    folders = [write_run(tmp_path / "a", 50), write_run(tmp_path / "b", 40)]
    page = tmp_path / "report.html"
    whole = sum((folder / "tokens.jsonl").stat().st_size for folder in folders)
    monkeypatch.setattr("rlvr.show.report.MOST_BYTES", whole // 4 + 1)
    monkeypatch.setattr("rlvr.show.report.MOST_POINTS", 10)
    write_report(page, folders)
    a, b = data_of(page)
    assert [row["step"] for row in a["steps"]] == [*range(1, 50, 4)]
    assert [row["step"] for row in b["steps"]] == [*range(1, 40, 4)]
    assert a["stride"] == 4
    assert [step for step, _ in a["curves"]["reward"]] == [*range(1, 50, 5)]


CLICKS = """
const all = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
const token = () => document.querySelector(".tokens span");
const [select, slider, colors] = [byId("quantity"), byId("slider"), {}];
const opened = [select.value, byId("step").textContent];
for (const { value } of [...select.options]) {
  select.value = value;
  select.oninput();
  const last = [...document.querySelectorAll(".tokens span")].at(-1);
  const [color, ofLast] = [token(), last].map((one) => one.style.backgroundColor);
  colors[value] = [byId("legend").textContent, color, ofLast];
}
slider.value = 2;
slider.oninput();
const seen = {
  colors, opened,
  title: document.title,
  step: byId("step").textContent,
  numbers: token().title,
  token: token().textContent,
  verdicts: all("#runs .completion > .right"),
  table: all("#table tr"),
  said: [...all("#errors"), ...all("#runs p")],
  lines: [...document.querySelectorAll("#charts polyline")].map((line) =>
    ["points", "stroke", "stroke-dasharray"].map((name) => line.getAttribute(name))),
  prompts: all("#runs .prompt"),
  completions: all("#runs .completion").length,
  notes: all(".tokens i, .tokens .tool"),
  clipped: all(".tokens .clipped"),
  named: [...document.querySelectorAll("#runs b")].map((one) => one.style.borderBottomColor),
  problems: all("#problems .completion > .wrong"),
  dashed: all('#charts line[stroke-dasharray="7 5"] + text'),
};
"""


@pytest.mark.slow
def test_two_runs_clicked_in_a_browser(tmp_path):
    """It opens at the first mixed group, and what a model wrote is shown as text."""
    page = tmp_path / "report.html"
    folders = [write_run(tmp_path / name, 3, right_from=2) for name in ("a", "b")]
    first, second, third = (folders[0] / "tokens.jsonl").read_text().splitlines(keepends=True)
    (folders[0] / "tokens.jsonl").write_text((first + third).replace("weight", "unread"))
    (folders[1] / "tokens.jsonl").write_text(first + second)
    write_report(page, folders)
    errors, seen = open_page(tmp_path, page.read_text(), CLICKS)
    assert errors == [] and seen["title"].startswith("Before and after")
    assert seen["opened"] == ["logprob", "2 of 3"] and seen["step"] == "3 of 3"
    assert seen["token"] == EVIL and seen["prompts"] == [EVIL]
    assert seen["completions"] == 16 and seen["verdicts"] == 8 * ["right, reward 1"]
    nothing = "This run has kept no tokens of this step."
    error = "± is one standard error over the held-out problems."
    assert seen["said"] == [error, "a", "b", nothing]
    notes = [" 7", " \u2026 9 tokens in all", " (no stop token)", " (underlined: by the tool)"]
    assert seen["notes"] == 8 * notes
    assert seen["clipped"] == 8 * [EVIL]  # its ratio is 1.6; those of 0.9 are within 0.8
    assert seen["named"] == ["rgb(0, 114, 178)", "rgb(230, 159, 0)"]  # as the lines below
    of_pass_at_1 = "pass@1" + 2 * "0.250 ± 0.0500.500 ± 0.100"
    assert seen["table"][:2] == ["a, beforea, afterb, beforeb, after", of_pass_at_1]
    # two charts with two metrics of two runs; the first one goes to 0.5 and to step 3
    assert len(seen["lines"]) == 8
    paths = [("44,135 444,40", ""), ("44,40 444,40", "7 5")]  # of pass@1 and pass@2
    expected = [[path, color, dash] for color in ("#0072b2", "#e69f00") for path, dash in paths]
    assert seen["lines"][:4] == expected
    assert seen["dashed"] == ["pass@2", "entropy"]
    right = ["before: 4 of 4 right; greedy:", "after: 1 of 4 right; greedy:"]
    assert seen["problems"] == 2 * right  # in red, for the greedy answers are wrong
    assert seen["numbers"] == "logprob -1.25\nadvantage 0.01\nentropy 0.3\nratio 1.6\nweight none"
    # the small advantages of these runs have the full colour
    assert [*seen["colors"]] == ["logprob", "advantage", "entropy", "ratio", "weight"]
    legends, colors, of_last = zip(*seen["colors"].values(), strict=True)
    # a factor of 1.5 has the full colour, and -log 0.9 is 0.260 of log 1.5
    shares = [("blue", 0.75), ("good", 0.75), ("orange", 0.75), ("good", 0.75), ("orange", 0.75)]
    shares += [("blue", 0.3), ("bad", 0.375), ("bad", 0.195), ("blue", 0.25)]
    assert of_last[2] == ""  # its entropy is not known
    for color, (name, share) in zip(filter(None, colors + of_last), shares, strict=True):
        assert color.startswith(f"rgba(var(--{name}), ")
        assert float(color[:-1].split(", ")[1]) == pytest.approx(share, abs=1e-3)
    ends = [f"{end} in a, {end} in b" for end in ("\u22121.3", "0.01", "0.3", "1.5")]
    ends.append("1 in a, 0.6 in b")  # nothing says how far the weights of a are from 1
    assert all(end in told for end, told in zip(ends, legends, strict=True))


def test_streams_that_are_closed_or_lack_a_letter(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", None)  # as by 2>&-
    importlib.reload(progress)
    progress.replace_line("nobody reads this")
    progress.write("saved ü", "x")
    assert sys.stdout.buffer.getvalue() == b"saved \\xfc\nx\n"

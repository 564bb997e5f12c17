"""docs/lessons/, whose checks tell right from wrong; training from Python; docs/notebook.ipynb."""

import importlib.util
import math
import os
import re
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from rlvr.errors import UserError

import nbformat
import pytest
import torch
from matplotlib.figure import Figure
from runs import ROOT, SMALL, before_calls, first_fast, left_as_it_was, rows

import common
import fade
import grpo

FOLDER = ROOT / "docs" / "lessons"
PLACE = re.compile(r"^    \w+ = .*  # replace this with your formula\n", re.MULTILINE)
FOLDED = re.compile(r'lesson\.solutions\(\s*"""(.*?)"""', re.DOTALL)
MEANS = "logprobs - logprobs.mean()", "advantages - advantages.mean()", "c.var(correction=0)"
WEIGHTS = "c = ({}) * ({}); k = (-(c**2) / (2 * {})).exp(); weights = k * len(c) / k.sum()"
# Of each lesson: the values of the cell that takes its time, and wrong solutions.
LESSONS = {
    "5_two_axes": ("", "alpha = 1 / (2 * success_rate)"),
    "1_advantage": (
        "begun drawn chosen batch advantages before logprobs change",
        "advantages = rewards - rewards.mean(1, keepdim=True)",
        "advantages = 4 / 3 * (rewards - rewards.mean(1, keepdim=True))",
    ),
    "2_ratio": (
        "begun batch advantages logprobs marks clipped",
        "found = torch.where((ratio - 1).abs() > epsilon, 0, ratio * advantage)",
        "found = torch.where((ratio > 1 + epsilon) & (advantage > 0), 0, ratio * advantage)",
        "found = torch.where((ratio - 1) * advantage.sign() > 0.2, 0, ratio * advantage)",
        "found = torch.where((ratio - 1) * advantage.sign() > epsilon, 0, advantage)",
    ),
    "3_entropy": ("results", "factor = success_rate", "factor = success_rate + kept / 2"),
    "4_odds": ("begun batch kappa", "beta_pos = worth / ((1 - p) / p)"),
    "6_tokens": (
        "begun batch grouped logprobs mask advantages weights mixed",
        "weights = torch.ones_like(logprobs)",
        WEIGHTS.format(MEANS[0], "advantages", MEANS[2]),
        WEIGHTS.format("logprobs", *MEANS[1:]),
        WEIGHTS.format(*MEANS[:2], "(c**2).mean()"),
    ),
    "7_verifier": (
        "",
        "reward = not unreadable and is_right(answer, gold)",
        "reward = unreadable != is_right(answer, gold)",
        "reward = is_right(answer, gold) or answer.isdecimal()",
    ),
}


def load(path):
    """The module of a lesson."""
    spec = importlib.util.spec_from_file_location("a_lesson", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_solved(name, solution, folder, values):
    """The lesson with a solution in its place. What takes time is taken from the unsolved run."""
    source = (FOLDER / f"{name}.py").read_text()
    assert len(PLACE.findall(source)) == 1
    indented = "".join(f"    {line.strip()}\n" for line in solution.strip().splitlines())
    path = folder / f"{name}.py"
    path.write_text(PLACE.sub(lambda _: indented, source))
    with left_as_it_was():
        load(path).app.run(defs={slow: values[slow] for slow in LESSONS[name][0].split()})


@pytest.mark.parametrize("name", first_fast(LESSONS))
def test_a_lesson_tells_right_from_wrong(name, tmp_path, capsys, monkeypatch):
    """What is folded at its end is right."""
    monkeypatch.syspath_prepend(FOLDER)  # as Python does, so that it finds `lesson` beside it
    with left_as_it_was():
        outputs, values = load(FOLDER / f"{name}.py").app.run()
    assert capsys.readouterr().out.startswith("Not yet: ")
    figures = [value for value in values.values() if isinstance(value, Figure)]
    assert figures
    for figure in figures:  # a script, which has no page, draws none
        figure.canvas.draw()
    shown = "".join(str(getattr(output, "text", "")) for output in outputs)
    if name == "1_advantage":  # of one success in four, sqrt(3); and a geometric mean
        assert "is worth <strong>1.73</strong> and a failure <strong>-0.58</strong>" in shown
        assert "sum to 0.00" in shown
        ratios = [math.exp(nats) for nats in values["change"][values["batch"].rewards[0] == 1]]
        mean = math.prod(ratios) ** (1 / len(ratios))
        assert f"a success is <strong>{mean:.2f}</strong> times" in shown and mean > 1
        drawn, _, _ = values["curves"].lines
        p, worth = drawn.get_xydata().T  # its square is the odds against a success
        assert drawn.get_label() == "a success" and worth**2 == pytest.approx((1 - p) / p)
    if name == "2_ratio":  # at 1.4, above the range
        assert values["slopes"] == ["0.00", "-1.40"]
        counted = values["batch"].loss_mask[values["advantages"][:, 0] != 0]
        clipped = values["marks"]["clip_low"] | values["marks"]["clip_high"]
        assert values["share"] == (clipped * values["batch"].loss_mask).sum() / counted.sum()
        bars = values["denominators"].axes[0].patches
        shares = [1 / 12, 1 / 24, 1 / 48, 1 / 36, 1 / 24, 1 / 48]  # of tokens of 6, and of 18
        assert [bar.get_height() for bar in bars] == pytest.approx(shares)
        assert [bar.get_center()[0] for bar in bars] == pytest.approx([0, 2, 4, 0.8, 2.8, 4.8])
    if name in ("2_ratio", "6_tokens"):  # what is right has a positive advantage
        assert {*re.findall(r"([✓✗]) ([+-])", shown)} == {("✓", "+"), ("✗", "-")}
    if name == "3_entropy":  # the likely action has four times the probability
        assert f"is {values['results']['GRPO']['pass@1']:.3f} after GRPO" in shown
        assert shown.count("4.0 times") == 2
        heights = [bar.get_height() for bar in values["bars"].patches]
        assert heights == [metrics["token_entropy"] for metrics in values["results"].values()]
    if name == "4_odds":  # the strength of the successes is the larger one
        assert shown.count(f"{math.sqrt(3):.4f}") == 2  # of two right ones in eight
        assert values["way"] == ("rises" if values["kappa"] > 0 else "falls")
        assert f"solves {100 * (values['rates'] < 0.5).sum() / 64:.0f}% of them" in shown
        size = (values["rates"] * (1 - values["rates"])).sqrt()  # that of a group's advantages
        of_hard = size[values["rates"] < 0.5].sum() / size.sum()
        assert values["share"]["GRPO"] == pytest.approx(of_hard.item(), abs=1e-4)
    if name == "5_two_axes":  # p (1 - p)^2 is largest at 1/3, and a delta of 1/2 doubles failures
        assert all(f"<strong>{told}</strong>" in shown for told in ("0.33", "2.00"))
        knobs = [values[name].lines[0].get_ydata()[0] for name in ("of_rate", "of_entropy")]
        assert "success rate of 0.25 count most" in shown  # with an alpha of 3
        assert knobs == pytest.approx([3, 0.65])  # at 0.05: the largest alpha, and 1 - 0.4 + 0.05
    if name == "6_tokens":  # a token is redder, the lower its weight
        weights = values["weights"][values["shown"]][values["inside"]]
        shades = [f"{shade:.2f}" for shade in 1 - weights / weights.max()]
        assert re.findall(r"213,94,0,([\d.]+)", shown) == shades
        low = values["logprobs"][values["shown"]][values["inside"]][weights < 0.5]
        assert f"{len(low)} have a weight below 1/2" in shown and f"is {low.mean():.2f}, " in shown
    if name == "7_verifier":  # the advantages of a group add up to 0, and errors make them smaller
        for rate, (right, wrong) in values["worth"].items():
            assert rate * right == pytest.approx((rate - 1) * wrong, abs=1e-5)
            assert 0 < right < math.sqrt((1 - rate) / rate)
        assert "<strong>0.60</strong>" in shown  # 1 - 0.1 - 0.3
        assert f"reaches {values['runs']['hole']['rewards'][-1]:.2f}. " in shown
        apart = [right - wrong for right, wrong in values["worth"].values()]
        assert apart[0] < apart[-1]  # more FP than FN is worse where few are right
    source = (FOLDER / f"{name}.py").read_text()
    for left, shown in re.findall(r"\$([^$=\n]+) = (\d\.\d+)\b", source):
        python = left.replace("\\", "").translate({ord("^"): "**", ord("{"): "(", ord("}"): ")"})
        assert f"{eval(python, {}, vars(math)):.{len(shown) - 2}f}" == shown, left
    (right,) = FOLDED.findall(source)
    found = PLACE.search(source)[0].split()[0]  # what the solution defines
    in_float64 = f"{right}\n{found} = torch.as_tensor({found}).double().numpy()"
    for solution in (right, in_float64, *LESSONS[name][1:]):
        run_solved(name, solution, tmp_path, values)
        says = "Right. " if solution in (right, in_float64) else "Not yet: "
        assert capsys.readouterr().out.startswith(says), solution


NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


@pytest.fixture
def in_a_notebook(tmp_path, monkeypatch):
    """An empty folder, and the handler of Ctrl-C that a kernel sets before each cell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    with left_as_it_was():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


def test_configure_is_the_command_line():
    with pytest.raises(UserError, match="--max_step 3; perhaps you meant --max_steps"):
        grpo.configure(max_step=3)
    with pytest.raises(UserError, match="^dynamic_sampling=0: it takes True or False"):
        grpo.configure(dynamic_sampling=0)
    with pytest.raises(UserError, match="^no such flag: --typed x$"):
        grpo.configure(typed="x")
    with pytest.raises(UserError, match="^help is for the command line"):
        grpo.configure(help=True)
    dapo = grpo.configure(variant="dapo", epsilon_high=None, compile=False, output_dir=Path("a b"))
    assert (dapo.epsilon_high, dapo.aggregation, dapo.dynamic_sampling) == (0.28, "token", True)
    assert dapo.typed == dict(variant="dapo", compile=False, output_dir="a b")
    assert grpo.configure(dataset="gsm8k").learning_rate == 1e-6
    assert fade.configure(variant="delta-only").alpha_max == 1


def test_a_config_made_by_hand_is_refused(in_a_notebook):
    for config in (grpo.Config(variant="dapo"), replace(grpo.configure(), seed=3)):
        with pytest.raises(UserError, match="by hand or by dataclasses.replace .*: use configure"):
            grpo.main(config)
    config = grpo.configure()
    for name in ("variant", "model", "dataset", "eval_dataset"):
        with pytest.raises(UserError, match=rf"use configure\({name}='dapo'\)"):
            setattr(config, name, "dapo")
    config.minibatch_size = 7
    with pytest.raises(UserError, match="--minibatch_size 7 must divide"):
        grpo.main(config)
    assert [*Path().iterdir()] == []


def test_two_runs_in_one_process(in_a_notebook):
    """Also after one that failed, with an advantage of one's own, and resumed."""

    def broken(batch, config):
        raise ZeroDivisionError

    def half(batch, config):
        return batch.rewards - 0.5, {"of_my_own": 1.0}

    config = grpo.configure(**SMALL, output_dir="one")
    with pytest.raises(ZeroDivisionError):
        grpo.main(config, broken)
    first = grpo.main(grpo.configure(resume_from_checkpoint="one"))
    second = grpo.main(grpo.configure(**SMALL | dict(output_dir="two")), half)
    assert (first.folder, second.folder) == (Path("one"), Path("two"))
    for result in (first, second):
        assert [row["step"] for row in result.steps] == [1, 2]
        assert [row["step"] for row in result.evaluations] == [0, 1, 2]
        assert rows(result.folder, timed=True) == result.steps
    assert second.steps[0]["of_my_own"] == 1.0 and "of_my_own" not in first.steps[0]
    third = grpo.main(grpo.configure(resume_from_checkpoint="two", max_steps=3))
    assert [row["step"] for row in third.steps] == [1, 2, 3]


def test_interrupting_the_kernel_ends_after_the_step(in_a_notebook, monkeypatch):
    """And once more, three seconds later, at once."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def interrupt(*given):
        os.kill(os.getpid(), signal.SIGINT)

    def interrupt_twice(*given):
        interrupt()
        clock[0] += 3
        interrupt()

    before_calls(monkeypatch, common, "prepare_update", interrupt)
    result = grpo.main(grpo.configure(**SMALL))
    assert [row["step"] for row in result.steps] == [1]
    assert (result.folder / "checkpoint-1").exists()
    with pytest.raises(KeyboardInterrupt):  # the next cell is interrupted as ever
        interrupt()
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler  # the run can be freed
    before_calls(monkeypatch, common, "prepare_update", interrupt_twice)
    with pytest.raises(KeyboardInterrupt):
        grpo.main(grpo.configure(**SMALL | dict(output_dir="two")))

    def fail(*given):
        raise ZeroDivisionError

    before_calls(monkeypatch, common, "prepare_update", fail)
    with pytest.raises(ZeroDivisionError):
        grpo.main(grpo.configure(**SMALL | dict(output_dir="three")))
    with pytest.raises(KeyboardInterrupt):  # also the cells after a run that has failed
        interrupt()


def test_a_thread_may_train(in_a_notebook):
    """Some notebooks run cells in threads, where Python allows no signal handler."""
    results = []
    config = grpo.configure(**SMALL | dict(max_steps=1))
    thread = threading.Thread(target=lambda: results.append(grpo.main(config)))
    thread.start()
    thread.join()
    assert len(results[0].steps) == 1


def test_the_notebook_can_be_read_without_running_it():
    """It has outputs and no error, and its advantage is (1 - p) (r - p) by hand."""
    cells = [each for each in nbformat.read(NOTEBOOK, as_version=4).cells if each.source]
    outputs = str([cell.get("outputs") for cell in cells])
    assert "image/png" in outputs and "<iframe" in outputs and "'error'" not in outputs
    (source,) = (cell.source for cell in cells if "def my_advantages" in cell.source)
    exec(source.partition("\n\n\n")[0], own := {})
    batch = SimpleNamespace(rewards=torch.tensor([[1.0, 0, 0, 0]]))  # 3/4 of them fail
    assert own["my_advantages"](batch, None)[0].tolist() == [[9 / 16, -3 / 16, -3 / 16, -3 / 16]]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=where).execute()  # a cell's error is one here
    assert len([*tmp_path.glob("runs/grpo-grpo-*/report.html")]) == 2

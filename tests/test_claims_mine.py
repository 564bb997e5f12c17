"""claims.py --mine: what is no copy of grpo.py, which runs are made, the table, a bug of a user."""

import functools
import importlib
import math
import sys
import traceback

from rlvr.errors import UserError
from rlvr.logs import read_rows

import claims
import claims_mine
import claims_training
import pytest
from claims_mine import QUICK, Scale, read_script
from runs import ROOT, run_study
from written_runs import evaluation, write_rows

GRPO = (ROOT / "grpo.py").read_text()


@pytest.fixture
def copy(tmp_path):
    """copy(old=new, ...) writes my.py, a copy of grpo.py with these texts exchanged -> its path."""

    def write(*exchanged, name="my.py"):
        text = GRPO
        for old, new in exchanged:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


# ------------------------------------------------------------------------------ the file


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*my.py: .*No such file"),
        ("", "my.py has no main and no Config and no VARIANTS: it has to be a copy of grpo.py"),
        ("from grpo import Config, main", "my.py has no VARIANTS:"),
        ("VARIANTS = {}\nclass Config: pass", "my.py has no main:"),
    ],
)
def test_what_is_no_copy_of_grpo(content, message, tmp_path):
    if content is not None:
        (tmp_path / "my.py").write_text(content)
    with pytest.raises(UserError, match=message):
        read_script(str(tmp_path / "my.py"))


@pytest.mark.parametrize("typed", [".", "'", "my.py --variant 'x", ""])
def test_what_is_no_file(typed):
    with pytest.raises(UserError):
        read_script(typed)


def test_a_path_may_have_spaces_and_flags(copy, tmp_path):
    plain = read_script(copy(name="my paper.py"))
    assert (plain.path, plain.flags) == (tmp_path / "my paper.py", "")
    with_flags = read_script(f"{copy()} --variant 'dr-grpo'")
    assert (with_flags.path, with_flags.flags) == (tmp_path / "my.py", "--variant dr-grpo")


@pytest.mark.parametrize("flag", ["--seed 3", "--base=weak", "--eval-samples 8"])
def test_what_both_share_is_no_flag_of_mine(flag, copy):
    with pytest.raises(UserError, match=f"takes no {flag[:6]}"):
        read_script(f"{copy()} --epsilon 1 {flag}")


@pytest.mark.parametrize(
    ("new", "error"), [("VARIANTS = {", SyntaxError), ("VARIANTS = unknown", NameError)]
)
def test_a_bug_shows_where_it_is(new, error, copy):
    path = copy(("\n\n@dataclass\n", f"\n{new}\n\n@dataclass\n"))
    with pytest.raises(error) as raised:
        read_script(path)
    assert f'File "{path}", line' in "".join(traceback.format_exception(raised.value))


def test_a_file_is_no_other_script(copy, tmp_path):
    """One of the name of a script, with what stands beside it, takes nobody's place."""
    (tmp_path / "beside_mine.py").write_text("size = 3")
    (tmp_path / "common.py").write_text("raise AssertionError")
    change = ("\nimport common\n", "\nimport beside_mine\n\nimport common\n")
    script = read_script(copy(change, name="grpo.py"))
    module = claims_training.load_script(script.file)
    assert module.beside_mine.size == 3
    assert module.__file__ == str(tmp_path / "grpo.py")
    assert importlib.import_module("grpo").__file__ == str(ROOT / "grpo.py")


def test_a_file_that_changes_while_its_runs_are_made(copy):
    script = read_script(copy())
    copy(("from typing import Literal\n", "from typing import Literal\n\n"))
    with pytest.raises(UserError, match=r"my\.py has changed since its runs began"):
        claims_training.load_script(script.file)


# ------------------------------------------------------------------------------ the runs


def test_jobs(copy, tmp_path):
    """The same seeds and bases for both; the flags of the script stand last."""
    grpo, mine = read_script(str(ROOT / "grpo.py")), read_script(f"{copy()} --epsilon 1")
    jobs = claims_mine.list_jobs(tmp_path, (grpo, mine), Scale(seeds=2, steps=3, flags="--beta 1"))
    assert len(jobs) == 2 * 2 * 2
    endings = [command.partition(" ")[2] for command in jobs.values()]
    middle = "--beta 1 --base middle --seed {} --max_steps 3 --eval_steps 3 "
    weak = "--beta 1 --base weak --numbers 3,4 --seed {} --max_steps 3 --eval_steps 3 "
    for seed in range(2):
        assert endings[4 * seed : 4 * seed + 4] == [
            middle.format(seed),
            middle.format(seed) + "--epsilon 1",
            weak.format(seed),
            weak.format(seed) + "--epsilon 1",
        ]


def test_a_changed_file_flag_or_scale_has_runs_of_its_own(copy, tmp_path):
    def folder(script, scale=QUICK):
        return claims_mine.folder_of(tmp_path, "weak", script, scale, 0)

    first = read_script(copy())
    folders = [folder(first), folder(first, Scale()), folder(first._replace(flags="--epsilon 1"))]
    copy(("from typing import Literal\n", "from typing import Literal\n\n"))
    folders.append(folder(read_script(str(first.path))))
    assert len({*folders}) == 4
    copy()
    assert folder(read_script(str(first.path))) == folders[0]


@pytest.fixture
def no_runs(monkeypatch):
    """The jobs that train_all would have made, in place of making them."""
    made = []
    monkeypatch.setattr(claims_mine, "train_all", lambda jobs, *_: made.append(jobs))
    monkeypatch.setattr(claims_mine, "table", lambda *_: ["the table"])
    monkeypatch.setattr(sys, "argv", ["claims.py"])
    return made


def test_what_is_said_before_the_start(copy, tmp_path, no_runs, capsys):
    """8 seeds of 2 scripts from 2 bases at a minute each, 3 at a time; one of them is there."""
    compare = (copy(), tmp_path, Scale(), 3)
    claims_mine.compare(*compare)
    assert capsys.readouterr().out.startswith(
        "32 of 32 runs are missing, 3 at a time: about 11 min "
    )
    job, command = next(iter(no_runs[0].items()))
    job.mkdir(parents=True)
    (job / "command.txt").write_text(command)
    claims_mine.compare(*compare)
    out = capsys.readouterr().out
    assert out.startswith("31 of 32 runs are missing")
    assert "the table" in out


def test_a_wrong_flag_ends_it_before_any_run(copy, tmp_path, no_runs, capsys):
    with pytest.raises(SystemExit):
        claims_mine.compare(f"{copy()} --epsilom 1", tmp_path, QUICK, 1)
    assert capsys.readouterr().err.startswith("my.py: error: ")
    assert no_runs == []


def test_grpo_is_not_compared_with_itself(tmp_path, no_runs, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(UserError, match="change a copy"):
        claims_mine.compare("grpo.py", tmp_path, QUICK, 1)
    claims_mine.compare("grpo.py --variant dr-grpo", tmp_path, QUICK, 1)
    assert len(no_runs) == 1


# ------------------------------------------------------------------------------ the table


@pytest.fixture
def table(copy, tmp_path):
    """table(values of grpo.py, values of my.py), one a seed -> the lines, from both bases."""
    grpo = read_script(str(ROOT / "grpo.py"))._replace(label="grpo.py")
    mine = read_script(copy())._replace(label="my.py")

    def lines(*values):
        scale = Scale(seeds=len(values[0]))
        for base in ("middle", "weak"):
            for script, of_seeds in zip((grpo, mine), values, strict=True):
                for seed, value in enumerate(of_seeds):
                    folder = claims_mine.folder_of(tmp_path, base, script, scale, seed)
                    folder.mkdir(parents=True)
                    write_rows(folder, "eval", [evaluation(0, 0.1), evaluation(48, value)])
        return claims_mine.table(tmp_path, mine, grpo, scale)

    return lines


def test_table_by_hand(table):
    """Two seeds: differences of 0.1 and 0.3 have mean 0.2, s = 0.1 sqrt(2), t = 12.706."""
    lines = table((0.2, 0.4), (0.3, 0.7))
    half = 12.706 * 0.1 * math.sqrt(2) / math.sqrt(2)
    cell = f"+0.200 [{0.2 - half:+.3f}, {0.2 + half:+.3f}]"
    assert lines[:6] == [
        "| base | run | pass@1 | pass@16 | token_entropy |",
        "|---|---|---|---|---|",
        "| middle | before training | 0.100 | 0.100 | 0.100 |",
        "| middle | grpo.py | 0.300 | 0.300 | 0.300 |",
        "| middle | my.py | 0.500 | 0.500 | 0.500 |",
        f"| middle | my.py less grpo.py | {cell} | {cell} | {cell} |",
    ]
    assert lines[-1].startswith("An interval that holds 0 leaves open")


def test_a_change_without_effect_is_told(table):
    assert table((0.2, 0.4), (0.2, 0.4))[-1].startswith("Both have learnt exactly the same")


# ------------------------------------------------------------------------------ as a user


@pytest.fixture
def start(tmp_path):
    """start(argument, ...) runs claims.py in an empty folder."""
    return functools.partial(run_study, "claims", "--processes", "1", folder=tmp_path)


@pytest.mark.longest
def test_quick_mode_makes_what_is_missing(copy, start, tmp_path):
    """All runs but one of my paper.py are there; it learns nothing at a rate of 0."""
    grpo = read_script(str(ROOT / "grpo.py"))
    mine = read_script(copy(name="my paper.py"))._replace(flags="--learning_rate 0")
    jobs = claims_mine.list_jobs(tmp_path / "runs" / "claims", (grpo, mine), QUICK)
    *others, missing = jobs
    for job in others:
        job.mkdir(parents=True)
        (job / "command.txt").write_text(jobs[job])
        write_rows(job, "eval", [evaluation(0, 0.25), evaluation(2, 0.5)])
    done = start("--mine", "'my paper.py' --learning_rate 0", "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 of 8 runs are missing, 1 at a time: about 1 min ")
    assert "| middle | 'my paper.py' --learning_rate 0 less grpo.py | +0.000 [" in done.stdout
    before, after = read_rows(missing, "eval")
    assert (before["step"], after["step"]) == (0, 2)
    assert before["pass@1"] == after["pass@1"]


@pytest.mark.slow
def test_a_bug_in_a_run_shows_its_traceback(copy, start):
    line = "        advantages = grpo_advantage(batch.rewards, config.scale_rewards)  # [B, G]\n"
    path = copy((line, line.replace("grpo_advantage", "my_advantage")))
    done = start("--mine", "my.py", "--quick")
    assert done.returncode == 1
    assert f'File "{path}", line' in done.stderr
    assert "NameError: name 'my_advantage' is not defined" in done.stderr


@pytest.mark.slow
def test_one_line_for_what_cannot_be_run(start):
    done = start("--mine", "none.py")
    assert done.returncode == 2
    assert done.stderr.startswith("claims.py: error: cannot read none.py: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("seeds", "processes"), [(0, 1), (1, 1), (-3, 1), (2, 0)])
def test_numbers_that_give_no_table(seeds, processes):
    with pytest.raises(UserError, match="must be"):
        claims.check(seeds, processes)
    assert claims.check(2, 1) is claims.check(None, 1) is None

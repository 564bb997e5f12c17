"""Data of the user's own: files, folders, conversations, answers, and what is wrong with them."""

import copy
import json
import re
from pathlib import Path

import rlvr.policy.models
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.tasks.datasets import read_set, with_golds, without_overlap
from rlvr.tasks.problems import Problem
from rlvr.verify.pool import grade

import datasets
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from local_sets import evaluated, in_order, load, own, prompts_of, refused, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


# --------------------------------------------------------------------------------- what is wrong

ROWS = "".join(json.dumps(row) + "\n" for row in own("abcdefgh"))
LATIN = '{"prompt": "Wie groß?", "answer": "7"}\n'.encode("latin-1")
WHAT_IS_READ = (".jsonl, .json, .csv (UTF-8) or .parquet", "a folder", "not empty")


@pytest.mark.parametrize("file, content", [("own.json", b""), ("own.txt", ROWS.encode())])
def test_a_wrong_file_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch, file, content):
    monkeypatch.setattr(rlvr.policy.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / file, content)
    refused((name, *WHAT_IS_READ), rlvr.policy.models.load_policies, Config(dataset=name))


@pytest.mark.parametrize(
    "file, content, parts",
    [
        ("own.csv", "prompt,answer\nGröße?,7\n".encode("latin-1"), WHAT_IS_READ),
        ("own.jsonl", ROWS.encode() * 5_000 + LATIN, WHAT_IS_READ),
        ("own/read.me", b"", WHAT_IS_READ),
        ("own.json", b"\n \n", WHAT_IS_READ),
        ("own.json", b"[7]", ("a row is not an object", *WHAT_IS_READ)),
        ("own.jsonl", ROWS.encode() + b'{"prompt": "b", "ans', ("line 9", *WHAT_IS_READ)),
        ("own.parquet", b"no parquet", WHAT_IS_READ),
        ("own.jsonl", re.sub('"[a-h]"', '""', ROWS).encode(), ("8 without a q", "--columns")),
        ("own.jsonl", ROWS.replace('"7"', '"?"').encode(), ("8 whose answer", "--columns")),
        ("own.jsonl", ROWS.replace("prompt", "ask").encode(), ("'prompt'", "ask, answer")),
        ("own.jsonl", ROWS.replace("answer", "gold").encode(), ("'answer'", "gold; --columns")),
        ("own.csv", b"prompt,answer\n", ("own.csv",)),  # no rows
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(tmp_path, tiny, file, content, parts):
    write(tmp_path / file, content)
    name = str(tmp_path / file.split("/")[0])
    refused((name, *parts), load, tiny[1], dataset=name, verifier="number")


# ---------------------------------------------------------------------------- files and folders


def save(path, kind, splits):
    """The splits as a file, or as a folder of files -> its name."""
    if kind.startswith("."):
        return write(path.with_suffix(kind), splits["train"])
    for name, rows in splits.items():
        write(path / f"{name}.{kind}", rows)
    return str(path)


@pytest.mark.parametrize("kind", [".parquet", ".json", ".csv", ".jsonl", "csv"])
def test_a_training_split_holds_out_problems(tmp_path, tiny, kind):
    """They are not trained on even where the file has them twice.

    They are the same whatever the seed: runs that differ in it are compared on the same problems.
    """
    name = save(tmp_path / "own", kind, {"train": own("abcdefgghh")})
    training, evaluation = load(tiny[1], dataset=name, eval_problems=3)
    assert len(evaluation[name]) == 3
    assert prompts_of(evaluation[name]) != {*"abc"}  # which may be alike
    assert prompts_of(training) == {*"abcdefgh"} - prompts_of(evaluation[name])
    assert load(tiny[1], dataset=name, eval_problems=3, seed=1) == (training, evaluation)
    for count in (0, 99):  # all of them
        assert len(evaluated(tiny[1], name, eval_problems=count)) == 10
    refused(["no problem to train on"], load, tiny[1], dataset=name, eval_problems=0)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("split", ["test", "validation"])
def test_folders_of_two_splits(tmp_path, tiny, kind, split):
    """Some rows, or one split alone, have further columns, which are not read."""
    more = [dict(row, level=3, notes="long") for row in own("bc")]
    training = own("a") + (more if kind == "jsonl" else [])
    name = save(tmp_path / "both", kind, {"train": training, split: more})
    training, evaluation = load(tiny[1], dataset=name)
    assert in_order(training) == [Problem("a", "7", "math")]
    assert in_order(evaluation[name]) == [Problem(text, "7", "math") for text in "bc"]


# ----------------------------------------------------------------------------------- the answers

TESTS = dict(inputs=["1\n", "41\n"], outputs=["2\n", "42\n"])


@pytest.mark.parametrize(
    "verifier, answer, gold", [("number", 18, "18"), ("code", TESTS, json.dumps(TESTS))]
)
def test_answers_of_a_file(tmp_path, verifier, answer, gold):
    """In columns of any name; a column `level` or one without a name says nothing here."""
    names = dict(columns="my question,label")
    row = {"my question": "Why?", "label": answer, "level": "1", "": "7"}
    file = write(tmp_path / "g[1]*.parquet", [row])  # no pattern, though it looks like one
    found = read_set(file, Config(verifier=verifier, eval_problems=0, **names))[1]
    assert found == [Problem("Why?", gold, verifier)]


@pytest.mark.parametrize("place", ["own.csv", "folder/train.csv"])
def test_cells_of_a_csv_are_read_as_they_are_written(tmp_path, place):
    """An empty one makes no floats of a column's integers, and NA is an answer."""
    answers = ["12345678901234567", "", "NA", "1e5", "0.10"]
    write(tmp_path / place, [dict(prompt="Why?", answer=answer) for answer in answers])
    name = str(tmp_path / place.split("/")[0])
    problems = read_set(name, Config(verifier="number", eval_problems=0))[1]
    assert {problem.gold for problem in problems} == {*answers}


INTEGERS = [2**64 + 1, 2**64 + 2, 2**53 + 1, 0.5]  # which no column of one type holds


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv"])
def test_integers_stay_exact(tmp_path, kind):
    """One that Python itself does not read stays a text, which no verifier takes."""
    rows = [dict(prompt="Why?", answer=number) for number in INTEGERS]
    file = Path(write(tmp_path / f"own.{kind}", rows))
    file.write_text(file.read_text().replace("0.5", "9" * 5000))
    problems = read_set(str(file), Config(verifier="number", eval_problems=0))[1]
    expected = {*map(str, INTEGERS[:3]), "9" * 5000}
    assert {problem.gold for problem in problems} == expected


def test_a_column_of_short_floats(tmp_path):
    """The decimal that was stored, and not the 0.10000000149011612 that it is."""
    numbers = pyarrow.array(numpy.array([0.1, 2.5, 7], dtype="float32"))
    table = pyarrow.table(dict(prompt=["a", "b", "c"], answer=numbers))
    pyarrow.parquet.write_table(table, tmp_path / "own.parquet")
    problems = read_set(str(tmp_path / "own.parquet"), Config(verifier="number"))[1]
    assert {problem.gold for problem in problems} == {"0.1", "2.5", "7"}


def test_rows_that_cannot_be_used_are_dropped_and_counted(tmp_path, tiny, capsys):
    """A comma without quotes would move the answer. A byte order mark says nothing."""
    text = '\ufeffprompt,answer\na,7\nb, or c?,7\nd\n\n"e, f",7\n'
    file = write(tmp_path / "own.csv", text.encode())
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "e, f"}
    told = capsys.readouterr().out
    assert "2 of 4 problems; dropped 1 without a question, 1 whose answer" in told
    cells = ["7", {"value": "7"}, True, 7, [["7"]], None]
    rows = [dict(prompt="abcdef"[i], answer=cell) for i, cell in enumerate(cells)]
    file = write(tmp_path / "own.json", [*rows, dict(prompt=None, answer="7")])
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "d"}
    dropped = "1 without a question, 4 whose answer the verifier does not take"
    assert capsys.readouterr().out.endswith(f": 2 of 7 problems; dropped {dropped}\n")


@pytest.mark.parametrize("verifier", ["math", "number"])
def test_simple_golds_are_not_tried(monkeypatch, verifier):
    """They can be read without a doubt, as some here show; so no grader has to start for them."""
    golds = ["0", "7", "-12", "999999999"]
    assert all(grade((verifier, f"\\boxed{{{gold}}}", gold)) == (1.0, "") for gold in golds)
    monkeypatch.setattr(rlvr.tasks.datasets, "grade", lambda *_: pytest.fail("it was tried"))
    problems = [Problem("Why?", gold, verifier) for gold in golds]
    assert with_golds("own", problems) == problems
    for gold in ("1/2", "1,000", "7 eggs", "007", "٣"):
        with pytest.raises(pytest.fail.Exception):
            with_golds("own", [Problem("Why?", gold, verifier)])


# --------------------------------------------------------------------------------- conversations

TEMPLATE = "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_conversational_prompts(tmp_path, tiny, suffix):
    """As TRL has them. One with a system prompt keeps it."""
    system, user, answer = (
        dict(role=role, content=text)
        for role, text in (("system", "Be brief."), ("user", "What?"), ("assistant", "1!"))
    )
    asked = [user], [system, user], [user | dict(content="1?"), answer, user], [], [user, answer]
    rows = [dict(prompt=turns, answer="7") for turns in asked]
    file = write(tmp_path / f"own.{suffix}", rows)
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = TEMPLATE
    found = evaluated(tokenizer, file, system_prompt="assistant", user_suffix="boxed")
    asked = "What?\nPlease reason step by step, and put your final answer within \\boxed{}."
    helpful = "[system: You are a helpful assistant.]"
    assert prompts_of(found) == {
        f"{helpful}[user: {asked}]",
        f"[system: Be brief.][user: {asked}]",
        f"{helpful}[user: 1?][assistant: 1!][user: {asked}]",
    }
    by_lines = {"What?", "Be brief.\nWhat?\n", "1?\n1!\nWhat?\n"}  # without a template
    assert prompts_of(evaluated(tiny[1], file)) == by_lines


# --------------------------------------------------------- what is evaluated is not trained on


def test_rows_of_evaluation_sets_are_not_trained_on(tmp_path, tiny, capsys):
    """All that they share with the training file, not only the problems that are drawn now.

    A split to evaluate on that is not evaluated takes nothing away.
    """
    train = write(tmp_path / "train.jsonl", own("abcdefgh"))
    others = [write(tmp_path / f"{name}.jsonl", own(name)) for name in ("ax", "ghij", "z")]
    flags = dict(dataset=train, eval_problems=1)
    training, evaluation = load(tiny[1], eval_dataset=",".join(others), **flags)
    assert prompts_of(training) == {*"bcdef"}
    assert [len(problems) for problems in evaluation.values()] == [1, 1, 1]
    assert f"{train}: 3 of 8 problems are evaluated, so not trained on" in capsys.readouterr().out
    # nothing is held out for an evaluation that is not made
    training, _ = load(tiny[1], eval_dataset=others[2], **flags)
    assert len(training) == 8
    assert capsys.readouterr().out == ""
    training, _ = load(tiny[1], eval_dataset=f"{others[2]},{train}", **flags)
    assert len(training) == 7
    folder = save(tmp_path / "own", "jsonl", {"train": own("abc"), "test": own("cd")})
    for names, kept in ((others[2], "abc"), (folder, "ab")):
        training, _ = load(tiny[1], dataset=folder, eval_dataset=names, eval_problems=1)
        assert prompts_of(training) == {*kept}
    larger = write(tmp_path / "larger.jsonl", own("abcdefghi"))
    parts = ["no problem to train on except the 8"]
    refused(parts, load, tiny[1], dataset=train, eval_dataset=larger)


@pytest.mark.parametrize(
    "text",
    [
        " What is 1 + 2? ",
        "what IS\n1\u00a0+  2?",
        "Ｗhat is 1 + ２?",  # full-width letters and digits
        (("system", "Add."), ("user", "What is 1 + 2?")),  # a conversation counts by its last turn
    ],
)
def test_texts_that_differ_in_spaces_case_or_form(text):
    """About another image it is another question."""
    asked, same, other = Problem("What is 1 + 2?", "7"), Problem(text, "8"), Problem("1 - 2?", "7")
    assert without_overlap("a", [asked, other], [same]) == [other]
    assert without_overlap("a", [same, other], [asked]) == [other]
    shown, another = (Problem("Find x.", "1", images=(image,)) for image in (b"1", b"2"))
    assert without_overlap("a", [shown, another], [shown]) == [another]

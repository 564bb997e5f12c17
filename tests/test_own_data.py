"""Data of the user's own: files, folders, conversations, answers, and what is wrong with them."""

import copy
import json
import re

import rlvr.policy.models
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.tasks.datasets import read_set, with_golds, without_overlap
from rlvr.tasks.problems import Problem
from rlvr.verify.pool import grade
from rlvr.verify.verifiers import BOXED

import numpy
import pytest
from local_sets import evaluated, in_order, load, own, prompts_of, refused, write

ROWS = "".join(json.dumps(row) + "\n" for row in own("abcdefgh"))
LATIN = '{"prompt": "Wie groß?", "answer": "7"}\n'.encode("latin-1")
WHAT_IS_READ = (".jsonl, .json, .csv (UTF-8) or .parquet", "a folder", "not empty")


def put(folder, place, content):
    """Write a file, or a file in a folder -> the name of the data set."""
    write(folder / place, content)
    return str(folder / place.split("/")[0])


def test_a_wrong_file_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(rlvr.policy.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / "own.txt", ROWS.encode())
    refused((name, *WHAT_IS_READ), rlvr.policy.models.load_policies, Config(dataset=name))


@pytest.mark.parametrize(
    "file, content, parts",
    [
        ("own.csv", "prompt,answer\nGröße?,7\n".encode("latin-1"), WHAT_IS_READ),
        ("own.jsonl", ROWS.encode() + LATIN, WHAT_IS_READ),
        ("own/read.me", b"", WHAT_IS_READ),
        ("own.json", b"", WHAT_IS_READ),
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
    name = put(tmp_path, file, content)
    refused((name, *parts), load, tiny[1], dataset=name, verifier="number")


@pytest.mark.parametrize("place", ["own.parquet", "own.json", "own.csv", "own/train.jsonl"])
def test_a_training_split_holds_out_problems(tmp_path, tiny, place):
    """They are not trained on even where the file has them twice.

    They are the same whatever the seed: runs that differ in it are compared on the same problems.
    """
    name = put(tmp_path, place, own("abcdefgghh"))
    training, evaluation = load(tiny[1], dataset=name, eval_problems=3)
    assert len(evaluation[name]) == 3
    assert prompts_of(evaluation[name]) != {*"abc"}  # which may be alike
    assert prompts_of(training) == {*"abcdefgh"} - prompts_of(evaluation[name])
    assert load(tiny[1], dataset=name, eval_problems=3, seed=1) == (training, evaluation)
    for count in (0, 99):  # all of them
        assert len(evaluated(tiny[1], name, eval_problems=count)) == 10
    refused(["no problem to train on"], load, tiny[1], dataset=name, eval_problems=0)


@pytest.mark.parametrize(
    "kind, split", [("jsonl", "test"), ("parquet", "test"), ("csv", "validation")]
)
def test_folders_of_two_splits(tmp_path, tiny, kind, split):
    """Some rows, or one split alone, have further columns, which are not read."""
    more = [dict(row, level=3, notes="long") for row in own("bc")]
    training = own("a") + (more if kind == "jsonl" else [])
    put(tmp_path, f"both/train.{kind}", training)
    name = put(tmp_path, f"both/{split}.{kind}", more)
    training, evaluation = load(tiny[1], dataset=name)
    assert in_order(training) == [Problem("a", "7", "math")]
    assert in_order(evaluation[name]) == [Problem(text, "7", "math") for text in "bc"]


TESTS = dict(inputs=["1\n", "41\n"], outputs=["2\n", "42\n"])


def test_columns_of_any_name(tmp_path):
    """A column `level` or one without a name says nothing here."""
    row = {"my question": "Why?", "label": TESTS, "level": "1", "": "7"}
    file = write(tmp_path / "g[1]*.parquet", [row])  # no pattern, though it looks like one
    config = Config(verifier="code", eval_problems=0, columns="my question,label")
    assert read_set(file, config)[1] == [Problem("Why?", json.dumps(TESTS), "code")]


def rows_with(*answers):
    return [dict(prompt="Why?", answer=answer) for answer in answers]


# as they are written: an empty cell makes no floats of a column's integers, and NA is an answer
TEXTS = ["12345678901234567", "", "NA", "1e5", "0.10", "long " * 30_000 + "text"]
# which no column of one type holds; the last one, which Python itself does not read, stays a text
INTEGERS = [str(2**64 + 1), str(2**64 + 2), str(2**53 + 1), "9" * 5000]
LINES = [f'{{"prompt": "Why\u2028?", "answer": {digits}}}' for digits in INTEGERS]
FLOATS = numpy.array([0.1, 2.5, 7], dtype="float32")  # 0.1 is 0.10000000149011612 there


@pytest.mark.parametrize(
    "place, content, golds",
    [
        ("own.csv", rows_with(*TEXTS), TEXTS),
        ("folder/train.csv", rows_with(*TEXTS, *INTEGERS), TEXTS + INTEGERS),
        ("own.jsonl", "\n".join(["\ufeff", *LINES]).encode(), INTEGERS),
        ("own.json", f"[{','.join(LINES)}]".encode(), INTEGERS),
        ("own.parquet", rows_with(*FLOATS), ["0.1", "2.5", "7"]),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_cells_are_read_as_they_are_written(tmp_path, place, content, golds):
    name = put(tmp_path, place, content)
    problems = read_set(name, Config(verifier="number", eval_problems=0))[1]
    assert {problem.gold for problem in problems} == {*golds}


def test_rows_that_cannot_be_used_are_dropped_and_counted(tmp_path, tiny, capsys):
    """A comma without quotes would move the answer. A byte order mark says nothing."""
    text = '\ufeffprompt,answer\na,7\nb, or c?,7\nd\n\n"e, f",7\n'
    file = write(tmp_path / "own.csv", text.encode())
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "e, f"}
    told = capsys.readouterr().out
    assert "2 of 4 problems; dropped 1 without a question, 1 whose answer" in told
    cells = ["7", {"value": "7"}, True, 7, [["7"]]]
    rows = [dict(prompt="abcde"[i], answer=cell) for i, cell in enumerate(cells)]
    file = write(tmp_path / "own.json", [dict(prompt=None, answer="7"), *rows, dict(prompt="f")])
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "d"}
    dropped = "1 without a question, 4 whose answer the verifier does not take"
    assert capsys.readouterr().out.endswith(f": 2 of 7 problems; dropped {dropped}\n")


@pytest.mark.parametrize("verifier", ["math", "number"])
def test_simple_golds_are_not_tried(monkeypatch, verifier):
    """They can be read without a doubt, so no grader has to start for them."""
    golds = ["0", "7", "-12", "999999999"]
    assert all(grade((verifier, f"\\boxed{{{gold}}}", gold)) == (1.0, "") for gold in golds)
    monkeypatch.setattr(rlvr.tasks.datasets, "grade", lambda question: (0.0, ""))
    problems = [Problem("Why?", gold, verifier) for gold in golds]
    others = [Problem("Why?", gold, verifier) for gold in ("1/2", "1,000", "7 eggs", "007", "٣")]
    assert with_golds("own", problems + others) == problems
    programs = [Problem("Why?", gold, "code") for gold in ("unit tests", "")]
    assert with_golds("own", programs) == programs[:1]


TEMPLATE = "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_conversational_prompts(tmp_path, tiny, suffix):
    """As TRL has them. One with a system prompt keeps it."""
    system, user, answer = (
        dict(role=role, content=text)
        for role, text in (("system", "Be brief."), ("user", "What?"), ("assistant", "1!"))
    )
    asked = [user], [system, user], [user | dict(content="1?"), answer, user], [], [user, answer]
    file = write(tmp_path / f"own.{suffix}", [dict(prompt=turns, answer="7") for turns in asked])
    by_lines = {"What?", "Be brief.\nWhat?\n", "1?\n1!\nWhat?\n"}  # without a template
    assert prompts_of(evaluated(tiny[1], file)) == by_lines
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = TEMPLATE
    helpful, asked = "[system: You are a helpful assistant.]", f"[user: What?\n{BOXED}]"
    assert prompts_of(
        evaluated(tokenizer, file, system_prompt="assistant", user_suffix="boxed")
    ) == {
        f"{helpful}{asked}",
        f"[system: Be brief.]{asked}",
        f"{helpful}[user: 1?][assistant: 1!]{asked}",
    }


def test_rows_of_evaluation_sets_are_not_trained_on(tmp_path, tiny, capsys):
    """All that they share with the training file, not only the problems that are drawn now.

    Nothing is held out for an evaluation that is not made, on a file or on a split.
    """
    train = write(tmp_path / "train.jsonl", own("abcdefgh"))
    ax, ghij, z, larger = (
        write(tmp_path / f"{name}.jsonl", own(name)) for name in ("ax", "ghij", "z", "abcdefghi")
    )
    put(tmp_path, "own/test.jsonl", own("cd"))
    folder = put(tmp_path, "own/train.jsonl", own("abc"))
    for dataset, evaluated_on, kept in (
        (train, [z], {*"abcdefgh"}),
        (train, [ax, ghij, z], {*"bcdef"}),
        (folder, [z], {*"abc"}),
        (folder, [folder], {*"ab"}),
    ):
        flags = dict(dataset=dataset, eval_dataset=",".join(evaluated_on), eval_problems=1)
        training, evaluation = load(tiny[1], **flags)
        assert prompts_of(training) == kept
        assert [len(problems) for problems in evaluation.values()] == [1] * len(evaluated_on)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"{train}: 3 of 8 problems are evaluated, not trained on"
    assert len(told) == 2
    training, _ = load(tiny[1], dataset=train, eval_dataset=f"{z},{train}", eval_problems=1)
    assert len(training) == 7
    parts = ["no problem to train on except the 8"]
    refused(parts, load, tiny[1], dataset=train, eval_dataset=larger)


@pytest.mark.parametrize(
    "text",
    [
        " what IS\n1\u00a0+  2? ",
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

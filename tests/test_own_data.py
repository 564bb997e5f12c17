"""Data of the user's own: files, folders, conversations, answers, and what is wrong with them."""

import copy
import json
import re

import rlvr.policy.models
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.tasks.datasets import read_set, without_overlap
from rlvr.tasks.problems import Problem
from rlvr.verify.pool import grade
from rlvr.verify.verifiers import VERIFIERS

import datasets
import pytest
import torch
from local_sets import evaluated, in_order, load, own, prompts_of, refused, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


# --------------------------------------------------------------------------------- what is wrong

ROWS = "".join(json.dumps(row) + "\n" for row in own("abcdefgh"))
LATIN = '{"prompt": "Wie groß?", "answer": "7"}\n'.encode("latin-1")
WHAT_IS_READ = (".jsonl, .json, .csv (UTF-8) or .parquet", "a folder", "not empty")


@pytest.mark.parametrize(
    "file, content, wrong",
    [
        ("own.csv", "prompt,answer\nGröße?,7\n".encode("latin-1"), "is not in UTF-8"),
        ("own.json", b"\n \n", "is empty"),
        ("own.txt", ROWS.encode(), "is of another kind"),
    ],
)
def test_a_wrong_file_is_refused_before_a_model_is_loaded(
    tmp_path, monkeypatch, file, content, wrong
):
    """And a file in the place of a model is told to be one; it is not asked for on the hub."""
    monkeypatch.setattr(rlvr.policy.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / file, content)
    for flags, told in (
        (dict(dataset=name), (wrong, *WHAT_IS_READ)),
        (dict(model=name), ("a model is a folder",)),
    ):
        refused((name, *told), rlvr.policy.models.load_policy, Config(**flags), torch.device("cpu"))


@pytest.mark.parametrize(
    "file, content, parts",
    [
        ("own.jsonl", ROWS.encode() * 5_000 + LATIN, WHAT_IS_READ),  # over a megabyte
        ("own/read.me", b"", WHAT_IS_READ),
        ("own.jsonl", ROWS.encode() + b'{"prompt": "b", "ans', WHAT_IS_READ),
        ("own.parquet", b"no parquet", WHAT_IS_READ),
        ("own.jsonl", None, WHAT_IS_READ),  # gone since the flags were read
        ("own.jsonl", re.sub('"[a-h]"', '""', ROWS).encode(), ("8 without a q", "--prompt_column")),
        ("own.jsonl", ROWS.replace('"7"', '"?"').encode(), ("8 whose answer", "--answer_column")),
        ("own.jsonl", ROWS.replace("prompt", "ask").encode(), ("'prompt'", "ask, answer")),
        ("own.jsonl", ROWS.replace("answer", "gold").encode(), ("'answer'", "prompt, gold")),
        ("own.csv", b"prompt,answer\n", ("own.csv",)),  # no rows
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(tmp_path, tiny, file, content, parts):
    if content is not None:
        write(tmp_path / file, content)
    name = str(tmp_path / file.split("/")[0])
    refused((name, *parts), load, tiny[1], dataset=name, verifier="number")


# ---------------------------------------------------------------------------- files and folders


def save(path, kind, splits):
    """The splits as a file, a folder of files, or a folder of save_to_disk -> its name."""
    if kind == "saved":
        parts = {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
        whole = datasets.DatasetDict(parts) if len(parts) > 1 else parts["train"]
        whole.save_to_disk(str(path))
        return str(path)
    if kind.startswith("."):
        return write(path.with_suffix(kind), splits["train"])
    for name, rows in splits.items():
        write(path / f"{name}.{kind}", rows)
    return f"{path}/" if kind == "jsonl" else str(path)


@pytest.mark.parametrize("kind", [".parquet", ".json", ".csv", "jsonl", "csv", "parquet", "saved"])
def test_files_and_folders(tmp_path, tiny, kind):
    """A training split holds out problems, not trained on even where the file has them twice.

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
    if kind.startswith("."):
        return
    name = save(tmp_path / "both", kind, {"train": own("abc"), "test": own("de")})
    training, evaluation = load(tiny[1], dataset=name)
    assert in_order(training) == [Problem(text, "7", "math", "") for text in "abc"]
    assert in_order(evaluation[name]) == [Problem(text, "7", "math", "") for text in "de"]


def test_a_file_that_has_changed_is_read_again(tmp_path, tiny):
    """datasets keeps a copy of each file. Names that look like patterns are names."""
    for name in ("own.jsonl", "g[1].jsonl", "a*b.jsonl"):
        for text in ("first", "second"):
            file = write(tmp_path / name, own([text, text]))
            assert prompts_of(evaluated(tiny[1], file)) == {text}


# ----------------------------------------------------------------------------------- the answers

TESTS = dict(inputs=["1\n", "41\n"], outputs=["2\n", "42\n"])
ASSERTIONS = ["assert f(1) == 2", "assert f(-1) == 0"]


@pytest.mark.parametrize(
    "verifier, answer, gold",
    [
        ("math", r"Thus $x = \boxed{\sqrt{2}}$.", r"\sqrt{2}"),
        ("math", ["3", "-1"], "3, -1"),
        ("number", 18, "18"),
        ("choice", "(D)", "(D)"),
        ("code", json.dumps(TESTS), json.dumps(TESTS)),
        ("code", TESTS, json.dumps(TESTS)),
        ("code", ASSERTIONS, json.dumps(ASSERTIONS)),
    ],
)
def test_answers_of_a_file(tmp_path, verifier, answer, gold):
    for suffix, names in (
        ("jsonl", {}),
        ("parquet", dict(prompt_column="my question", answer_column="label")),
    ):
        config = Config(verifier=verifier, eval_problems=0, **names)
        row = {config.prompt_column: "Why?", config.answer_column: answer, "level": "Easy"}
        file = write(tmp_path / f"own.{suffix}", [row])
        assert read_set(file, config)[1] == [Problem("Why?", gold, verifier)]


def test_cells_of_mixed_kinds_are_counted(tmp_path, tiny, capsys):
    cells = ["7", {"value": "7"}, True, 7, [["7"]], None]
    rows = [dict(prompt="abcdef"[i], answer=cell) for i, cell in enumerate(cells)]
    file = write(tmp_path / "own.json", [*rows, dict(prompt=None, answer="7")])
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "d"}
    assert capsys.readouterr().out.endswith(
        ": 7 problems less 1 without a question, 3 with a dict, a bool or a nested list as answer, "
        "1 whose answer the verifier does not take are 2\n"
    )


def test_unit_tests_that_cannot_run_are_dropped(tmp_path, tiny):
    good = ["assert f(1) == 2", '["assert f(1) == 2"]', '{"inputs": ["1"], "outputs": ["2"]}']
    bad = ['{"inputs": ["1", "2"], "outputs": ["2"]}', "[]", "", "7"]
    rows = [dict(prompt=tests or "none", answer=tests) for tests in good + bad]
    found = evaluated(tiny[1], write(tmp_path / "own.jsonl", rows), verifier="code")
    assert prompts_of(found) == {*good}


@pytest.mark.parametrize(
    "verifier, lists, answers, gold",
    [
        ("math", "alternatives", ["1/2", "50\\%"], ("1/2", "50\\%")),
        ("number", "alternatives", ["7", "eggs", "8"], ("7", "8")),  # one cannot be read
        ("choice", "alternatives", ["A", "B"], ("A", "B")),
        ("math", "parts", ["1", "2"], "1, 2"),
    ],
)
def test_lists_of_answers(tmp_path, tiny, verifier, lists, answers, gold):
    """An alternative is right by itself, and parts are right together."""
    file = write(tmp_path / "own.jsonl", [dict(prompt="a", answer=answers)])
    (problem,) = evaluated(tiny[1], file, verifier=verifier, answer_lists=lists)
    assert problem.gold == gold
    rewards = [grade((verifier, f"\\boxed{{{text}}}", gold))[0] for text in answers]
    assert rewards == [float(lists == "alternatives" and text != "eggs") for text in answers]


@pytest.mark.parametrize("verifier", ["math", "number"])
def test_simple_golds_are_not_tried(tmp_path, tiny, monkeypatch, verifier):
    """They can be read without a doubt, as some here show; so no grader has to start for them."""
    golds = ["0", "7", "-12", "999999999"]
    for gold in golds:
        assert re.fullmatch(VERIFIERS[verifier].surely_usable, gold)
        assert grade((verifier, f"\\boxed{{{gold}}}", gold)) == (1.0, "")
    for gold in ("", "1/2", "1,000", "7 eggs", "007", "٣"):
        assert not re.fullmatch(VERIFIERS[verifier].surely_usable, gold)
    monkeypatch.setattr(rlvr.tasks.datasets, "grade", lambda *_: pytest.fail("it was tried"))
    rows = [dict(prompt=f"{i}?", answer=gold) for i, gold in enumerate(golds)]
    found = evaluated(tiny[1], write(tmp_path / "own.jsonl", rows), verifier=verifier)
    assert {problem.gold for problem in found} == {*golds}


# --------------------------------------------------------------------------------- conversations

TEMPLATE = "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_conversational_prompts(tmp_path, tiny, capsys, suffix):
    """As TRL has them. One with a system prompt keeps it; those that ask nothing are counted."""
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
    assert "5 problems less 2 without a question are 3\n" in capsys.readouterr().out
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
    told = capsys.readouterr().out.splitlines()[-1].split("evaluated: ")[1].split(", ")
    assert {*told} == {f"1 of {others[0]}", f"2 of {others[1]}"}
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


def test_texts_that_differ_in_spaces_case_or_form():
    """A conversation counts by its last turn."""
    asked = Problem("What is 1 + 2?", "7")
    for text in (
        " What is 1 + 2? ",
        "what IS\n1\u00a0+  2?",
        "Ｗhat is 1 + ２?",  # full-width letters and digits
        (("system", "Add."), ("user", "What is 1 + 2?")),
    ):
        same, other = Problem(text, "8"), Problem("What is 1 - 2?", "7")
        assert without_overlap("a", [asked, other], {"b": [same]}) == [other]
        assert without_overlap("a", [same, other], {"b": [asked]}) == [other]


def test_why_nothing_is_left_to_train_on(tmp_path, tiny):
    train = write(tmp_path / "train.jsonl", own("abc"))
    other = write(tmp_path / "other.jsonl", own("abcd"))
    parts = ["no problem to train on", f"it shares 3 of {other}"]
    refused(parts, load, tiny[1], dataset=train, eval_dataset=other)

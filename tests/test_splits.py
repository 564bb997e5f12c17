"""Folders of save_to_disk, conversations as data, lists of answers: from the file to a problem."""

import copy
import json
import re

import rlvr.tasks.datasets
import rlvr.tasks.pool
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.datasets import read_set
from rlvr.tasks.sources import DATASETS
from rlvr.tasks.splits import where_is
from rlvr.tasks.verifiers import VERIFIERS

import datasets
import pytest
from local_sets import in_order, load, one_line, own, prompts_of, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_folder_of_save_to_disk(tmp_path, tiny):
    folder = str(tmp_path / "saved")
    datasets.Dataset.from_list(own("abcdef")).save_to_disk(folder)
    training, evaluation = load(tiny[1], dataset=folder, eval_problems=2)
    assert len(training) == 4
    assert prompts_of(training + evaluation[folder]) == {*"abcdef"}


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_of_save_to_disk_with_splits(tmp_path, tiny, slash):
    folder = f"{tmp_path}/saved{slash}"
    splits = {"train": own("abc"), "test": own("de")}
    parts = {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
    datasets.DatasetDict(parts).save_to_disk(folder)
    training, evaluation = load(tiny[1], dataset=folder)
    assert in_order(training) == [Problem(text, "7", "math", "") for text in "abc"]
    assert in_order(evaluation[folder]) == [Problem(text, "7", "math", "") for text in "de"]


def test_a_broken_folder_of_save_to_disk(tmp_path):
    folder = tmp_path / "saved"
    datasets.Dataset.from_list(own("ab")).save_to_disk(str(folder))
    (next(folder.glob("*.arrow"))).write_bytes(b"no arrow")
    with pytest.raises(UserError) as error:
        read_set(str(folder), Config(dataset=str(folder)))
    assert one_line(error, str(folder))


def test_files_of_the_hub_are_named_by_split():
    """TACO's repository has a script beside them, which `datasets` refuses to run."""
    files = "hf://datasets/BAAI/TACO/ALL/{}-*.parquet"
    where = where_is("taco", DATASETS["taco"])
    expected = dict(train=files.format("train"), test=files.format("test"))
    assert where == dict(path="parquet", data_files=expected)


# --------------------------------------------------------------------------------- conversations

SYSTEM = dict(role="system", content="Be brief.")
BARE = [dict(role="user", content="What?")]
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}: {{ m['content'] }}]{% endfor %}"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_conversational_prompts(tmp_path, tiny, suffix):
    """As TRL has them. One with a system prompt keeps it; others get the one of the flags."""
    several = [
        dict(role="user", content="1?"),
        dict(role="assistant", content="1!"),
        dict(role="user", content="2?"),
    ]
    conversations = [BARE, [SYSTEM, *BARE], several]
    rows = [dict(prompt=each, answer="7") for each in conversations]
    file = write(tmp_path / f"own.{suffix}", rows)
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = TEMPLATE
    flags = dict(dataset=file, max_steps=0, system_prompt="assistant", user_suffix="boxed")
    _, evaluation = load(tokenizer, **flags)
    asked = "Please reason step by step, and put your final answer within \\boxed{}."
    helpful = "[system: You are a helpful assistant.]"
    assert prompts_of(evaluation[file]) == {
        f"{helpful}[user: What?\n{asked}]",
        f"[system: Be brief.][user: What?\n{asked}]",
        f"{helpful}[user: 1?][assistant: 1!][user: 2?\n{asked}]",
    }


def test_conversations_without_a_chat_template(tmp_path, tiny):
    rows = [dict(prompt=each, answer="7") for each in (BARE, [SYSTEM, *BARE])]
    file = write(tmp_path / "own.jsonl", rows)
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    assert prompts_of(evaluation[file]) == {"What?", "Be brief.\nWhat?\n"}


def test_conversations_that_ask_nothing_are_counted(tmp_path, tiny, capsys):
    answered = [*BARE, dict(role="assistant", content="7")]
    rows = [dict(prompt=each, answer="7") for each in (BARE, answered, [])]
    file = write(tmp_path / "own.jsonl", rows)
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    assert prompts_of(evaluation[file]) == {"What?"}
    assert "3 problems less 2 without a question are 1\n" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("answer", [{"value": "7"}, True, [["7"], ["8"]]], ids=repr)
def test_answers_that_are_none_are_refused_and_counted(tmp_path, tiny, capsys, answer, suffix):
    """The column as a whole is of that kind: parquet knows no other."""
    file = write(tmp_path / f"own.{suffix}", [dict(prompt=text, answer=answer) for text in "ab"])
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=file, max_steps=0)
    assert one_line(error, file, "2 with a dict, a bool or a nested list as answer")


def test_answers_of_mixed_kinds(tmp_path, tiny, capsys):
    answers = ["7", {"value": "7"}, True, 7, [["7"]], None]
    rows = [dict(prompt="abcdef"[i], answer=answer) for i, answer in enumerate(answers)]
    (tmp_path / "own.json").write_text(json.dumps(rows))
    file = str(tmp_path / "own.json")
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    assert prompts_of(evaluation[file]) == {"a", "d"}
    told = capsys.readouterr().out
    assert "6 problems less 3 with a dict, a bool or a nested list as answer, 1 whose" in told


@pytest.mark.parametrize(
    "verifier, answers, right, wrong",
    [
        ("math", ["1/2", "50\\%"], ["0.5", "50"], ["1/2, 50"]),
        ("number", ["7", "eggs", "8"], ["7", "8"], ["9", "7, 8"]),
        ("choice", ["A", "B"], ["A", "B"], ["C"]),
    ],
)
def test_lists_of_alternatives(tmp_path, tiny, verifier, answers, right, wrong):
    """Each is right by itself; one that cannot be read does no harm."""
    file = write(tmp_path / "own.jsonl", [dict(prompt="a", answer=answers)])
    flags = dict(dataset=file, verifier=verifier, max_steps=0)
    _, evaluation = load(tiny[1], answer_lists="alternatives", **flags)
    (problem,) = evaluation[file]
    assert problem.gold == tuple(answer for answer in answers if answer != "eggs")
    for texts, reward in ((right, 1.0), (wrong, 0.0)):
        for text in texts:
            question = problem.verifier, f"\\boxed{{{text}}}", problem.gold
            assert rlvr.tasks.pool.grade(question)[0] == reward


def test_lists_of_parts(tmp_path, tiny):
    file = write(tmp_path / "own.jsonl", [dict(prompt="a", answer=["1", "2"])])
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    (problem,) = evaluation[file]
    assert problem.gold == "1, 2"
    for text, reward in (("1, 2", 1.0), ("1", 0.0)):
        assert rlvr.tasks.pool.grade(("math", f"\\boxed{{{text}}}", problem.gold))[0] == reward


LATEX = [
    r"\frac{3}{4}",
    r"-\dfrac{1}{2}",
    r"\sqrt{2}",
    r"-3\sqrt{5}",
    r"(1, -2)",
    r"(0,\frac{1}{2})",
]


@pytest.mark.parametrize("verifier, more", [("math", LATEX), ("number", [])])
def test_simple_golds_are_not_tried(tmp_path, tiny, monkeypatch, verifier, more):
    """They can be read without a doubt, as some here show; so no grader has to start for them."""
    golds = ["0", "7", "-12", "999999999", *more]
    for gold in golds:
        assert re.fullmatch(VERIFIERS[verifier].surely_usable, gold)
        assert rlvr.tasks.pool.grade((verifier, f"\\boxed{{{gold}}}", gold)) == (1.0, "")
    for gold in ("", "1/2", "1,000", "7 eggs", "007", "٣", r"\frac{1}{0}", "(1, 2", "x", "(1, x)"):
        assert not re.fullmatch(VERIFIERS[verifier].surely_usable, gold)
    monkeypatch.setattr(rlvr.tasks.datasets, "grade", lambda *_: pytest.fail("it was tried"))
    rows = [dict(prompt=f"{i}?", answer=gold) for i, gold in enumerate(golds)]
    file = write(tmp_path / "own.jsonl", rows)
    _, evaluation = load(tiny[1], dataset=file, verifier=verifier, max_steps=0)
    assert {problem.gold for problem in evaluation[file]} == {*golds}

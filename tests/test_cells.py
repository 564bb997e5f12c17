"""What stands in the cells of a data set: questions, conversations, answers and tests."""

import base64
import io
import json
import pickle
import zlib

from rlvr.tasks.boxes import answer_text
from rlvr.tasks.cells import (
    alternatives,
    code_contests_tests,
    letter_of,
    livecodebench_tests,
    read_question,
    unpack,
    with_options,
    with_starter,
)

import pytest


def turn(role, content):
    return dict(role=role, content=content)


@pytest.mark.parametrize(
    "cell, question",
    [
        ("What?", "What?"),
        (" What?\n", " What?\n"),
        ([turn("user", "What?")], (("user", "What?"),)),
        (
            [turn("system", "Be brief."), turn("user", "What?")],
            (("system", "Be brief."), ("user", "What?")),
        ),
        (
            [turn("user", "1?"), turn("assistant", "1!"), turn("user", "2?")],
            (("user", "1?"), ("assistant", "1!"), ("user", "2?")),
        ),
        # other keys, which parquet fills with None where one message has them, say nothing
        ([turn("user", "What?") | dict(tool_calls=None)], (("user", "What?"),)),
    ],
)
def test_a_question_is_a_text_or_a_conversation(cell, question):
    assert read_question(cell) == question


@pytest.mark.parametrize(
    "cell",
    [
        None,
        "",
        " \n ",
        7,
        True,
        dict(role="user", content="What?"),
        [],
        ["What?"],
        [turn("user", "")],
        [turn("user", None)],
        [turn("user", [dict(type="text", text="What?")])],
        [turn("User", "What?")],
        [dict(content="What?")],
        [turn("system", "Be brief.")],
        [turn("user", "What?"), turn("assistant", "42")],  # it would give the answer away
    ],
    ids=repr,
)
def test_what_asks_nothing(cell):
    assert read_question(cell) == ""


@pytest.mark.parametrize(
    "cell",
    [
        True,
        {"value": "0"},
        b"7",
        [True],
        ["1", {"value": "0"}],
        [["1"], ["2"]],
        ["1", ["2"]],
    ],
    ids=repr,
)
def test_cells_that_are_no_answer(cell):
    """None, other than "" for an empty cell, so that they can be told by themselves."""
    assert answer_text(cell) is None
    assert alternatives(answer_text)(cell) is None


@pytest.mark.parametrize("cell", [None, "", [], [None], float("nan"), float("inf"), [""]], ids=repr)
def test_empty_cells(cell):
    assert answer_text(cell) == ""
    assert not alternatives(answer_text)(cell)


def test_large_integers_keep_their_digits():
    """Above 2^53 a float would round them."""
    assert answer_text("9007199254740993") == "9007199254740993"
    assert answer_text("9007199254740993.0") == "9007199254740993"
    assert answer_text(9007199254740993) == "9007199254740993"


@pytest.mark.parametrize(
    "cell, parts, golds",
    [
        ("1", "1", "1"),
        (["1"], "1", ("1",)),
        (["1/2", "0.5"], "1/2, 0.5", ("1/2", "0.5")),
        ([2.0, 3], "2, 3", ("2", "3")),
        (["5", "", "5"], "5, 5", ("5",)),
        ([r"$3$", r"\boxed{4}"], r"$3$, 4", (r"$3$", "4")),
    ],
)
def test_a_list_is_of_parts_or_of_alternatives(cell, parts, golds):
    assert answer_text(cell) == parts
    assert alternatives(answer_text)(cell) == golds


def test_options_are_lettered():
    question = with_options("Which?", ["one", "two", "three"])
    assert question == "Which?\nA. one\nB. two\nC. three"
    assert with_options("Which?", dict(text=["one", "two"], label=["1", "2"])).endswith("\nB. two")
    assert with_options("", ["one"]) == ""


def test_letter_of_a_label():
    for labels in (["A", "B", "C"], ["1", "2", "3"]):
        options = dict(text=["one", "two", "three"], label=labels)
        assert [letter_of(label, options) for label in labels] == ["A", "B", "C"]
        assert letter_of("D", options) == ""


def test_a_starter_or_standard_input():
    assert "standard input" in with_starter("Sort.")
    assert "standard input" in with_starter("Sort.", "")
    asked = with_starter("Sort.", "def sort(x):")
    assert asked.startswith("Sort.")
    assert "```python\ndef sort(x):\n```" in asked
    assert "standard input" not in asked
    assert with_starter("", "def sort(x):") == ""


def test_tests_of_code_contests_are_all_used():
    public = dict(input=["1"], output=["2"])
    private = dict(input=["3", "4"], output=["6", "8"])
    nothing = dict(input=[], output=[])
    gold = json.loads(code_contests_tests(public, private, nothing))
    assert gold == dict(inputs=["1", "3", "4"], outputs=["2", "6", "8"])
    assert code_contests_tests(nothing, nothing, nothing) == ""


def packed(value):
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def test_livecodebench_packs_its_private_tests():
    tests = '[{"input": "1", "output": "2"}]'
    assert unpack(tests) == unpack(packed(tests)) == tests


class Trap:
    """What would run a function when it is unpickled."""

    def __reduce__(self):
        return io.open, ("trap", "w")


@pytest.mark.parametrize("private", [packed(Trap()), packed(7), "!", "", "AAAA", packed("{}")])
def test_private_tests_that_cannot_be_read(private, tmp_path, monkeypatch):
    """They give no gold, and a pickle runs nothing."""
    monkeypatch.chdir(tmp_path)
    public = json.dumps([dict(input="1", output="2", testtype="stdin")])
    assert livecodebench_tests(public, private, "{}") == ""
    assert not [*tmp_path.iterdir()]
    assert livecodebench_tests(public, "[]", "{}") == '{"inputs": ["1"], "outputs": ["2"]}'

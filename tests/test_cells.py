"""What stands in the cells of a data set: questions, conversations, answers and tests."""

import base64
import io
import json
import pickle
import zlib

from rlvr.tasks.cells import (
    alternatives,
    livecodebench_tests,
    read_question,
    unpack,
)
from rlvr.verify.answers.boxes import answer_text
from rlvr.verify.programs.code import read_tests

import pytest

SYSTEM, ASKED = dict(role="system", content="Be brief."), dict(role="user", content="What?")
ANSWERED = dict(role="assistant", content="42")


@pytest.mark.parametrize(
    "cell, question",
    [
        ("What?", "What?"),
        ([ASKED], (("user", "What?"),)),
        ([SYSTEM, ASKED], (("system", "Be brief."), ("user", "What?"))),
        ([ASKED, ANSWERED, ASKED], (("user", "What?"), ("assistant", "42"), ("user", "What?"))),
        # other keys, which parquet fills with None where one message has them, say nothing
        ([ASKED | dict(tool_calls=None)], (("user", "What?"),)),
        # what asks nothing
        (None, ""),
        ("", ""),
        (7, ""),
        ([], ""),
        (["What?"], ""),
        ([ASKED | dict(content=None)], ""),
        ([dict(content="What?")], ""),
        ([SYSTEM], ""),
        ([ASKED, ANSWERED], ""),  # it would give the answer away
    ],
    ids=repr,
)
def test_a_question_is_a_text_or_a_conversation(cell, question):
    assert read_question(cell) == question


@pytest.mark.parametrize(
    "cell, text",
    [
        (27.0, "27"),
        ("27.0", "27"),
        ("033", "33"),
        ("1,000", "1,000"),
        (["1", "2"], "1, 2"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (r"so \boxed{1} or \boxed{\frac{1}{2}}", r"1, \frac{1}{2}"),
        ("He has 4 * 3 = <<4*3=12>>12.\n#### 12", "12"),
        # above 2^53 a float would round them
        ("9007199254740993.0", "9007199254740993"),
        # empty cells
        (None, ""),
        (float("nan"), ""),
        # None for cells that are no answer, so that they can be told by themselves
        (True, None),
        ({"value": "0"}, None),
        (["1", {"value": "0"}], None),
        (["1", ["2"]], None),
    ],
    ids=repr,
)
def test_answer_text(cell, text):
    assert answer_text(cell) == text
    found = alternatives(answer_text)(cell)
    assert found is None if text is None else bool(found) == bool(text)


def packed(value):
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


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
    found = read_tests(livecodebench_tests(public, "[]", "{}"))
    assert found == read_tests('{"inputs": ["1"], "outputs": ["2"]}')
    assert unpack(public) == unpack(packed(public)) == public

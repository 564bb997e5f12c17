"""studies/verify_agreement.py: the tables that it reads, and what it prints of them."""

import sys

import project  # noqa: F401

import pytest
import verify_agreement
from verify_agreement import Row

TABLES = {
    "test_pairs.py": r"""
@pytest.mark.parametrize(
    "gold,pred,expected,strict",
    [("$5$", "$x=5$", 1, True), ("$f(x)$", "$f(y)$", 1, False), ("5", language.FRENCH, 1, True)],
)
def test_numbers(gold, pred, expected, strict):
    assert verify(gold, pred)

@pytest.mark.parametrize("gold,pred,expected", [("(B) Berlin", "B", True)])
def test_extraction_abc(gold, pred, expected):
    assert verify(gold, pred)

@pytest.mark.parametrize("output_pair", [("5", 6), (0, None)])
def test_incorrect_examples(output_pair):
    assert not equal(*output_pair)

class TestStrip:
    @parameterized.expand([("50%", "50")])
    def test_strip(self, raw_string, expected):
        assert strip(raw_string) == expected

    def test_in_turn(self):
        test_in = "1"
        test_out = "2"
        self.assertFalse(is_equiv(test_in, test_out, verbose=True))
        test_pairs = [("3", "3.0")]
        for test_in, test_out in test_pairs:
            self.assertTrue(is_equiv(test_in, test_out))
""",
    "completions.jsonl": r'{"gt": "5", "response": ["\\boxed{5}", "no"], "score": [true, false]}',
}


def read(tmp_path, name):
    path = tmp_path / name
    path.write_text(TABLES[name])
    return verify_agreement.read_table(path)


def test_tables_of_every_form(tmp_path):
    assert read(tmp_path, "test_pairs.py") == [
        Row("$x=5$", "$5$", True),
        Row("B", "(B) Berlin", True, "choice"),
        Row("5", "6", False),
        Row("6", "5", False),
        Row("50%", "50", True),
        Row("1", "2", False),
        Row("3", "3.0", True),
    ]
    assert read(tmp_path, "completions.jsonl") == [
        Row(r"\boxed{5}", "5", True),
        Row("no", "5", False),
    ]


@pytest.mark.parametrize(
    "answer, gold, asked",
    [
        ("$x=5$", "5", (r"\boxed{x=5}", "5")),
        (r"\[ 5 \].", "5", (r"\boxed{ 5 }", "5")),
        ("5", r"so it is \boxed{5}", (r"\boxed{5}", "5")),
        (r"It is clearly not \boxed{4}", "5", (r"It is clearly not \boxed{4}", "5")),
        ("It is clearly not 5", "5", None),
        ("about $5$ or so", "5", None),
        ("5", "It is clearly not 5", None),
    ],
)
def test_questions(answer, gold, asked):
    found = verify_agreement.question(Row(answer, gold, True))
    assert found == (asked and ("math", *asked))


def test_what_is_printed(tmp_path, monkeypatch, capsys):
    for name in ("NeMo-Skills/tests/test_math_equal.py", "lighteval/tests/other.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(TABLES["test_pairs.py"])
    monkeypatch.setattr(verify_agreement, "grade", lambda asked, seconds: (float("5" in asked[1]),))
    monkeypatch.setattr(sys, "argv", ["verify_agreement.py", str(tmp_path), "--show"])
    verify_agreement.main()
    header, suite, *shown = capsys.readouterr().out.splitlines()
    assert header.split() == ["suite", "rows", "agree", "missed", "too", "kind", "prose"]
    # right by this grade are the answers with a 5: x=5, 5 for 6, 50%
    assert suite.split() == ["NeMo-Skills", "7", "4", "2", "1", "0"]
    assert sorted(line.split(":")[0].strip() for line in shown) == ["missed", "missed", "too kind"]

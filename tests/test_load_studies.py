"""The studies of how fast answers are judged and data sets are read: what they measure is true."""

import json
import sys
from collections import Counter

from rlvr.tasks.pool import grade

import data_load
import datasets
import pytest
import verify_load
from runs import ROOT, first_fast


@pytest.mark.parametrize("verifier", first_fast(["code", "math", "number"]))
def test_the_truth_of_completions(verifier):
    """Each side is asked about answers whose truth is known, and that are of the length told."""
    answers = verify_load.make_answers(verifier, 4, with_hostile=False)
    assert {answer.truth for answer in answers} == {0.0, 1.0}
    for answer in answers:
        assert grade(answer[:3]) == (answer.truth, "")
        assert len(answer.text) == verify_load.LENGTH + 1


@pytest.mark.parametrize("verifier", ["math", "number", "code"])
def test_one_in_a_hundred_is_hostile(verifier):
    clean = verify_load.make_answers(verifier, 300, with_hostile=False)
    answers = verify_load.make_answers(verifier, 300, with_hostile=True)
    assert Counter(answer.truth for answer in answers)[None] == 3
    assert None not in {answer.truth for answer in clean}
    assert [answer for answer in answers if answer.truth is not None] == [
        answer for answer, other in zip(clean, answers, strict=True) if other.truth is not None
    ]


@pytest.mark.slow
def test_math_verify_itself_is_measured_on_the_same_answers():
    answers = verify_load.make_answers("math", 3, with_hostile=False)
    assert verify_load.math_verify_itself(answers) == [answer.truth for answer in answers]
    found = verify_load.measure("math", 5, with_hostile=False, rounds=1)
    assert found.keys() >= {"here", "math-verify"}
    assert all(speed > 0 and right == 1.0 for speed, right in found.values())


def test_rows_of_the_data_study(tmp_path):
    file = tmp_path / "rows.jsonl"
    data_load.write_rows(file, 300, only_integers=False)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({row["prompt"] for row in rows}) == 300
    assert {len(row["prompt"]) for row in rows} == {350}
    integers = sum(row["answer"].isdecimal() for row in rows)
    assert 150 < integers < 210  # six in ten


@pytest.mark.slow
def test_measuring_in_this_process(tmp_path, monkeypatch, capsys):
    """The seconds are those of a run that kept what was not held out."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "rows.jsonl"
    data_load.write_rows(file, 300, only_integers=True)
    data_load.measure(str(ROOT), str(file), "number")
    seconds, problems = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert seconds > 0
    assert problems == 300 - 128

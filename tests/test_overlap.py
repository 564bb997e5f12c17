"""What is evaluated is not trained on, in whatever file it stands."""

import rlvr.tasks.countdown
from rlvr.errors import UserError

import datasets
import pytest
from local_sets import load, one_line, own, prompts_of, write


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_rows_of_an_evaluation_set_are_not_trained_on(tmp_path, tiny, capsys):
    """All that it shares with the training file, not only the problems that are drawn now."""
    train = write(tmp_path / "train.jsonl", own("abcdefgh"))
    other = write(tmp_path / "other.jsonl", own("fghij"))
    training, evaluation = load(tiny[1], dataset=train, eval_dataset=other, eval_problems=1)
    assert prompts_of(training) == {*"abcde"}
    assert len(evaluation[other]) == 1
    assert f"{train}: not trained on, since they are evaluated: 3 of {other}\n" in (
        capsys.readouterr().out
    )


def test_several_evaluation_sets(tmp_path, tiny, capsys):
    train = write(tmp_path / "train.jsonl", own("abcdef"))
    others = [write(tmp_path / f"{name}.jsonl", own(name)) for name in ("ax", "bcy", "z")]
    training, _ = load(tiny[1], dataset=train, eval_dataset=",".join(others))
    assert prompts_of(training) == {*"def"}
    assert {f"1 of {others[0]}", f"2 of {others[1]}"} == {
        *capsys.readouterr().out.splitlines()[-1].split("evaluated: ")[1].split(", ")
    }


def test_nothing_is_held_out_for_an_evaluation_that_is_not_made(tmp_path, tiny, capsys):
    train = write(tmp_path / "train.jsonl", own("abcdef"))
    other = write(tmp_path / "other.jsonl", own("xyz"))
    training, _ = load(tiny[1], dataset=train, eval_dataset=other, eval_problems=2)
    assert prompts_of(training) == {*"abcdef"}
    assert "not trained on" not in capsys.readouterr().out
    training, _ = load(tiny[1], dataset=train, eval_dataset=f"{other},{train}", eval_problems=2)
    assert len(training) == 4


def test_a_test_split_that_is_not_evaluated_costs_nothing(tmp_path, tiny):
    for split, texts in (("train", "abc"), ("test", "cd")):
        write(tmp_path / "own" / f"{split}.jsonl", own(texts))
    folder = str(tmp_path / "own")
    other = write(tmp_path / "other.jsonl", own("xyz"))
    training, _ = load(tiny[1], dataset=folder, eval_dataset=other)
    assert prompts_of(training) == {*"abc"}
    training, _ = load(tiny[1], dataset=folder, eval_dataset=folder, eval_problems=1)
    assert prompts_of(training) == {*"ab"}


@pytest.mark.parametrize(
    "text",
    [
        "What is 1 + 2?",
        " What is 1 + 2? ",
        "What is\n1 + 2?",
        "what IS 1\u00a0+  2?",
        "Ｗhat is 1 + ２?",  # full-width letters and digits
        [dict(role="system", content="Add."), dict(role="user", content="What is 1 + 2?")],
    ],
    ids=repr,
)
@pytest.mark.parametrize("reverse", [False, True])
def test_texts_that_differ_in_spaces_case_or_form(tmp_path, tiny, text, reverse):
    others = [dict(prompt="What is 1 - 2?", answer="7")]
    one, another = [dict(prompt="What is 1 + 2?", answer="3")], [dict(prompt=text, answer="3")]
    if reverse:
        one, another = another, one
    file = write(tmp_path / "other.jsonl", another)
    if isinstance(one[0]["prompt"], list):  # a column holds one or the other
        others = [dict(prompt=[dict(role="user", content="What is 1 - 2?")], answer="7")]
    train = write(tmp_path / "train.jsonl", one + others)
    training, _ = load(tiny[1], dataset=train, eval_dataset=file)
    assert prompts_of(training) == {"What is 1 - 2?"}


def test_all_of_it_is_evaluated(tmp_path, tiny):
    train = write(tmp_path / "train.jsonl", own("abc"))
    other = write(tmp_path / "other.jsonl", own("abcd"))
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=train, eval_dataset=other)
    assert one_line(error, "no problem to train on", f"it shares 3 of {other}")


def test_golds_that_cannot_be_read_are_the_reason_told(tmp_path, tiny):
    """Not that there are no problems beside the evaluated ones."""
    train = write(tmp_path / "train.jsonl", [dict(prompt=text, answer="eggs") for text in "abc"])
    other = write(tmp_path / "other.jsonl", own("xyz"))
    flags = dict(dataset=train, eval_dataset=other, verifier="number")
    with pytest.raises(UserError) as error:
        load(tiny[1], **flags)
    assert one_line(error, train, "3 problems less 3 whose answer the verifier does not take are 0")


def test_countdown_loses_nothing(tiny, monkeypatch, capsys):
    monkeypatch.setattr(rlvr.tasks.countdown, "TRAINING_PROBLEMS", 64)
    training, _ = load(tiny[1])
    assert len(training) == 64
    assert capsys.readouterr().out == ""

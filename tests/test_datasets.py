"""The data sets of the hub, in their real columns but from small files; cells; what is dropped."""

import base64
import copy
import io
import json
import pickle
import zlib

import rlvr.tasks.sources
from rlvr import world
from rlvr.flags.config import Config
from rlvr.tasks.cells import alternatives, livecodebench_tests, read_question, unpack
from rlvr.tasks.datasets import prepare, read_set, with_golds
from rlvr.tasks.problems import Problem
from rlvr.tasks.sources import DATASETS, where_is
from rlvr.verify.answers.boxes import answer_text
from rlvr.verify.pool import grade
from rlvr.verify.programs.code import read_tests

import datasets
import huggingface_hub
import pytest
from hub_sets import SETS, columns_of, rows_of
from local_sets import in_order, load, refused, write


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """A hub that knows only the sets that a test puts on it; local files load as ever.

    hub(name, split=columns, ...) puts a set there, with other rows for some splits.
    """
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    stored = {}  # name -> what load_dataset is told
    monkeypatch.setattr(
        rlvr.tasks.sources,
        "where_is",
        lambda name, source: stored.get(name) or where_is(name, source),
    )

    def put(name, **other_splits):
        splits = {split: columns_of(name, rows) for split, rows in rows_of(name).items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.parquet", rows)
            for split, rows in (splits | other_splits).items()
        }
        stored[name] = dict(path="parquet", data_files=files)

    return put


def expected(name, use):
    """The problems of the split to train on or to evaluate on, in order."""
    _, train, test = SETS[name]
    split = train if use == "train" else test
    return in_order(
        Problem(row.problem, row.gold, DATASETS[name].verifier, row.level, row.images)
        for row in rows_of(name).get(split, [])
    )


@pytest.mark.parametrize("name", DATASETS)
def test_problems_of_a_set(hub, name):
    """Problem, gold, verifier, level and images, from the right split."""
    hub(name)
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    assert in_order(training) == expected(name, "train")
    assert in_order(evaluation) == expected(name, "test" if SETS[name][2] else "train")
    assert with_golds(name, evaluation, Config()) == evaluation


@pytest.mark.parametrize("name", [n for n, source in DATASETS.items() if source.verifier == "code"])
def test_right_and_wrong_programs(name):
    for row in (row for rows in rows_of(name).values() for row in rows):
        found = [grade(("code", program, row.gold)) for program in row.programs]
        assert found == [(1.0, ""), (0.0, "")]


def test_where_a_set_is():
    """On the hub, in some of its files, or in a file of a name that looks like a pattern."""
    assert where_is("gsm8k", DATASETS["gsm8k"]) == dict(path="openai/gsm8k", name="main")
    files = where_is("taco", DATASETS["taco"])["data_files"]
    assert files["test"] == "hf://datasets/BAAI/TACO/ALL/test-*.parquet"
    assert where_is("a[1].jsonl", None) == dict(path="json", data_files="a[[]1].jsonl")


def test_problems_of_earlier_months_are_left_out(hub):
    (row,) = columns_of("livecodebench-v6", rows_of("livecodebench-v6")["test"])
    hub("livecodebench-v6", test=[row, row | dict(contest_date="2024-07-31T23:59:59")])
    _, evaluation = read_set("livecodebench-v6", Config(eval_problems=0))
    assert evaluation == expected("livecodebench-v6", "test")


# ------------------------------------------------------------------------ to train and to evaluate


def test_an_evaluation_set_cannot_be_trained_on(hub, tiny):
    hub("math500")
    refused(["math500", "--eval_dataset"], load, tiny[1], dataset="math500")
    training, evaluation = load(tiny[1], dataset="math500", max_steps=0)
    assert training == []
    assert in_order(evaluation["math500"]) == expected("math500", "test")


# ----------------------------------------------------------------------------------- the dropped


@pytest.mark.parametrize(
    "name, split, column, values",
    [
        ("gsm8k", "test", "answer", ["no hashes", "####", "#### a few", "#### 1 or 2"]),
        ("math", "test", "solution", [r"A $\boxed{}$.", r"\boxed{ }", r"none: \boxed{\text{", ""]),
        ("olympiadbench", "test", "final_answer", [[], [""]]),
    ],
)
def test_unreadable_gold_is_dropped(hub, tiny, capsys, name, split, column, values):
    rows = columns_of(name, rows_of(name)[split])
    hub(name, **{split: rows + [rows[0] | {column: value} for value in values]})
    _, evaluation = load(tiny[1], dataset=name, max_steps=0)
    assert in_order(evaluation[name]) == expected(name, "test")
    told = f"less {len(values)} whose answer the verifier does not take are {len(rows)}\n"
    assert capsys.readouterr().out.endswith(told)


def test_long_prompts_are_dropped(tiny, capsys, monkeypatch):
    """In tokens, here characters, with all that the template adds; the longest allowed stays."""
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = "{{ messages[0]['content'] }}:::"
    problems = [Problem("9" * length, "7", "number") for length in (1, 40, 41, 400)]
    problems.append(Problem("9", "", "number"))
    config = Config(system_prompt="none", max_prompt_length=43)
    kept = prepare("own", problems, config, tokenizer)
    assert [problem.prompt.count("9") for problem in kept] == [1, 40]
    told = capsys.readouterr().out
    assert "2 over 43 tokens" in told and "1 whose answer" in told and told.endswith("are 2\n")
    monkeypatch.setattr(world, "RANK", 1)  # the first rank alone prints
    assert prepare("own", problems, config, tokenizer) == kept
    assert capsys.readouterr().out == ""


def test_nothing_dropped_nothing_printed_and_nothing_left(hub, tiny, capsys, monkeypatch):
    hub("gsm8k")
    given = dict(dataset="gsm8k")
    load(tiny[1], **given)
    assert capsys.readouterr().out == ""
    parts = ["gsm8k", "over 3 tokens are 0", "--max_prompt_length"]
    refused(parts, load, tiny[1], **given, max_prompt_length=3)
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    parts = ["gsm8k has 2 problems to evaluate on, less than one a rank"]
    refused(parts, load, tiny[1], **given)


# --------------------------------------------------------------------------------- what is wrong


def test_the_hub_does_not_answer(monkeypatch):
    """Then the cache is looked at, and nothing is tried again; but a refusal is an answer."""

    def load_dataset(path, name):
        raise ConnectionError(f"offline: {datasets.config.HF_HUB_OFFLINE}\nwith more\nlines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    forbidden = huggingface_hub.errors.HfHubHTTPError
    for error, is_offline in ((ConnectionError(), True), (forbidden.__new__(forbidden), False)):
        asked = []

        def dataset_info(path, timeout, asked=asked, error=error):
            asked.append(path)
            raise error

        monkeypatch.setattr(huggingface_hub, "dataset_info", dataset_info)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
        message = refused(["gsm8k", f"offline: {is_offline}"], read_set, "gsm8k", Config())
        assert "UTF-8" not in message  # which is for files
        assert asked == ["openai/gsm8k"]


# -------------------------------------------------------------------------- the cells of a data set


ASKED = dict(role="user", content="What?")


@pytest.mark.parametrize(
    "cell, question",
    [
        ("What?", "What?"),
        # other keys, which parquet fills with None where one message has them, say nothing
        ([ASKED | dict(tool_calls=None)], (("user", "What?"),)),
        # what asks nothing
        *((cell, "") for cell in (None, "", 7, ["What?"], [dict(content="What?")])),
        ([dict(role="system", content="Be brief.")], ""),
        ([ASKED | dict(content=None)], ""),
    ],
    ids=repr,
)
def test_a_question_is_a_text_or_a_conversation(cell, question):
    assert read_question(cell) == question


@pytest.mark.parametrize(
    "cell, text",
    [
        (27.0, "27"),
        ("027.0", "27"),
        ("1,000", "1,000"),
        (["1", "2"], "1, 2"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (r"so \boxed{1} or \boxed{\frac{1}{2}}", r"1, \frac{1}{2}"),
        ("He has 4 * 3 = <<4*3=12>>12.\n#### 12", "12"),
        # above 2^53 a float would round them
        ("9007199254740993.0", "9007199254740993"),
        *((cell, "") for cell in (None, float("nan"))),
        # no answers, which are told by themselves
        *((cell, None) for cell in (True, {"value": "0"}, ["1", {"value": "0"}], ["1", ["2"]])),
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

"""The data sets of the hub, from small files; cells; what is dropped."""

import base64
import copy
import io
import pickle
import zlib
from dataclasses import replace

import rlvr.tasks.sources
from rlvr import world
from rlvr.flags.config import Config
from rlvr.tasks.cells import read_question, unpack
from rlvr.tasks.datasets import prepare, read_set, with_golds
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import prompt_lengths, that_fit
from rlvr.tasks.sources import DATASETS, where_is
from rlvr.verify.answers.boxes import answer_text
from rlvr.verify.pool import grade

import datasets
import pytest
from hub_sets import rows_of
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
        splits = {split: [row.columns for row in rows] for split, rows in rows_of(name).items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.parquet", rows)
            for split, rows in (splits | other_splits).items()
        }
        stored[name] = dict(path="parquet", data_files=files)

    return put


def expected(name, split):
    """The problems of a split, in order; the gold of programming problems is left out."""
    return in_order(
        Problem(row.problem, row.gold, DATASETS[name].verifier, row.level, row.images)
        for row in rows_of(name).get(split, [])
    )


@pytest.mark.parametrize("name", DATASETS)
def test_problems_of_a_set(hub, name):
    """Problem, gold, verifier, level and images, from the right split.

    The tests of a programming problem are compared by what passes them.
    """
    hub(name)
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    assert with_golds(name, evaluation) == evaluation
    splits = rows_of(name)
    if DATASETS[name].verifier == "code":
        programs = {row.problem: row.programs for rows in splits.values() for row in rows}
        for problem in training + evaluation:
            found = [grade(("code", text, problem.gold)) for text in programs[problem.prompt]]
            assert found == [(1.0, ""), (0.0, "")]
        training = [replace(problem, gold="") for problem in training]
        evaluation = [replace(problem, gold="") for problem in evaluation]
    assert in_order(training) == expected(name, "none" if name == "aime24" else "train")
    assert in_order(evaluation) == expected(name, [*splits][-1])


def test_where_a_set_is():
    """On the hub, or in some of the files that it has there."""
    assert where_is("gsm8k", DATASETS["gsm8k"]) == dict(path="openai/gsm8k", name="main")
    files = where_is("taco", DATASETS["taco"])["data_files"]
    assert files["test"] == "hf://datasets/BAAI/TACO/ALL/test-*.parquet"


def test_problems_of_earlier_months_are_left_out(hub):
    ((row,),) = rows_of("livecodebench-v6").values()
    earlier = row.columns | dict(contest_date="2024-07-31T23:59:59")
    hub("livecodebench-v6", test=[row.columns, earlier])
    _, evaluation = read_set("livecodebench-v6", Config(eval_problems=0))
    assert len(evaluation) == 1


def test_an_evaluation_set_cannot_be_trained_on(hub, tiny):
    hub("math500")
    refused(["math500", "--eval_dataset"], load, tiny[1], dataset="math500")
    training, evaluation = load(tiny[1], dataset="math500", max_steps=0)
    assert training == []
    assert in_order(evaluation["math500"]) == expected("math500", "test")


def test_the_hub_does_not_answer(monkeypatch):
    """The error is told in one line, without what is for files."""

    def load_dataset(path, name):
        raise RuntimeError("no answer\nwith more\nlines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert refused(["gsm8k"], read_set, "gsm8k", Config()).endswith(": no answer with more lines")


# ----------------------------------------------------------------------------------- the dropped


@pytest.mark.parametrize(
    "name, column, values",
    [
        ("gsm8k", "answer", ["no hashes", "####", "#### a few", "#### 1 or 2"]),
        ("math", "solution", [r"A $\boxed{}$.", r"none: \boxed{\text{", ""]),
        ("olympiadbench", "final_answer", [[], [""]]),
    ],
)
def test_unreadable_gold_is_dropped(hub, tiny, capsys, name, column, values):
    rows = [row.columns for row in rows_of(name)["test"]]
    hub(name, test=rows + [rows[0] | {column: value} for value in values])
    _, evaluation = load(tiny[1], dataset=name, max_steps=0)
    assert in_order(evaluation[name]) == expected(name, "test")
    told = f"less {len(values)} whose answer the verifier does not take are {len(rows)}\n"
    assert capsys.readouterr().out.endswith(told)


def test_long_prompts_are_dropped(tiny, capsys):
    """In tokens, here characters, with all that the template adds; the longest allowed stays."""
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = "{{ messages[0]['content'] }}:::"
    problems = [Problem("9" * length, "7", "number") for length in (1, 40, 41, 400)]
    problems.append(Problem("9", "", "number"))
    config = Config(system_prompt="none", max_prompt_length=43)
    kept = prepare("own", problems, config, tokenizer)
    assert [problem.prompt.count("9") for problem in kept] == [1, 40]
    told = capsys.readouterr().out
    assert "2 empty or over 43 tokens, 1 whose answer" in told and told.endswith("are 2\n")
    assert that_fit([Problem("", "7")], 43, tokenizer) == []
    lengths = [1 + i % 7 for i in range(2500)]  # they are encoded in parts
    problems = [Problem("9" * length, "7") for length in lengths]
    assert prompt_lengths(problems, tokenizer) == lengths


def test_nothing_dropped_nothing_printed_and_nothing_left(hub, tiny, capsys, monkeypatch):
    hub("gsm8k")
    load(tiny[1], dataset="gsm8k")
    assert capsys.readouterr().out == ""
    parts = ["gsm8k", "over 3 tokens are 0", "--max_prompt_length"]
    refused(parts, load, tiny[1], dataset="gsm8k", max_prompt_length=3)
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    refused(["gsm8k has 2 problems to evaluate on, less"], load, tiny[1], dataset="gsm8k")


# -------------------------------------------------------------------------- the cells of a data set


ASKED = dict(role="user", content="What?")


@pytest.mark.parametrize(
    "cell, question",
    [
        ("What?", "What?"),
        # other keys, which parquet fills with None where one message has them, say nothing
        ([ASKED | dict(tool_calls=None)], (("user", "What?"),)),
        # what asks nothing
        *((cell, "") for cell in (None, "", " ", 7, [], ["What?"], [dict(content="What?")])),
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
        (1e16, "10000000000000000"),
        (1e-5, "0.00001"),
        (0.1 + 0.2, "0.3"),
        (2**70, "1180591620717411303424"),
        ("027.0", "27"),
        ("1,000", "1,000"),
        (["1", "2"], "1, 2"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (r"so \boxed{1} or \boxed{\frac{1}{2}}", r"1, \frac{1}{2}"),
        # above 2^53 a float would round them
        ("9007199254740993.0", "9007199254740993"),
        # no answers
        *((cell, "") for cell in (None, float("nan"), True, {"value": "0"})),
        *((cell, "") for cell in (["1", {"value": "0"}], ["1", ["2"]])),
    ],
    ids=repr,
)
def test_answer_text(cell, text):
    assert answer_text(cell) == text


class Trap:
    """What would run a function when it is unpickled."""

    def __reduce__(self):
        return io.open, ("trap", "w")


def test_private_tests_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpack(base64.b64encode(zlib.compress(pickle.dumps(Trap()))).decode())
    assert not [*tmp_path.iterdir()]


def test_a_set_of_the_hub_without_a_network():
    """The tests have none."""
    refused(
        ["cannot load the data set gsm8k: the hub does not", "countdown"],
        read_set,
        "gsm8k",
        Config(),
    )

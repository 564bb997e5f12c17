"""The data sets of the hub, in their real columns but from small files; and what is dropped."""

import copy
import re
from pathlib import Path

import rlvr.tasks.embedded
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import prepare, read_set
from rlvr.tasks.problems import Problem
from rlvr.tasks.sources import DATASETS
from rlvr.verify.answers.boxes import boxed
from rlvr.verify.pool import grade
from rlvr.verify.verifiers import SYSTEM_PROMPTS

import datasets
import pytest
from hub_sets import SETS
from local_sets import in_order, load, one_line, prompts_of, write

# JSON holds no images
CASES = [(name, "parquet") for name in SETS]
CASES += [(name, "jsonl") for name in SETS if not DATASETS[name].images]
EVALUATION_ONLY = [name for name in SETS if not DATASETS[name].train and not DATASETS[name].images]


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """A hub that knows only the sets that a test puts on it; local files load as ever.

    hub(name, suffix, split=columns, ...) puts a set there, with other rows for some splits.
    """
    load_dataset = datasets.load_dataset
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    stored = {}  # path and configuration -> kind of files, file of each split

    def load_from_hub(path, name=None, **more):
        files = more.get("data_files")
        if isinstance(files, dict):  # files of the hub, by split
            assert path == "parquet"
            ((path, name),) = [
                (held, pattern)
                for held, pattern in stored
                if pattern
                and files == {s: f"hf://datasets/{held}/{pattern.format(split=s)}" for s in files}
            ]
        elif path in ("json", "parquet") or Path(path).is_absolute():
            return load_dataset(path, name=name, **more)
        if (path, name) not in stored:
            pytest.fail(f"no data set {path!r} with configuration or files {name!r}")
        kind, files = stored[path, name]
        return load_dataset(kind, data_files=files)

    def put(name, suffix="parquet", **other_splits):
        hub_set = SETS[name]
        splits = {split: columns_of(rows) for split, rows in hub_set.splits.items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.{suffix}", rows)
            for split, rows in (splits | other_splits).items()
        }
        kind = "json" if suffix == "jsonl" else suffix
        stored[hub_set.path, hub_set.files or hub_set.configuration] = kind, files

    monkeypatch.setattr(datasets, "load_dataset", load_from_hub)
    # all of Countdown is drawn wherever it is one of the sets
    monkeypatch.setattr(rlvr.tasks.embedded, "TRAINING_PROBLEMS", 64)
    return put


def columns_of(rows):
    """The rows as they are on the hub."""
    return [row.columns for row in rows]


def expected(name, split):
    """The problems of a split, in order."""
    return in_order(
        Problem(row.problem, row.gold, SETS[name].verifier, row.level, row.images)
        for row in SETS[name].splits.get(split, [])
    )


def test_all_sets_are_here():
    assert SETS.keys() == DATASETS.keys()


@pytest.mark.parametrize("name, suffix", CASES)
def test_problems_of_a_set(hub, name, suffix):
    """Problem, gold, verifier, level and images, from the right split."""
    hub(name, suffix)
    config = Config(dataset=name, eval_problems=0)
    config.check()
    training, evaluation = read_set(name, config)
    assert in_order(evaluation) == expected(name, SETS[name].test or SETS[name].train)
    if SETS[name].test:
        assert in_order(training) == expected(name, SETS[name].train)


@pytest.mark.parametrize("name", SETS)
def test_gold_is_right_and_others_are_wrong(name):
    for row in (row for rows in SETS[name].splits.values() for row in rows):
        for answer, reward in [(row.right or row.gold, 1.0), (row.wrong, 0.0)]:
            text = f"We get $7$, or\n{answer if row.right else boxed(answer)}\n"
            assert grade((SETS[name].verifier, text, row.gold)) == (reward, "")


# ------------------------------------------------------------------------ to train and to evaluate


@pytest.mark.parametrize("name", ["gsm8k", "math"])
def test_a_set_trains_on_one_split_and_evaluates_on_the_other(hub, tiny, name):
    hub(name)
    training, evaluation = load(tiny[1], dataset=name)
    assert in_order(training) == expected(name, "train")
    assert evaluation.keys() == {name}
    assert in_order(evaluation[name]) == expected(name, "test")


@pytest.mark.parametrize("name", EVALUATION_ONLY)
def test_evaluation_sets(hub, tiny, name):
    """They cannot be trained on, but evaluated on, alone and beside training on another set."""
    hub("gsm8k")
    hub(name)
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=name)
    assert one_line(error, name, "--eval_dataset")
    for flags in (dict(dataset=name, max_steps=0), dict(dataset="gsm8k", eval_dataset=name)):
        training, evaluation = load(tiny[1], **flags)
        assert in_order(training) == ([] if "max_steps" in flags else expected("gsm8k", "train"))
        assert [*evaluation] == [name]
        assert in_order(evaluation[name]) == expected(name, SETS[name].test)


@pytest.mark.parametrize("count", [1, 5, 19])
def test_a_training_set_holds_out_problems(hub, tiny, count):
    rows = [dict(problem=f"{i}?", answer=str(i), level="Easy") for i in range(20)]
    hub("open-rs", train=rows)
    flags = dict(dataset="open-rs", eval_problems=count)
    training, evaluation = load(tiny[1], **flags)
    held_out = evaluation["open-rs"]
    assert (len(training), len(held_out)) == (20 - count, count)
    assert prompts_of(training + held_out) == {f"{i}?" for i in range(20)}
    # again the same, whatever the seed: runs that differ in it are compared on the same problems
    assert load(tiny[1], **flags, seed=1) == (training, evaluation)
    assert load(tiny[1], **flags, max_steps=0) == ([], evaluation)


@pytest.mark.parametrize(
    "name, split", [("open-rs", "train"), ("math500", "test"), ("aime24", "train")]
)
def test_how_many_problems_are_evaluated(hub, tiny, name, split):
    row = SETS[name].splits[split][0]
    hub(name, **{split: [row.columns | dict(problem=f"{i}?") for i in range(20)]})
    for count, left in [(0, 20), (7, 7), (20, 20), (128, 20)]:
        _, evaluation = load(tiny[1], dataset=name, eval_problems=count, max_steps=0)
        prompts = prompts_of(evaluation[name])
        assert len(evaluation[name]) == len(prompts) == left
        assert prompts <= {f"{i}?" for i in range(20)}
        if left == 7:  # not simply the first ones, which may be alike
            assert prompts != {f"{i}?" for i in range(7)}


def test_several_sets_to_evaluate_on(hub, tiny, tmp_path):
    """Each by itself, in the order given, whatever is trained on; a repeated one once."""
    names = ["math500", "aime24", "gsm8k", "olympiadbench"]
    for name in ["open-rs", *names]:
        hub(name)
    file = write(tmp_path / "own.jsonl", [dict(prompt="Own?", answer="B")])
    given = ",".join([*names, "countdown", file, "aime24", ""])
    training, evaluation = load(
        tiny[1], dataset="open-rs", eval_dataset=given, eval_problems=2, verifier="choice"
    )
    assert in_order(training) == expected("open-rs", "train")  # nothing of it is evaluated
    assert [*evaluation] == [*names, "countdown", file]
    for name in names:
        assert len(evaluation[name]) == 2
        assert {*evaluation[name]} <= {*expected(name, SETS[name].test)}
    assert [problem.verifier for problem in evaluation["countdown"]] == ["countdown"] * 2
    assert evaluation[file] == [Problem("Own?", "B", "choice", "")]


@pytest.mark.parametrize(
    "template, of_gsm8k, of_countdown",
    [
        (None, "{system}\n{question}\n", "{question}"),  # as the tiny policy reads it
        (
            "{% for message in messages %}{{ message['content'] }}|{% endfor %}",
            "{system}|{question}|",
            "{system}|{question}|",
        ),
    ],
)
def test_prompts_of_several_sets(hub, tiny, template, of_gsm8k, of_countdown):
    """Each set gets the system prompt of its own verifier, in training and in evaluation."""
    hub("gsm8k")
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = template
    training, evaluation = load(
        tokenizer, dataset="countdown", eval_dataset="gsm8k,countdown", system_prompt="auto"
    )
    assert prompts_of(evaluation["gsm8k"]) == {
        of_gsm8k.format(system=SYSTEM_PROMPTS["boxed"], question=row.problem)
        for row in SETS["gsm8k"].splits["test"]
    }
    for problem in training[:9] + evaluation["countdown"][:9]:
        filled = dict(system=SYSTEM_PROMPTS["countdown"], question=problem.gold)
        assert problem.prompt == of_countdown.format(**filled)


def test_evaluation_on_more_ranks_than_problems(hub, tiny, monkeypatch):
    hub("gsm8k")
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    assert len(load(tiny[1], max_steps=0, eval_problems=2)[1]["countdown"]) == 2
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    with pytest.raises(
        UserError, match="gsm8k has 3 problems to evaluate on, less than one a rank"
    ):
        load(tiny[1], dataset="gsm8k", max_steps=0)


# ----------------------------------------------------------------------------------- the dropped


def dropped(capsys):
    """How many prompts were too long, golds not readable, problems left, by the printed line."""
    line = capsys.readouterr().out
    losses, left = re.fullmatch(r".+: \d+ problems less (.+) are (\d+)\n", line).groups()
    counts = {reason: int(count) for count, reason in re.findall(r"(\d+) ([^,]+)", losses)}
    long = sum(count for reason, count in counts.items() if reason.endswith("tokens"))
    return long, counts.get("whose answer the verifier does not take", 0), int(left)


@pytest.mark.parametrize(
    "name, split, column, values",
    [
        ("gsm8k", "test", "answer", ["no hashes", "####", "#### a few", "#### 1 or 2"]),
        ("math", "test", "solution", [r"A $\boxed{}$.", r"\boxed{ }", r"none: \boxed{\text{", ""]),
        ("math500", "test", "answer", ["", " "]),
        ("aime24", "train", "answer", [""]),
        ("olympiadbench", "test", "final_answer", [[], [""]]),
    ],
)
def test_unreadable_gold_is_dropped(hub, tiny, capsys, name, split, column, values):
    rows = columns_of(SETS[name].splits[split])
    hub(name, **{split: rows + [rows[0] | {column: value} for value in values]})
    _, evaluation = load(tiny[1], dataset=name, max_steps=0)
    assert in_order(evaluation[name]) == expected(name, split)
    assert dropped(capsys) == (0, len(values), len(rows))


@pytest.mark.parametrize("template, limit", [(None, 40), ("{{ messages[0]['content'] }}:::", 43)])
def test_long_prompts_are_dropped(tiny, capsys, monkeypatch, template, limit):
    """In tokens, here characters, with all that the template adds; the longest allowed stays."""
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = template
    problems = [Problem("9" * length, "7", "number") for length in (1, 39, 40, 41, 400)]
    problems.append(Problem("9", "", "number"))
    config = Config(system_prompt="none", max_prompt_length=limit)
    kept = prepare("own", problems, config, tokenizer)
    assert [problem.prompt.count("9") for problem in kept] == [1, 39, 40]
    assert dropped(capsys) == (2, 1, 3)
    monkeypatch.setattr(world, "RANK", 1)  # the first rank alone prints
    assert prepare("own", problems, config, tokenizer) == kept
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("steps", [0, 60])
def test_nothing_dropped_nothing_printed_and_nothing_left(hub, tiny, capsys, steps):
    hub("gsm8k")
    load(tiny[1], dataset="gsm8k", max_steps=steps)
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset="gsm8k", max_prompt_length=3, max_steps=steps)
    assert one_line(error, "gsm8k", "over 3 tokens are 0", "--max_prompt_length")


# --------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "flags",
    [
        dict(dataset="gsm9k"),
        dict(eval_dataset="gsm9k"),
        dict(dataset="gsm8k", eval_dataset="math500,gsm9k"),
        dict(dataset="/absent/gsm9k.parquet"),
        dict(dataset="/absent/gsm9k/"),
    ],
    ids=str,
)
def test_config_refuses_what_is_no_set(flags):
    with pytest.raises(UserError) as error:
        Config(**flags).check()
    assert one_line(error, "gsm9k", *SETS)


@pytest.mark.parametrize("name", ["gsm8k", "open-rs", "aime24", "olympiadbench"])
def test_a_column_is_missing_on_the_hub(hub, name):
    for missing in (DATASETS[name].problem, DATASETS[name].answer):
        hub(
            name,
            **{
                split: [{k: v for k, v in row.columns.items() if k != missing} for row in rows]
                for split, rows in SETS[name].splits.items()
            },
        )
        with pytest.raises(UserError) as error:
            read_set(name, Config())
        left = [column for column in SETS[name].columns.split(", ") if column != missing]
        assert one_line(error, name, repr(missing), *left)


def test_the_hub_does_not_answer(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("Couldn't reach the hub\nwith more\nlines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError) as error:
        read_set("gsm8k", Config())
    assert one_line(error, "gsm8k", "Couldn't reach the hub")
    assert "UTF-8" not in str(error.value)  # which is for files

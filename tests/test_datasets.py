"""The data sets of the hub, in their real schemas but from small files, and local files."""

import copy
import json
import re
from pathlib import Path

import rlvr.tasks.boxes
import rlvr.tasks.countdown
import rlvr.tasks.pool
from rlvr import world
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.boxes import answer_text
from rlvr.tasks.datasets import prepare, read_set
from rlvr.tasks.prompts import SYSTEM_PROMPTS
from rlvr.tasks.sources import DATASETS

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hub_sets import SETS, amc23, open_rs
from local_sets import in_order, load, one_line, own, prompts_of, write

SHOWN = [name for name, source in DATASETS.items() if source.images]  # JSON holds no images
EVALUATION_ONLY = [name for name, each in SETS.items() if each.train is None and name not in SHOWN]


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """A hub that knows only the sets that a test puts on it; local files load as ever.

    hub(name, suffix, split=columns, ...) puts a set there, with other rows for some splits.
    """
    load_dataset = datasets.load_dataset
    stored = {}  # path and configuration -> kind of files, file of each split
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def load_from_hub(path, name=None, **more):
        files = more.get("data_files")
        if isinstance(files, dict):  # files of the hub, by split
            assert path == "parquet"
            ((path, name),) = [
                (held, pattern or "")
                for held, pattern in stored
                if all(
                    address == f"hf://datasets/{held}/{(pattern or '').format(split=split)}"
                    for split, address in files.items()
                )
            ]
        elif path in ("json", "parquet") or Path(path).is_absolute():
            return load_dataset(path, name=name, **more)
        if (path, name) not in stored:
            pytest.fail(f"no data set {path!r} with configuration or files {name!r}")
        kind, files = stored[path, name]
        return load_dataset(kind, data_files=files)

    def put(name, suffix="parquet", **other_splits):
        source = SETS[name]
        splits = {split: columns_of(rows) for split, rows in source.splits.items()} | other_splits
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.{suffix}", rows)
            for split, rows in splits.items()
        }
        kind = "json" if suffix == "jsonl" else suffix
        stored[source.path, source.files or source.configuration] = kind, files

    monkeypatch.setattr(datasets, "load_dataset", load_from_hub)
    return put


def columns_of(rows):
    """The rows as they are on the hub."""
    return [row.columns for row in rows]


def problem_of(row, verifier="math"):
    return Problem(row.problem, row.gold, verifier, row.level, row.images)


def expected(name, split):
    """The problems of a split, in order."""
    rows = SETS[name].splits.get(split, [])
    return in_order(problem_of(row, SETS[name].verifier) for row in rows)


def test_all_sets_are_here():
    assert SETS.keys() == DATASETS.keys()


@pytest.mark.parametrize(
    "name, suffix",
    [(name, "parquet") for name in SETS] + [(name, "jsonl") for name in SETS if name not in SHOWN],
)
def test_problems_of_a_set(hub, name, suffix):
    """Problem, gold, verifier and level, from the right split."""
    hub(name, suffix)
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    assert in_order(evaluation) == expected(name, SETS[name].test or SETS[name].train)
    if SETS[name].test:
        assert in_order(training) == expected(name, SETS[name].train)


@pytest.mark.parametrize("name", SETS)
def test_gold_is_right_and_others_are_wrong(hub, name):
    hub(name)
    splits = SETS[name].splits
    used = {*filter(None, (SETS[name].train, SETS[name].test))}
    rows = {row.problem: row for split in used for row in splits[split]}
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    problems = {*training, *evaluation}
    assert prompts_of(problems) == rows.keys()
    for problem in problems:
        row = rows[problem.prompt]
        for answer, reward in [(row.right or problem.gold, 1.0), (row.wrong, 0.0)]:
            text = f"We get $7$, or\n{answer if row.right else rlvr.tasks.boxes.boxed(answer)}\n"
            assert rlvr.tasks.pool.grade((problem.verifier, text, problem.gold)) == (reward, "")


@pytest.mark.parametrize(
    "name, problem, answers",
    [
        ("gsm8k", "How much profit?", ["1000", "1,000", r"\$1,000", "1000.00"]),
        ("aime24", "Torus?", ["33", "033", "33.0"]),
        ("amc23", "Fractions?", ["27", "27.0", "027"]),
        ("amc23", "Digits?", ["0.5", r"\frac12"]),
        ("math", "Half of 1?", [r"\dfrac12", "0.5", "1/2"]),
        ("olympiadbench", "Ratio?", ["0.5", r"\frac{2}{4}"]),
        ("math500", "Polar?", [r"(3, \pi/2)"]),
    ],
)
def test_right_answers_in_other_words(hub, name, problem, answers):
    hub(name)
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    (gold,) = {each.gold for each in (*training, *evaluation) if each.prompt == problem}
    for answer in answers:
        question = SETS[name].verifier, f"\\boxed{{{answer}}}", gold
        assert rlvr.tasks.pool.grade(question) == (1.0, "")


def test_amc23_with_answers_as_strings(hub):
    rows = [amc23(f"{answer}?", answer, gold="") for answer in ("27.0", "36", "9.50")]
    hub("amc23", test=columns_of(rows))
    _, problems = read_set("amc23", Config())
    assert sorted(problem.gold for problem in problems) == ["27", "36", "9.50"]


@pytest.mark.parametrize(
    "value, text",
    [
        (27.0, "27"),
        (0.5, "0.5"),
        (7, "7"),
        (-4.0, "-4"),
        ("27.0", "27"),
        ("033", "33"),
        ("000", "0"),
        (" 18 ", "18"),
        ("-4", "-4"),
        ("1,000", "1,000"),
        ("B", "B"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (["1", "2"], "1, 2"),
        (["5"], "5"),
        ([r"$\frac{1}{2}$"], r"$\frac{1}{2}$"),
        (r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"so \boxed{1} or \boxed{\frac{1}{2}}", r"1, \frac{1}{2}"),
        ("He has 4 * 3 = <<4*3=12>>12.\n#### 12", "12"),
        ("#### 1,234", "1,234"),
        (None, ""),
        (" x ", "x"),
        (-3, "-3"),
    ],
    ids=repr,
)
def test_answer_text(value, text):
    assert answer_text(value) == text


# ------------------------------------------------------------------------ to train and to evaluate


@pytest.fixture(autouse=True)
def few_countdown_problems(monkeypatch):
    """All of them are drawn wherever Countdown is one of the sets."""
    monkeypatch.setattr(rlvr.tasks.countdown, "TRAINING_PROBLEMS", 64)


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
    problems = expected(name, SETS[name].test)
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=name)
    assert one_line(error, name, "--eval_dataset")
    training, evaluation = load(tiny[1], dataset=name, max_steps=0)
    assert training == []
    assert [*evaluation] == [name]
    assert in_order(evaluation[name]) == problems
    training, evaluation = load(tiny[1], dataset="gsm8k", eval_dataset=name)
    assert in_order(training) == expected("gsm8k", "train")
    assert [*evaluation] == [name]
    assert in_order(evaluation[name]) == problems


@pytest.mark.parametrize("count", [1, 5, 19])
def test_a_training_set_holds_out_problems(hub, tiny, count):
    rows = [open_rs(f"{i}?", "Easy", str(i)) for i in range(20)]
    hub("open-rs", train=columns_of(rows))
    training, evaluation = load(tiny[1], dataset="open-rs", eval_problems=count)
    held_out = evaluation["open-rs"]
    assert len(held_out) == count
    assert len(training) == 20 - count
    assert in_order(training + held_out) == in_order(problem_of(row) for row in rows)
    # again the same, whatever the seed: runs that differ in it are compared on the same problems
    assert load(tiny[1], dataset="open-rs", eval_problems=count, seed=1) == (training, evaluation)
    assert load(tiny[1], dataset="open-rs", eval_problems=count, max_steps=0) == ([], evaluation)


@pytest.mark.parametrize(
    "name, split", [("open-rs", "train"), ("math500", "test"), ("aime24", "train")]
)
@pytest.mark.parametrize("count, left", [(0, 20), (7, 7), (20, 20), (128, 20)])
def test_how_many_problems_are_evaluated(hub, tiny, name, split, count, left):
    row = SETS[name].splits[split][0]
    hub(name, **{split: [row.columns | dict(problem=f"{i}?") for i in range(20)]})
    _, evaluation = load(tiny[1], dataset=name, eval_problems=count, max_steps=0)
    prompts = prompts_of(evaluation[name])
    assert len(evaluation[name]) == len(prompts) == left
    assert prompts <= {f"{i}?" for i in range(20)}
    if count == 7:  # not simply the first ones, which may be alike
        assert prompts != {f"{i}?" for i in range(7)}


def test_several_sets_to_evaluate_on(hub, tiny, tmp_path):
    """Each by itself, in the order given, whatever is trained on; a repeated one once."""
    names = ["math500", "aime24", "gsm8k", "olympiadbench"]
    for name in ["open-rs", *names]:
        hub(name)
    file = write(tmp_path / "own.jsonl", [dict(prompt="Own?", answer="B")])
    given = ",".join([*names, "countdown", file, "aime24"])
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
    "name, levels",
    [
        ("math", {"Level 2", "Level 3", "Level 5"}),
        ("math500", {"1", "2", "4", "5"}),
        ("open-rs", {"Easy", "Hard"}),
        ("gsm8k", {""}),
        ("aime24", {""}),
        ("countdown", {"3 numbers"}),
    ],
)
def test_levels(hub, tiny, name, levels):
    if name != "countdown":
        hub(name)
    _, evaluation = load(tiny[1], dataset=name, max_steps=0)
    assert {problem.level for problem in evaluation[name]} == levels


# ----------------------------------------------------------------------------------- the dropped


def dropped(capsys):
    """How many prompts were too long, golds not readable, problems left, by the printed line."""
    line = capsys.readouterr().out
    losses, left = re.fullmatch(r".+: \d+ problems less (.+) are (\d+)\n", line).groups()
    counts = {reason: int(count) for count, reason in re.findall(r"(\d+) ([^,]+)", losses)}
    long = sum(count for reason, count in counts.items() if reason.endswith("tokens"))
    return long, counts.get("whose answer the verifier does not take", 0), int(left)


@pytest.mark.parametrize(
    "solution", [r"The answer is $\boxed{}$.", r"\boxed{ }", r"no box, but \boxed{\text{", ""]
)
def test_an_empty_box_is_dropped(hub, tiny, capsys, solution):
    rows = columns_of(SETS["math"].splits["train"])
    empty = dict(problem="Empty?", level="Level 5", type="Geometry", solution=solution)
    hub("math", train=[*rows, empty])
    training, _ = load(tiny[1], dataset="math")
    assert in_order(training) == expected("math", "train")
    assert dropped(capsys) == (0, 1, 2)


@pytest.mark.parametrize(
    "name, split, column, values",
    [
        ("gsm8k", "test", "answer", ["no hashes", "####", "#### a few", "#### 1 or 2"]),
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
def test_long_prompts_are_dropped(tiny, capsys, template, limit):
    """In tokens, here characters, with all that the template adds; the longest allowed stays."""
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = template
    problems = [Problem("9" * length, "7", "number") for length in (1, 39, 40, 41, 400)]
    problems.append(Problem("9", "", "number"))
    config = Config(system_prompt="none", max_prompt_length=limit)
    kept = prepare("own", problems, config, tokenizer)
    assert [problem.prompt.count("9") for problem in kept] == [1, 39, 40]
    assert dropped(capsys) == (2, 1, 3)


def test_nothing_dropped_nothing_printed(hub, tiny, capsys, monkeypatch):
    hub("gsm8k")
    load(tiny[1], dataset="gsm8k")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(world, "RANK", 1)  # and the first rank alone prints
    problems = [Problem("9", "", "number"), Problem("9", "9", "number")]
    assert len(prepare("own", problems, Config(), tiny[1])) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "flags", [dict(max_prompt_length=3), dict(max_prompt_length=3, max_steps=0)], ids=str
)
def test_nothing_left(hub, tiny, flags):
    hub("gsm8k")
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset="gsm8k", **flags)
    assert one_line(error, "gsm8k")


# --------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "flags",
    [
        dict(dataset="gsm9k"),
        dict(eval_dataset="gsm9k"),
        dict(dataset="gsm8k", eval_dataset="math500,gsm9k"),
        dict(dataset="gsm9k.jsonl"),
        dict(dataset="/absent/gsm9k.parquet"),
        dict(dataset="/absent/gsm9k/"),
    ],
    ids=str,
)
def test_config_refuses_what_is_no_set(flags):
    with pytest.raises(UserError) as error:
        Config(**flags).check()
    assert one_line(error, "gsm9k", *SETS)


@pytest.mark.parametrize("name", SETS)
def test_config_accepts_all_sets(name):
    Config(dataset=name, eval_dataset=f"countdown,{name}").check()


@pytest.mark.parametrize("name", ["gsm8k", "open-rs", "aime24", "olympiadbench"])
def test_a_column_is_missing_on_the_hub(hub, name):
    splits = SETS[name].splits
    columns = next(iter(splits.values()))[0].columns
    for missing in (DATASETS[name].problem, DATASETS[name].answer):
        left = [column for column in columns if column != missing]
        rows = {
            split: [{column: row.columns[column] for column in left} for row in part]
            for split, part in splits.items()
        }
        hub(name, **rows)
        with pytest.raises(UserError) as error:
            read_set(name, Config())
        assert one_line(error, name, repr(missing), *left)


def test_the_hub_does_not_answer(monkeypatch):
    def load_dataset(*_, **__):
        raise ConnectionError("Couldn't reach the hub\nwith more\nlines")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError) as error:
        read_set("gsm8k", Config())
    assert one_line(error, "gsm8k", "Couldn't reach the hub")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "flags, column",
    [(dict(answer_column="gold"), "gold"), (dict(prompt_column="question"), "question")],
    ids=str,
)
def test_a_column_is_missing_in_a_file(tmp_path, suffix, flags, column):
    file = write(tmp_path / f"own.{suffix}", [dict(prompt="a", answer="1", extra="e")])
    with pytest.raises(UserError) as error:
        read_set(file, Config(dataset=file, **flags))
    assert one_line(error, file, f"'{column}'", "prompt, answer, extra")


@pytest.mark.parametrize(
    "file, content",
    [
        ("own.jsonl", b'{"prompt": "a", "answer": "1"}\n{"prompt": "b", "ans'),
        ("own.jsonl", b'{"prompt": \n{{{'),
        ("own.jsonl", b"\xff\xfe\x00\x01"),
        ("own.parquet", b"no parquet"),
        ("own.parquet", b""),
        ("own/train.jsonl", b"{{"),
        ("own.jsonl", None),
        ("own.parquet", None),
        ("own/", None),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, file, content):
    """Corrupt, empty or gone since the flags were read."""
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if content is not None:
        path.write_bytes(content)
    name = str(tmp_path / file.split("/")[0])
    with pytest.raises(UserError) as error:
        read_set(name, Config())
    assert one_line(error, name)


def test_a_folder_without_files(tmp_path):
    with pytest.raises(UserError) as error:
        read_set(str(tmp_path), Config(dataset=str(tmp_path)))
    assert one_line(error, str(tmp_path))


def test_a_file_without_rows(tmp_path, tiny):
    file = tmp_path / "own.parquet"
    columns = pyarrow.schema(dict(prompt=pyarrow.string(), answer=pyarrow.string()))
    pyarrow.parquet.write_table(columns.empty_table(), file)
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=str(file), max_steps=0)
    assert one_line(error, str(file))


# ----------------------------------------------------------------------------------- local files

# a right program and a wrong one
SCRIPTS = [f"So:\n```python\nprint(int(input()) + {change})\n```" for change in (1, 2)]
FUNCTIONS = [f"So:\n```python\ndef f(n):\n    return n + {change}\n```" for change in (1, 2)]
TESTS = dict(inputs=["1\n", "41\n"], outputs=["2\n", "42\n"])
ASSERTIONS = ["assert f(1) == 2", "assert f(-1) == 0"]
# --verifier, what is in the answer column, the gold, and a right and a wrong completion
ANSWERS = [
    ("math", r"\frac{1}{2}", r"\frac{1}{2}", r"\boxed{0.5}", r"\boxed{2}"),
    ("math", r"Thus $x = \boxed{\sqrt{2}}$.", r"\sqrt{2}", r"\boxed{\sqrt 2}", r"\boxed{2}"),
    ("math", 7, "7", r"\boxed{7}", r"\boxed{-7}"),
    ("math", 27.0, "27", r"\boxed{27}", r"\boxed{270}"),
    ("math", ["3", "-1"], "3, -1", r"\boxed{-1, 3}", r"\boxed{3}"),
    ("number", "1,000", "1,000", r"so \boxed{1000}", r"\boxed{1}"),
    ("number", 18, "18", "#### 18", "#### 81"),
    ("number", -2.5, "-2.5", r"\boxed{-2.5}", r"\boxed{2.5}"),
    ("choice", "B", "B", r"\boxed{B}", r"\boxed{C}"),
    ("choice", "(D)", "(D)", r"\boxed{\text{D}}", r"\boxed{A}"),
    ("code", json.dumps(TESTS), json.dumps(TESTS), *SCRIPTS),
    ("code", TESTS, json.dumps(TESTS), *SCRIPTS),
    ("code", ASSERTIONS, json.dumps(ASSERTIONS), *FUNCTIONS),
    ("code", json.dumps(ASSERTIONS), json.dumps(ASSERTIONS), *FUNCTIONS),
    ("code", json.dumps("\n".join(ASSERTIONS)), json.dumps("\n".join(ASSERTIONS)), *FUNCTIONS),
]
NAMED = {"prompt_column": "my question", "answer_column": "label"}


@pytest.mark.parametrize(
    "verifier, answer, gold, right, wrong", ANSWERS, ids=lambda value: str(value)[:20]
)
@pytest.mark.parametrize(
    "suffix, names",
    [
        ("jsonl", {}),
        ("parquet", NAMED),
        pytest.param("jsonl", NAMED, marks=pytest.mark.slow),
        pytest.param("parquet", {}, marks=pytest.mark.slow),
    ],
    ids=["jsonl", "parquet, named", "jsonl, named", "parquet"],
)
def test_answers_of_a_file(tmp_path, suffix, names, verifier, answer, gold, right, wrong):
    config = Config(verifier=verifier, eval_problems=0, **names)
    row = {config.prompt_column: "Why?", config.answer_column: answer, "level": "Easy"}
    file = write(tmp_path / f"own.{suffix}", [row])
    _, (problem,) = read_set(file, config)
    assert problem == Problem("Why?", gold, verifier)
    assert rlvr.tasks.pool.grade((verifier, right, gold)) == (1.0, "")
    assert rlvr.tasks.pool.grade((verifier, wrong, gold)) == (0.0, "")


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_file_holds_out_problems(tmp_path, tiny, suffix):
    texts = {f"{i}?" for i in range(10)}
    file = write(tmp_path / f"own.{suffix}", own(sorted(texts)))
    training, evaluation = load(tiny[1], dataset=file, eval_problems=3)
    assert len(training) == 7
    assert len(evaluation[file]) == 3
    assert prompts_of(training + evaluation[file]) == texts
    for count in (0, 99):  # all of them
        _, evaluation = load(tiny[1], dataset=file, eval_problems=count, max_steps=0)
        assert len(evaluation[file]) == 10


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_folder_with_both_splits(tmp_path, tiny, suffix, slash):
    for split, texts in (("train", "abc"), ("test", "de")):
        write(tmp_path / "own" / f"{split}.{suffix}", own(texts))
    folder = f"{tmp_path}/own{slash}"
    training, evaluation = load(tiny[1], dataset=folder)
    assert in_order(training) == [Problem(text, "7", "math", "") for text in "abc"]
    assert in_order(evaluation[folder]) == [Problem(text, "7", "math", "") for text in "de"]


def test_a_folder_with_a_training_split(tmp_path, tiny):
    """Some of its problems are held out."""
    write(tmp_path / "own" / "train.jsonl", own("abc"))
    folder = str(tmp_path / "own")
    training, evaluation = load(tiny[1], dataset=folder, eval_problems=1)
    assert len(training) == 2
    assert in_order(training + evaluation[folder]) == [Problem(t, "7", "math") for t in "abc"]
    _, evaluation = load(tiny[1], dataset=folder, max_steps=0)
    assert sorted(problem.prompt for problem in evaluation[folder]) == [*"abc"]


def test_a_folder_with_an_evaluation_split(tmp_path, tiny):
    """It cannot be trained on."""
    write(tmp_path / "own" / "test.jsonl", own("abc"))
    folder = str(tmp_path / "own")
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=folder, eval_problems=1)
    assert one_line(error, folder)
    _, evaluation = load(tiny[1], dataset=folder, max_steps=0)
    assert sorted(problem.prompt for problem in evaluation[folder]) == [*"abc"]


def test_a_file_that_has_changed_is_read_again(tmp_path):
    """datasets keeps a copy of each file."""
    for text in ("first", "second"):
        file = write(tmp_path / "own.jsonl", own([text, text]))
        _, evaluation = read_set(file, Config())
        assert prompts_of(evaluation) == {text}


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
        question = problem.gold  # of Countdown
        prompt = of_countdown.format(system=SYSTEM_PROMPTS["countdown"], question=question)
        assert problem.prompt == prompt


# ------------------------------------------------------------------------------- odd local files


def test_empty_cells_are_dropped(tmp_path, tiny, capsys):
    """None is neither a problem nor an answer; the line says how many there were of each."""
    rows = [
        {"prompt": "a", "answer": "1"},
        {"prompt": None, "answer": "2"},
        {"prompt": "c", "answer": None},
    ]
    file = write(tmp_path / "own.jsonl", rows)
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    assert evaluation[file] == [Problem("a", "1", "math")]
    assert capsys.readouterr().out.endswith(
        ": 3 problems less 1 without a question, 1 whose answer the verifier does not take are 1\n"
    )


@pytest.mark.parametrize(
    "tests, good",
    [
        ("assert f(1) == 2", True),
        ('["assert f(1) == 2"]', True),
        ('{"inputs": ["1"], "outputs": ["2"]}', True),
        ('{"inputs": ["1", "2"], "outputs": ["2"]}', False),
        ("{}", False),
        ("null", False),
        ("[]", False),
        ("", False),
        ('[{"input": "1"}]', False),
        ("7", False),
        ('{"inputs": null, "outputs": 3}', False),
    ],
)
def test_unit_tests_that_cannot_run_are_dropped(tmp_path, tiny, tests, good):
    rows = [{"prompt": "a", "answer": tests}, {"prompt": "b", "answer": '"assert True"'}]
    file = write(tmp_path / "own.jsonl", rows)
    _, evaluation = load(tiny[1], dataset=file, max_steps=0, verifier="code")
    assert prompts_of(evaluation[file]) == ({"a", "b"} if good else {"b"})


def test_held_out_problems_are_not_trained_on(tmp_path, tiny):
    """Not even where a file has them twice. All of a file held out leaves nothing to train on."""
    file = write(tmp_path / "own.jsonl", own("aabbccdd"))
    training, evaluation = load(tiny[1], dataset=file, eval_problems=2)
    assert training
    assert not prompts_of(training) & prompts_of(evaluation[file])
    with pytest.raises(UserError, match="no problem to train on"):
        load(tiny[1], dataset=file, eval_problems=0)


@pytest.mark.parametrize("name", ["g[1].jsonl", "a*b.jsonl"])
def test_names_that_look_like_patterns(tmp_path, tiny, name):
    file = write(tmp_path / name, own("ab"))
    _, evaluation = load(tiny[1], dataset=file, max_steps=0)
    assert len(evaluation[file]) == 2


def test_a_comma_too_many(tiny):
    _, evaluation = load(tiny[1], eval_dataset="countdown,", eval_problems=2)
    assert [*evaluation] == ["countdown"]


def test_an_empty_file(tmp_path, tiny):
    (tmp_path / "own.jsonl").write_text("")
    with pytest.raises(UserError) as error:
        load(tiny[1], dataset=str(tmp_path / "own.jsonl"), max_steps=0)
    assert one_line(error, "own.jsonl")


def test_evaluation_on_two_ranks(tiny, monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    _, evaluation = load(tiny[1], max_steps=0, eval_problems=2)
    assert len(evaluation["countdown"]) == 2

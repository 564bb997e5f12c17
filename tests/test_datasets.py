"""The data sets of the hub, from small files; cells; what is dropped."""

import base64
import copy
import io
import json
import pickle
import zlib
from dataclasses import dataclass, replace

import rlvr.tasks.sources
from rlvr import world
from rlvr.flags.config import Config
from rlvr.tasks.cells import read_question, unpack
from rlvr.tasks.datasets import prepare, read_set, with_golds
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import prompt_lengths
from rlvr.tasks.sources import DATASETS, where_is
from rlvr.verify.answers.boxes import answer_text
from rlvr.verify.pool import grade

import datasets
import pytest
from local_sets import in_order, load, refused, write

# --------------------------------------------------------------- rows as they are on the hub


@dataclass
class Row:
    """A row on the hub, and what is to be read from it."""

    columns: dict
    gold: str = ""
    level: str = ""
    problem: str | None = None  # the first column if None
    images: tuple[bytes, ...] = ()
    programs: tuple[str, ...] = ()  # of a programming problem: a right and a wrong one
    is_read: bool = True

    def __post_init__(self):
        if self.problem is None:
            self.problem = next(iter(self.columns.values()))


STARTER = "class Solution:\n    def double(self, x: int) -> int:\n        "


def programming(columns, level="", starter="", is_read=True):
    """A row with a task to double a number, from standard input or by a function.

    The wrong program passes the first test alone, which is to double 1.
    """
    question = next(iter(columns.values()))
    task = "Read from standard input and write to standard output."
    program = "```python\nx = int(input())\nprint({})\n```"
    if starter:
        task = f"Complete this code:\n```python\n{starter}\n```"
        program = f"```python\n{starter}return {{}}\n```"
    programs = program.format("2 * x"), program.format("2")
    return Row(columns, "", level, f"{question}\n\n{task}", (), programs, is_read)


def taco(question, difficulty, starter="", **tests):
    """A row of TACO, whose tests are JSON: of standard input, or of a function."""
    columns = dict(question=question, input_output=json.dumps(tests), starter_code=starter)
    return programming(columns | dict(difficulty=difficulty), difficulty, starter)


def human_eval():
    """A row of HumanEval: the head of a function behind a helper, and the definition of a check."""
    head = "\ndef half(x: int) -> int:\n    return x // 2\n\n\n"
    head += 'def double(x: int) -> int:\n    """ Twice x\n    >>> double(1)\n    2\n    """\n'
    test = "\n\ndef check(candidate):\n    assert candidate(1) == 2\n"
    test += "    assert half(candidate(4)) == 4\n"
    ends = ("2 * x", "2\n\n\ndef half(x):\n    return 4")  # the check has a helper of its own
    programs = tuple(f"```python\n{head}    return {end}\n```" for end in ends)
    asked = f"Complete this function:\n```python\n{head}\n```"
    return Row(dict(prompt=head, test=test, entry_point="double"), "", "", asked, (), programs)


def livecodebench(question, difficulty, date, starter="", packed=True, is_read=True):
    """A row of LiveCodeBench: AtCoder's by standard input, LeetCode's by a function's name."""
    kind = "functional" if starter else "stdin"
    private = json.dumps([dict(input="5", output="10", testtype=kind)])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    columns = dict(
        question_content=question,
        starter_code=starter,
        public_test_cases=json.dumps([dict(input="1", output="2", testtype=kind)]),
        private_test_cases=private,
        metadata=json.dumps(dict(func_name="double") if starter else {}),
        difficulty=difficulty,
        contest_date=date,
    )
    return programming(columns, difficulty, starter, is_read)


def text(question, answer, gold, level="", names=("question", "answer", "level")):
    """A row of mathematics, in columns of these names."""
    columns = dict(zip(names, (question, answer, level), strict=True))
    return Row(columns, gold, str(level))


def figure(question, answer, image):
    """A row of Geometry3K, whose images are a list, as the hub's files have them."""
    columns = dict(problem=question, answer=answer, images=[dict(bytes=image, path="0.png")])
    return Row(columns, answer, images=(image,))


def arc(question, labels, label, letter):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    choices = dict(text=["24 h", "7 h"], label=[*labels])
    columns = dict(question=question, choices=choices, answerKey=label)
    return Row(columns, letter, problem=f"{question}\nA. 24 h\nB. 7 h")


SOLUTION = ("problem", "solution", "level")
ANSWER = ("problem", "answer", "level")
IN_TEN_LINES = "Which?\nA. k\nB. l\nC. m\nD. n\nE. o\nF. p\nG. q\nH. r\nI. s\nJ. t"
MMLU_PRO = dict(question="Which?", answer="J", options=[*"klmnopqrst"], category="law")
ROOTS = dict(question="Roots?", final_answer=["$3$", "$-1$"], solution=["1"])
# Of each data set and split: its rows.
ROWS = {
    ("gsm8k", "train"): [text("How many?", "48/2 = <<48/2=24>>24.\nIn all 72.\n#### 72", "72")],
    ("gsm8k", "test"): [
        text("How much is left?", "It is 210,000.\n#### 210,000", "210,000"),
        text("What change?", "It is 2 - 7 = <<2-7=-5>>-5.\n#### -5", "-5"),
    ],
    ("math", "train"): [
        text("Half?", r"Not $\boxed{1}$, but $\boxed{x^{2}}$.", "x^{2}", "Level ?", SOLUTION)
    ],
    ("math", "test"): [text("Which?", r"It is $\boxed{\{1,2\}}$.", r"\{1,2\}", "3", SOLUTION)],
    ("math500", "test"): [text("Degrees?", r"90^\circ", r"90^\circ", 1, ANSWER)],
    ("open-rs", "train"): [text("Root?", r"\sqrt{2}", r"\sqrt{2}", "Hard", ANSWER)],
    ("aime24", "train"): [text("Torus?", "033", "33", names=ANSWER)],
    ("aime25", "test"): [text("Bases?", "70", "70", names=ANSWER)],
    ("amc23", "test"): [text("Below?", -1.0, "-1")],
    ("minerva", "test"): [text("Redshift?", "4.5e33", "4.5e33")],
    ("olympiadbench", "test"): [Row(ROOTS, "$3$, $-1$")],
    ("arc", "test"): [arc("Day?", "AB", "A", "A"), arc("Bed?", "12", "2", "B")],
    ("mmlu-pro", "test"): [Row(MMLU_PRO, "J", "law", IN_TEN_LINES)],
    ("taco", "train"): [taco("Double a.", "EASY", inputs=["1\n", "5\n"], outputs=["2\n", "10\n"])],
    ("taco", "test"): [
        taco("Double c.", "MEDIUM", inputs=["1\n", "3\n"], outputs=["2\n", "6\n"]),
        taco("Double d.", "EASY", STARTER, fn_name="double", inputs=[[1], [5]], outputs=[2, 10]),
    ],
    ("human-eval", "test"): [human_eval()],
    ("livecodebench-v5", "test"): [
        livecodebench("Double, please.", "easy", "2023-08-21T00:00:00"),
        livecodebench("Double it.", "hard", "2024-10-05T00:00:00", STARTER),
        livecodebench("Double!", "medium", "2025-01-04T00:00:00", packed=False),
    ],
    ("livecodebench-v6", "test"): [
        livecodebench("Double it.", "hard", "2024-08-01T00:00:00", STARTER),
        livecodebench("Double!", "hard", "2024-07-31T23:59:59", is_read=False),
    ],
    ("geo3k", "train"): [figure("<image>Find x.", "\\frac{5}{2}", b"1")],
    ("geo3k", "test"): [figure("<image>Find z.", "10 \\sqrt { 3 }", b"3")],
}


def rows_of(name):
    """Split -> its rows, of a data set."""
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}


# ------------------------------------------------------------------------- what is read from them


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """A hub that knows only the sets that a test puts on it; local files load as ever.

    hub(name, split=columns, ...) puts a set there, with other rows for some splits.
    """
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    stored = {}  # path -> what load_dataset is told
    monkeypatch.setattr(
        rlvr.tasks.sources, "where_is", lambda source: stored.get(source.path) or where_is(source)
    )

    def put(name, **other_splits):
        splits = {split: [row.columns for row in rows] for split, rows in rows_of(name).items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.parquet", rows)
            for split, rows in (splits | other_splits).items()
        }
        stored[DATASETS[name].path] = dict(path="parquet", data_files=files)

    return put


def expected(name, split):
    """The problems of a split, in order; the gold of programming problems is left out."""
    return in_order(
        Problem(row.problem, row.gold, DATASETS[name].verifier, row.level, row.images)
        for row in rows_of(name).get(split, [])
        if row.is_read
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


def test_where_a_set_is(monkeypatch):
    """On the hub, or in some of the files that it has there. The tests have no network."""
    assert where_is(DATASETS["gsm8k"]) == dict(path="openai/gsm8k", name="main")
    files = where_is(DATASETS["taco"])["data_files"]
    assert files["test"] == "hf://datasets/BAAI/TACO/ALL/test-*.parquet"
    no_answer = ["cannot load the data set gsm8k: the hub does not", "countdown"]
    refused(no_answer, read_set, "gsm8k", Config())

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
    told = f" problems; dropped {len(values)} whose answer the verifier does not take\n"
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
    assert "2 empty or over 43 tokens, 1 whose answer" in told and ": 2 of 5 problems" in told
    tokenizer.chat_template = "{% if messages[0]['content'] == '9' %}9{% endif %}"
    assert len(prepare("own", problems[:2], config, tokenizer)) == 1  # the other prompt is empty
    lengths = [1 + i % 7 for i in range(2500)]  # they are encoded in parts
    problems = [Problem("9" * length, "7") for length in lengths]
    assert prompt_lengths(problems, tokenizer) == lengths


def test_nothing_dropped_nothing_printed_and_nothing_left(hub, tiny, capsys, monkeypatch):
    hub(
        "gsm8k", test=[dict(question="Left?", answer="#### 7"), dict(question="?", answer="#### 8")]
    )
    load(tiny[1], dataset="gsm8k")
    assert capsys.readouterr().out == ""
    parts = ["gsm8k", "0 of ", "over 3 tokens", "--max_prompt_length"]
    refused(parts, load, tiny[1], dataset="gsm8k", system_prompt="boxed", max_prompt_length=3)
    hub("math500")
    refused(["math500", "--eval_dataset"], load, tiny[1], dataset="math500")  # it only evaluates
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    refused(["gsm8k has 2 problems to evaluate on, fewer"], load, tiny[1], dataset="gsm8k")


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

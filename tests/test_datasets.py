"""The data sets of the hub, from small files; cells; what is dropped."""

import base64
import copy
import io
import json
import pickle
import zlib
from dataclasses import dataclass, replace
from unittest.mock import Mock

import rlvr.tasks.prompts
from rlvr import world
from rlvr.flags.config import Config
from rlvr.tasks.cells import read_question, unpack
from rlvr.tasks.datasets import prepare, read_set, with_golds
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import prompt_lengths, that_fit
from rlvr.tasks.sources import DATASETS
from rlvr.verify.answers.boxes import answer_text
from rlvr.verify.pool import grade
from rlvr.verify.programs.isolation import describe

import datasets
import pytest
from local_sets import in_order, load, refused, write


@dataclass
class Row:
    """A row on the hub, and what is to be read from it."""

    columns: dict
    gold: str
    level: str = ""
    problem: str | None = None  # the first column if None
    images: tuple[bytes, ...] = ()
    is_read: bool = True

    def __post_init__(self):
        if self.problem is None:
            self.problem = next(iter(self.columns.values()))


def asked(question, starter):
    """A programming problem as the policy reads it."""
    if starter:
        return f"{question}\n\nComplete this code:\n```python\n{starter}\n```"
    return f"{question}\n\nRead from standard input and write to standard output."


def taco(question, difficulty, tests, starter=""):
    """A row of TACO, whose tests are JSON: of standard input, or of a function."""
    columns = dict(question=question, input_output=json.dumps(tests), starter_code=starter)
    columns["difficulty"] = difficulty
    return Row(columns, json.dumps(tests), difficulty, asked(question, starter))


def livecodebench(question, difficulty, date, name=None, packed=True, is_read=True):
    """A row of LiveCodeBench: AtCoder's by standard input, LeetCode's by a function's name."""
    starter = f"def {name}(x):" if name else ""
    public, private = (dict(input=text, output="2", testtype="stdin") for text in "15")
    tests = [each | dict(fn_name=name) for each in (public, private)]
    private = json.dumps([private])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    columns = dict(
        question_content=question,
        starter_code=starter,
        public_test_cases=json.dumps([public]),
        private_test_cases=private,
        metadata=json.dumps(dict(func_name=name) if name else {}),
        difficulty=difficulty,
        contest_date=date,
    )
    return Row(columns, json.dumps(tests), difficulty, asked(question, starter), (), is_read)


def text(question, answer, gold, level="", names=("question", "answer", "level")):
    """A row of mathematics, in columns of these names."""
    columns = dict(zip(names, (question, answer, level), strict=True))
    return Row(columns, gold, str(level or ""))


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
IN_THREE_LINES = "Which?\nA. k\nB. l\nC. m"
# HumanEval: the head of a function behind a helper, and the definition of a check
HELPER = "\n# for def double()\ndef half(x: int) -> int:\n    return x // 2\n\n\n"
HEAD = f'{HELPER}def double(x: int) -> int:\n    """ Twice x\n    >>> double(1)\n    2\n    """\n'
CHECK = "\n\ndef check(candidate):\n    assert half(candidate(4)) == 4\n"
TESTS = json.dumps(dict(head=HEAD, assertions=f"{HELPER}\n{CHECK}\ncheck(double)"))
HUMAN_EVAL = dict(prompt=HEAD, test=CHECK, entry_point="double")
COMPLETE = f"Complete this function:\n```python\n{HEAD}\n```"
OF_INPUT = dict(inputs=["1\n", "5\n"], outputs=["2\n", "10\n"])
OF_CALLS = dict(fn_name="double", inputs=[[1], [5]], outputs=[2, 10])
MMLU_PRO = dict(question="Which?", answer="C", options=[*"klm"], category="law")
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
    ("open-rs", "train"): [text("Root?", r"\sqrt{2}", r"\sqrt{2}", None, ANSWER)],
    ("aime24", "train"): [text("Torus?", "033", "33", names=ANSWER)],
    ("aime25", "test"): [text("Bases?", "70", "70", names=ANSWER)],
    ("amc23", "test"): [text("Below?", -1.0, "-1")],
    ("minerva", "test"): [text("Redshift?", "4.5e33", "4.5e33")],
    ("olympiadbench", "test"): [Row(ROOTS, "$3$, $-1$")],
    ("arc", "test"): [arc("Day?", "AB", "A", "A"), arc("Bed?", "12", "2", "B")],
    ("mmlu-pro", "test"): [Row(MMLU_PRO, "C", "law", IN_THREE_LINES)],
    ("taco", "train"): [taco("Double a.", "EASY", OF_INPUT)],
    ("taco", "test"): [
        taco("Double c.", "MEDIUM", OF_INPUT),
        taco("Double d.", "EASY", OF_CALLS, "class Solution:\n    def double(self, x):"),
    ],
    ("human-eval", "test"): [Row(HUMAN_EVAL, TESTS, problem=COMPLETE)],
    ("livecodebench-v5", "test"): [
        livecodebench("Double, please.", "easy", "2023-08-21T00:00:00"),
        livecodebench("Double it.", "hard", "2024-10-05T00:00:00", "double"),
        livecodebench("Double!", "medium", "2025-01-04T00:00:00", packed=False),
    ],
    ("livecodebench-v6", "test"): [
        livecodebench("Double it.", "hard", "2024-08-01T00:00:00", "double"),
        livecodebench("Double!", "hard", "2024-07-31T23:59:59", is_read=False),
    ],
    ("geo3k", "train"): [figure("<image>Find x.", "\\frac{5}{2}", b"1")],
    ("geo3k", "test"): [figure("<image>Find z.", "10 \\sqrt { 3 }", b"3")],
}


def rows_of(name):
    """Split -> its rows, of a data set."""
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """hub(name, split=columns, ...): a set's rows in files, with other rows for some splits."""

    def put(name, **other_splits):
        splits = {split: [row.columns for row in rows] for split, rows in rows_of(name).items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.parquet", rows)
            for split, rows in (splits | other_splits).items()
        }
        local = replace(DATASETS[name], path="parquet", configuration=None, files=files)
        monkeypatch.setitem(DATASETS, name, local)

    return put


def expected(name, split):
    """The problems of a split, in order."""
    return in_order(
        Problem(row.problem, row.gold, DATASETS[name].verifier, row.level, row.images)
        for row in rows_of(name).get(split, [])
        if row.is_read
    )


@pytest.mark.parametrize("name", DATASETS)
def test_problems_of_a_set(hub, name):
    """Problem, gold, verifier, level and images, from the right split."""
    hub(name)
    training, evaluation = read_set(name, Config(dataset=name, eval_problems=0))
    assert with_golds(name, evaluation) == evaluation
    assert in_order(training) == expected(name, "none" if name == "aime24" else "train")
    assert in_order(evaluation) == expected(name, [*rows_of(name)][-1])


@pytest.mark.parametrize("end, reward", [("2 * x", 1.0), ("2\ndef half(x):\n    return 4", 0.0)])
def test_the_check_of_human_eval_has_helpers_of_its_own(end, reward):
    assert grade(("code", f"```python\n{HEAD}    return {end}\n```", TESTS)) == (reward, "")


def test_where_a_set_is(tmp_path, monkeypatch):
    """On the hub, or in some of the files that it has there, but in no folder of its name."""
    (tmp_path / "gsm8k").mkdir()
    monkeypatch.chdir(tmp_path)  # the tests have no network
    no_answer = ["cannot load the data set gsm8k: the hub does not", "countdown"]
    refused(no_answer, read_set, "gsm8k", Config())

    def load_dataset(path, configuration, data_files):
        raise RuntimeError(f"{path}\n{configuration}\n{(data_files or {}).get('test')}")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    refused([": openai/gsm8k main None"], read_set, "gsm8k", Config())
    files = "parquet None hf://datasets/BAAI/TACO/ALL/test-*.parquet"
    refused([files], read_set, "taco", Config())


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
    assert "2 empty or over 43 tokens, 1 whose answer" in told and ": 2 of 5 problems" in told
    tokenizer.chat_template = "{% if messages[0]['content'] == '9' %}9{% endif %}"
    assert len(prepare("own", problems[:2], config, tokenizer)) == 1  # the other prompt is empty
    lengths = [1 + i % 7 for i in range(2500)]  # they are encoded in parts
    assert prompt_lengths([Problem("9" * length, "7") for length in lengths], tokenizer) == lengths
    encode = Mock(return_value=[])
    monkeypatch.setattr(rlvr.tasks.prompts, "prompt_lengths", encode)
    that_fit([Problem("9é", "7")], 5, tokenizer)  # three bytes, and two special tokens at most
    assert encode.call_args.args == ([], tokenizer)
    with pytest.raises(ValueError):  # for the prompt that was to be encoded
        that_fit([Problem("9é", "7")], 4, tokenizer)


def test_too_few_problems_are_refused(hub, tiny, capsys, monkeypatch):
    questions = [dict(question="Left?", answer="#### 7"), dict(question="?", answer="#### 8")]
    hub("gsm8k", test=questions)
    load(tiny[1], dataset="gsm8k")
    assert capsys.readouterr().out == ""  # nothing is dropped
    parts = ["gsm8k", "0 of ", "over 3 tokens", "--max_prompt_length"]
    refused(parts, load, tiny[1], dataset="gsm8k", system_prompt="boxed", max_prompt_length=3)
    hub("math500")
    refused(["math500", "--eval_dataset"], load, tiny[1], dataset="math500")  # it only evaluates
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    refused(["gsm8k has 2 problems to evaluate on, fewer"], load, tiny[1], dataset="gsm8k")


def test_the_sandbox_of_programs_is_told(hub, tiny, capsys):
    """If any of the sets has them."""
    hub("taco")
    hub("gsm8k")
    load(tiny[1], dataset="gsm8k", eval_dataset="gsm8k,taco")
    assert describe() in capsys.readouterr().out


ASKED = dict(role="user", content="What?")


NO_QUESTIONS = (None, "", " ", 7, [], ["What?"], [dict(content="What?")])
NO_QUESTIONS += ([ASKED | dict(role="system")], [ASKED | dict(content=None)])
NO_ANSWERS = (None, float("nan"), True, {"value": "0"}, ["1", {"value": "0"}], ["1", ["2"]])


@pytest.mark.parametrize(
    "read, cell, expected",
    [
        (read_question, " What?\n", " What?\n"),
        # other keys, which parquet fills with None where one message has them, say nothing
        (read_question, [ASKED | dict(tool_calls=None)], (("user", "What?"),)),
        *((read_question, cell, "") for cell in NO_QUESTIONS),
        (answer_text, 27.0, "27"),
        (answer_text, 1e16, "10000000000000000"),
        (answer_text, 1e-5, "0.00001"),
        (answer_text, 0.1 + 0.2, "0.3"),
        (answer_text, 2**70, "1180591620717411303424"),
        (answer_text, "027.0", "27"),
        (answer_text, "9007199254740993.0", "9007199254740993"),  # a float would round it
        (answer_text, "1,000", "1,000"),
        (answer_text, ["1", "2"], "1, 2"),
        (answer_text, r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (answer_text, r"so \boxed{1} or \boxed{\frac{1}{2}}", r"1, \frac{1}{2}"),
        *((answer_text, cell, "") for cell in NO_ANSWERS),
    ],
)
def test_what_a_cell_says(read, cell, expected):
    assert read(cell) == expected


class Trap:
    """What would run a function when it is unpickled."""

    def __reduce__(self):
        return io.open, ("trap", "w")


def test_private_tests_run_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpack(base64.b64encode(zlib.compress(pickle.dumps(Trap()))).decode())
    assert not [*tmp_path.iterdir()]

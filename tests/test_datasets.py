"""Data sets of the hub, in small files, and the user's own: what is read, dropped and refused."""

import base64
import json
import pickle
import random
import re
import zlib
from dataclasses import replace
from decimal import Decimal
from unittest.mock import Mock, call

from rlvr.flags.config import Config
from rlvr.tasks.cells import read_question, unpack
from rlvr.tasks.datasets import prepare, read_set, with_golds, without_overlap
from rlvr.tasks.files import rows_of as rows_of_table
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import prompt_lengths, that_fit
from rlvr.tasks.sources import DATASETS
from rlvr.verify.answers import answer_text
from rlvr.verify.pool import grade
from rlvr.verify.programs.isolation import describe
from rlvr.verify.verifiers import BOXED, VERIFIERS

import datasets
import numpy
import pyarrow
import pytest
from local_sets import evaluated, in_order, load, own, prompts_of, refused, write


def row(columns, gold, level="", problem=None):
    """The columns of a row on the hub, and what is to be read from it: by default the first one."""
    return columns, Problem(problem or next(iter(columns.values())), gold, "", level)


def asked(question, starter):
    if starter:
        return f"{question}\n\nComplete this code:\n```python\n{starter}\n```"
    return f"{question}\n\nRead from standard input and write to standard output."


def taco(question, difficulty, tests, starter=""):
    """A row of TACO, whose tests are JSON: of standard input, or of a function."""
    columns = dict(question=question, input_output=json.dumps(tests), starter_code=starter)
    columns["difficulty"] = difficulty
    return row(columns, json.dumps(tests), difficulty, asked(question, starter))


def livecodebench(question, difficulty, date, name=None, packed=True):
    """A row of LiveCodeBench: AtCoder's by standard input, LeetCode's by a function's name."""
    starter = f"def {name}(x):" if name else ""
    public, private = (dict(input=text, output="2", testtype="stdin") for text in "15")
    tests = [each | dict(fn_name=name) for each in (public, private)]
    private = json.dumps([private])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    columns = dict(question_content=question, starter_code=starter, difficulty=difficulty)
    columns |= dict(public_test_cases=json.dumps([public]), private_test_cases=private)
    columns |= dict(metadata=json.dumps(dict(func_name=name) if name else {}), contest_date=date)
    return row(columns, json.dumps(tests), difficulty, asked(question, starter))


def text(question, answer, gold, level="", names=("question", "answer", "level")):
    return row(dict(zip(names, (question, answer, level), strict=True)), gold, str(level or ""))


def arc(question, labels, label, letter):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    choices = dict(text=["24 h", "7 h"], label=[*labels])
    columns = dict(question=question, choices=choices, answerKey=label)
    return row(columns, letter, problem=f"{question}\nA. 24 h\nB. 7 h")


SOLUTION = ("problem", "solution", "level")
ANSWER = ("problem", "answer", "level")
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
    ("olympiadbench", "test"): [row(ROOTS, "$3$, $-1$")],
    ("arc", "test"): [arc("Day?", "AB", "A", "A"), arc("Bed?", "12", "2", "B")],
    ("mmlu-pro", "test"): [row(MMLU_PRO, "C", "law", "Which?\nA. k\nB. l\nC. m")],
    ("taco", "train"): [taco("Double a.", "EASY", OF_INPUT)],
    ("taco", "test"): [
        taco("Double c.", "MEDIUM", OF_INPUT),
        taco("Double d.", "EASY", OF_CALLS, "class Solution:\n    def double(self, x):"),
    ],
    ("human-eval", "test"): [row(HUMAN_EVAL, TESTS, problem=COMPLETE)],
    ("livecodebench-v5", "test"): [
        livecodebench("Double, please.", "easy", "2023-08-21T00:00:00"),
        livecodebench("Double it.", "hard", "2024-10-05T00:00:00", "double"),
        livecodebench("Double!", "medium", "2025-01-04T00:00:00", packed=False),
    ],
    ("livecodebench-v6", "test"): [
        livecodebench("Double it.", "hard", "2024-08-01T00:00:00", "double"),
        (livecodebench("Double!", "hard", "2024-07-31T23:59:59")[0], None),  # too early
    ],
}
VERIFIED = {"gsm8k": "number", "arc": "choice", "mmlu-pro": "choice", "taco": "code"}
VERIFIED |= dict.fromkeys(("human-eval", "livecodebench-v5", "livecodebench-v6"), "code")


def rows_of(name):
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """hub(name, split=columns, ...): a set's rows in files, with other rows for some splits."""

    def put(name, **other_splits):
        splits = {split: [each for each, _ in rows] for split, rows in rows_of(name).items()}
        files = {
            split: write(tmp_path / "hub" / name / f"{split}.parquet", rows)
            for split, rows in (splits | other_splits).items()
        }
        local = replace(DATASETS[name], path="parquet", configuration=None, files=files)
        monkeypatch.setitem(DATASETS, name, local)

    return put


def expected(name, split):
    found = [problem for _, problem in rows_of(name).get(split, []) if problem]
    return in_order(replace(problem, verifier=VERIFIED.get(name, "math")) for problem in found)


@pytest.mark.parametrize("name", DATASETS)
def test_problems_of_a_set(hub, name):
    """Problem, gold, verifier and level, from the right split."""
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
    (tmp_path / "parquet").mkdir()
    monkeypatch.chdir(tmp_path)
    not_in_the_cache = ["cannot load the data set gsm8k: Couldn't reach", "the hub, take countdown"]
    refused(not_in_the_cache, read_set, "gsm8k", Config())
    damaged = Mock(side_effect=datasets.exceptions.DatasetGenerationError("no rows"))
    monkeypatch.setattr(datasets, "load_dataset", damaged)
    for name in ("gsm8k", "taco"):
        refused([f"cannot load the data set {name}: no rows"], read_set, name, Config())
    files = {split: f"hf://datasets/BAAI/TACO/ALL/{split}-*.parquet" for split in ("train", "test")}
    asked = [call("openai/gsm8k", "main", data_files=None), call("parquet", None, data_files=files)]
    assert damaged.call_args_list == asked


UNREADABLE = dict(number=["no hashes", "####", "#### 1 or 2"], last_number=["v2"])
UNREADABLE |= dict(math=[r"A $\boxed{}$.", r"none: \boxed{\text{", [""]], choice=["A or B"])


@pytest.mark.parametrize("verifier, cells", UNREADABLE.items())
def test_unreadable_gold_is_dropped(verifier, cells):
    problems = [Problem("Left?", VERIFIERS[verifier].gold(cell), verifier) for cell in cells]
    assert with_golds("own", problems) == []


def test_long_prompts_are_dropped(tokenizer, capsys, monkeypatch):
    """In tokens, here characters, with all that the template adds; the longest allowed stays."""
    tokenizer.chat_template = "{{ messages[0]['content'] }}:::"
    problems = [Problem("9" * length, "7", "number") for length in (1, 40, 41, 400)]
    config = Config(system_prompt="none", max_prompt_length=43)
    kept = prepare("own", problems, config, tokenizer)
    assert [problem.prompt.count("9") for problem in kept] == [1, 40]
    told = "own: 2 of 4 problems; dropped 2 empty or over 43 tokens\n"
    assert capsys.readouterr().out == told
    tokenizer.chat_template = "{% if messages[0]['content'] == '9' %}9{% endif %}"
    assert len(prepare("own", problems[:2], config, tokenizer)) == 1  # the other prompt is empty
    lengths = [1 + i % 7 for i in range(2500)]  # they are encoded in parts
    assert prompt_lengths([Problem("9" * length, "7") for length in lengths], tokenizer) == lengths
    monkeypatch.setattr("rlvr.tasks.prompts.prompt_lengths", lambda left, _: [99] * len(left))
    short = [Problem("9é", "7")]  # three bytes, and two special tokens at most
    assert (that_fit(short, 5, tokenizer), that_fit(short, 4, tokenizer)) == (short, [])


def test_too_few_problems_are_refused(hub, tiny, capsys, monkeypatch):
    questions = [dict(question="Left?", answer="#### 7"), dict(question="?", answer="#### 8")]
    hub("gsm8k", test=questions)
    load(tiny[1], dataset="gsm8k")
    assert capsys.readouterr().out == ""  # nothing is dropped
    parts = ["gsm8k", "0 of ", "over 3 tokens", "--max_prompt_length"]
    refused(parts, load, tiny[1], dataset="gsm8k", system_prompt="boxed", max_prompt_length=3)
    hub("math500")
    refused(["math500", "--eval_dataset"], load, tiny[1], dataset="math500")  # it only evaluates
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 4)
    refused(["gsm8k has 2 problems to evaluate on, fewer"], load, tiny[1], dataset="gsm8k")


def test_the_sandbox_of_programs_is_told(hub, tiny, capsys):
    hub("taco")
    hub("gsm8k")
    for dataset, evaluated_on in (("gsm8k", "gsm8k,taco"), ("taco", "gsm8k")):
        load(tiny[1], dataset=dataset, eval_dataset=evaluated_on)
        assert describe() in capsys.readouterr().out


ASKED = dict(role="user", content="What?")
IN_PARTS = [ASKED | dict(content=[dict(type="text", text="A?")] * 2)]
NO_QUESTIONS = (None, "", " ", 7, [], ["What?"], [dict(content="What?")])
# half of a surrogate pair, which JSON can hold, and no encoding
NO_QUESTIONS += ("\ud83d 1+1=", [ASKED | dict(content="\ud83d")])
NO_QUESTIONS += ([ASKED | dict(content=None)], [ASKED | dict(content=[dict(type="image")])])
NO_ANSWERS = (None, float("nan"), True, {"value": "0"}, ["1", {"value": "0"}], ["1", ["2"]])
DEEP = '[{"a":' * 10**5  # more than a JSON parser follows
NO_COUNTDOWN = ("3 9 5", "a b : 3", ": 3", "3 : ", "3.5 2 : 7", "٣ 9 : 5", None, 48)


@pytest.mark.parametrize(
    "read, cell, expected",
    [
        (read_question, " What?\n", " What?\n"),
        # other keys, which parquet fills with None where one message has them, say nothing
        (read_question, [ASKED | dict(tool_calls=None)], (("user", "What?"),)),
        (read_question, json.dumps([ASKED]), (("user", "What?"),)),
        (read_question, '\n[ {"content": "What?", "role": "user"} ]', (("user", "What?"),)),
        *((read_question, cell, cell) for cell in ('[{"role" is no JSON', '[{"a": 1}, 2]', DEEP)),
        (read_question, IN_PARTS, (("user", "A?A?"),)),
        *((read_question, cell, "") for cell in NO_QUESTIONS),
        (answer_text, 27.0, "27"),
        (answer_text, 1e-5, "0.00001"),
        (answer_text, 0.1 + 0.2, "0.3"),
        (answer_text, Decimal("0.10"), "0.10"),
        (answer_text, 2**70, "1180591620717411303424"),
        (answer_text, "027.00", "27"),
        (answer_text, "9007199254740993.0", "9007199254740993"),  # a float would round it
        (answer_text, ["1", "2"], "1, 2"),
        (answer_text, r"\boxed{1}, no: \boxed{\sqrt{2}}.", r"\sqrt{2}"),
        (answer_text, r"\boxed1 \qquad \boxed2 \text{ and } \boxed3 or \boxed4", "1, 2, 3, 4"),
        *((answer_text, cell, "") for cell in NO_ANSWERS),
        *((VERIFIERS["countdown"].gold, cell, cell) for cell in ("3 9 5 : 48 ", "\n3:3")),
        *((VERIFIERS["countdown"].gold, cell, "") for cell in NO_COUNTDOWN),
    ],
)
def test_what_a_cell_says(read, cell, expected):
    assert read(cell) == expected


def test_private_tests_run_nothing(tmp_path):
    """Unpickling this one would open a file to write into."""
    trap = f"cio\nopen\n(V{tmp_path}/trap\nVw\ntR."
    unpack(base64.b64encode(zlib.compress(trap.encode())).decode())
    assert not [*tmp_path.iterdir()]


# --------------------------------------------------------------------------- data of the user's own

OWN = "".join(json.dumps(row) + "\n" for row in own("abcdefgh"))
WHAT_IS_READ = (".jsonl, .json, .csv (UTF-8) or .parquet", "a folder", "not empty")
NO_ANSWER = "no column 'answer'; it has 'prompt', 'gold'; --columns names those to read"


def put(folder, place, content):
    """Write a file, or one in a folder of its own -> the name of the data set."""
    write(folder / place, content)
    return str(folder / place.split("/")[0])


@pytest.mark.parametrize(
    "file, content, parts",
    [
        ("own.csv", "prompt,answer\nGröße?,7\n".encode("latin-1"), WHAT_IS_READ),
        ("own.txt", OWN.encode(), ("of another kind", *WHAT_IS_READ)),
        ("own.json", b"", ("or empty", *WHAT_IS_READ)),
        ("own.json", b"[7]", ("a row is not an object", *WHAT_IS_READ)),
        ("own.jsonl", OWN.encode() + b'{"prompt": "b", "ans', ("line 9: Un", *WHAT_IS_READ)),
        ("own.parquet", b"no parquet", WHAT_IS_READ),
        ("own.jsonl", re.sub('"[a-h]"', '""', OWN).encode(), ("8 without a q", "--columns")),
        ("own.jsonl", OWN.replace('"7"', '"?"').encode(), ("8 whose answer", "--columns")),
        ("own.jsonl", OWN.replace("answer", "gold").encode(), (NO_ANSWER,)),
        ("own.csv", b"prompt,answer\n", ("it has no rows", *WHAT_IS_READ)),
        ("own.csv", b"prompt,answer,answer\na,1,2\n", ("twice", *WHAT_IS_READ)),
        ("own.jsonl", b'{"prompt": "a", "answer": 1, "answer": 2}', ("line 1", "twice")),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(tmp_path, tiny, file, content, parts):
    name = put(tmp_path, file, content)
    refused((name, *parts), load, tiny[1], dataset=name, verifier="number")


@pytest.mark.parametrize("place", ["own.parquet", "own.json", "own.csv", "own/train.jsonl"])
def test_a_training_split_holds_out_problems(tmp_path, tiny, place):
    """The same ones for each seed. They are not trained on even where the file has them twice."""
    name = put(tmp_path, place, own("abcdefgghh"))
    training, evaluation = load(tiny[1], dataset=name, eval_problems=3)
    random.Random(0).shuffle(order := [*"abcdefgghh"])
    assert [problem.prompt for problem in evaluation[name]] == order[:3]
    assert prompts_of(training) == {*"abcdefgh"} - prompts_of(evaluation[name])
    assert load(tiny[1], dataset=name, eval_problems=3, seed=1) == (training, evaluation)
    for count in (0, 99):  # all of them
        assert len(evaluated(tiny[1], name, eval_problems=count)) == 10
    told = "no problem to train on except the 10 that are evaluated"
    refused([told], load, tiny[1], dataset=name, eval_problems=0)


@pytest.mark.parametrize(
    "kind, split", [("jsonl", "test"), ("parquet", "test"), ("csv", "validation")]
)
def test_folders_of_two_splits(tmp_path, tiny, kind, split):
    """Some rows, or one split alone, have further columns, which are not read."""
    more = [dict(row, level=3, notes="long") for row in own("bc")]
    training = own("a") + (more if kind == "jsonl" else [])
    put(tmp_path, f"both/train.{kind}", training)
    name = put(tmp_path, f"both/{split}.{kind}", more)
    training, evaluation = load(tiny[1], dataset=name)
    assert in_order(training) == [Problem("a", "7", "math")]
    assert in_order(evaluation[name]) == [Problem(text, "7", "math") for text in "bc"]
    assert read_set(name, Config(dataset=name, max_steps=0))[0] == []  # it would take its time
    put(tmp_path, f"both/{split}.{kind}", [dict(row, answer="") for row in more])  # all hidden
    training, _ = load(tiny[1], dataset=name, eval_dataset="countdown")
    assert "a" in prompts_of(training)


def test_columns_of_any_name(tmp_path, tiny):
    """Also with blanks, as people write headers, and with dots, as verl nests its columns."""
    row = {"my question": "Why?", "label": OF_INPUT, "level": 0}  # not read unless it is named
    file = write(tmp_path / "g[1]*.parquet", [row])  # no pattern, though it looks like one
    config = Config(verifier="code", eval_problems=0, columns="my question,label")
    assert read_set(file, config)[1] == [Problem("Why?", json.dumps(OF_INPUT), "code")]
    config.columns += ",level"
    assert read_set(file, config)[1] == [Problem("Why?", json.dumps(OF_INPUT), "code", "0")]
    file = write(tmp_path / "own.csv", b"prompt , answer\na,7\n")
    assert prompts_of(evaluated(tiny[1], file, columns="prompt, answer")) == {"a"}
    rows = [dict(prompt=[ASKED], reward_model=dict(ground_truth="7", style="rule"))]
    nested = "prompt,reward_model.ground_truth"
    for suffix in ("parquet", "jsonl"):
        file = write(tmp_path / f"verl.{suffix}", rows)
        (problem,) = read_set(file, Config(columns=nested, eval_problems=0, dataset="countdown"))[1]
        assert (problem.prompt, problem.gold) == ((("user", "What?"),), "7")


def rows_with(answers):
    return [dict(prompt="Why?", answer=answer) for answer in answers]


# as they are written: an empty cell makes no floats of a column's integers, and NA is an answer
TEXTS = ["12345678901234567", "", "NA", "1e5", "0.10", "long " * 30_000 + "text", "1\r\n2"]
# which no column of one type holds
INTEGERS = [str(2**64 + 1), str(2**64 + 2), str(2**53 + 1)]
LINES = [f'{{"prompt": "Why\u2028?", "answer": {digits}}}' for digits in INTEGERS]
FLOATS = numpy.array([0.1, 2.5, 7], dtype="float32")  # 0.1 is 0.10000000149011612 there


@pytest.mark.parametrize(
    "place, content, golds",
    [
        ("own.csv", rows_with(TEXTS + INTEGERS), TEXTS + INTEGERS),
        ("own.jsonl", "\n".join(["\ufeff ", *LINES]).encode(), INTEGERS),
        ("own.json", f"\n[{','.join(LINES)}]".encode(), INTEGERS),
        ("own.parquet", rows_with(FLOATS), ["0.1", "2.5", "7"]),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_cells_are_read_as_they_are_written(tmp_path, place, content, golds):
    name = put(tmp_path, place, content)
    problems = read_set(name, Config(verifier="number", eval_problems=0))[1]
    assert {problem.gold for problem in problems} == {*golds} - {""}


def test_numbers_of_few_bits_are_read_as_they_are_written():
    kind = pyarrow.struct(dict(a=pyarrow.list_(pyarrow.float16()), b=pyarrow.string()))
    cells = [dict(a=[0.1, None], b="0.10"), None]
    table = pyarrow.table([pyarrow.array(cells, kind)], names=["answer"])
    assert rows_of_table(table) == [dict(answer=cell) for cell in cells]


def test_rows_that_cannot_be_used_are_dropped_and_counted(tmp_path, tiny, capsys):
    """A comma without quotes would move the answer. A byte order mark says nothing."""
    text = '\ufeffprompt,answer\na,7\nb, or c?,7\nd\n\n"e, f",7\n'
    file = write(tmp_path / "own.csv", text.encode())
    assert prompts_of(evaluated(tiny[1], file)) == {"a", "e, f"}
    told = capsys.readouterr().out
    assert "2 of 4 problems; dropped 1 without a question, 1 without a readable answer" in told
    file = write(tmp_path / "own.json", own("abcde") + own([""] * 25))  # four are evaluated
    assert [len(part) for part in load(tiny[1], dataset=file, eval_problems=4)] == [1, 1]
    assert ": 5 of 30 problems; dropped 25 without a question\n" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_conversational_prompts(tmp_path, tokenizer, suffix, capsys):
    """As TRL has them. One with a system prompt keeps it."""
    system, user = dict(role="system", content="Be brief."), dict(role="user", content="What?")
    answer = dict(role="assistant", content="1!")
    asked = [user], [system, user], [user | dict(content="1?"), answer, user], [], [user, answer]
    file = write(tmp_path / f"own.{suffix}", [dict(prompt=turns, answer="7") for turns in asked])
    by_lines = {"What?", "Be brief.\nWhat?\n", "1?\n1!\nWhat?\n"}  # without a template
    assert prompts_of(evaluated(tokenizer, file)) == by_lines
    told = "3 of 5 problems; dropped 1 without a question, 1 whose last message is not the user's\n"
    assert told in capsys.readouterr().out
    turn = "[{{ m['role'] }}: {{ m['content'] }}]"
    tokenizer.chat_template = "{% for m in messages %}" + turn + "{% endfor %}"
    helpful, asked = "[system: You are a helpful assistant.]", f"[user: What?\n{BOXED}]"
    flags = dict(system_prompt="assistant", user_suffix="boxed")
    assert prompts_of(evaluated(tokenizer, file, **flags)) == {
        f"{helpful}{asked}",
        f"[system: Be brief.]{asked}",
        f"{helpful}[user: 1?][assistant: 1!]{asked}",
    }


def test_rows_of_evaluation_sets_are_not_trained_on(tmp_path, tiny, capsys):
    """None of their rows; and nothing is held out for an evaluation that is not made."""
    train = write(tmp_path / "train.jsonl", own("abcdefgh"))
    ax, ghij, z = (write(tmp_path / f"{x}.jsonl", own(x)) for x in ("ax", "ghij", "z"))
    for evaluated_on, kept in (([z], {*"abcdefgh"}), ([ax, ghij, z], {*"bcdef"})):
        flags = dict(dataset=train, eval_dataset=",".join(evaluated_on), eval_problems=1)
        training, evaluation = load(tiny[1], **flags)
        assert prompts_of(training) == kept
        assert [len(problems) for problems in evaluation.values()] == [1] * len(evaluated_on)
    told = capsys.readouterr().out
    assert told.count(f"{train}: 3 of 8 problems are only evaluated\n") == 1
    training, _ = load(tiny[1], dataset=train, eval_dataset=f"{z},{train}", eval_problems=1)
    assert len(training) == 7
    assert load(tiny[1], dataset="no.jsonl", eval_dataset=z, max_steps=0)[0] == []  # not read


@pytest.mark.parametrize(
    "text",
    [
        " what IS\n1\u00a0+  2? ",
        "Ｗhat is 1 + ２?",  # full-width letters and digits
        (("system", "Add."), ("user", "What is 1 + 2?")),  # no part of the question
    ],
)
def test_texts_that_differ_in_spaces_case_or_form(text):
    asked, same = Problem("What is 1 + 2?", "7"), Problem(text, "8")
    answered = (("user", "Hi!"), ("assistant", "Yes?"), ("user", asked.prompt))
    others = [Problem("1 - 2?", "7"), Problem(answered, "7")]
    assert without_overlap("a", [asked, *others], [same]) == others
    assert without_overlap("a", [same, *others], [asked]) == others

"""Rows of data sets as they are on the hub, and what is to be read from them."""

import base64
import json
import pickle
import zlib
from dataclasses import dataclass


@dataclass
class Row:
    """A row on the hub, and what is to be read from it."""

    columns: dict
    gold: str | tuple[str, ...] = ""
    level: str = ""
    problem: str | None = None  # the first column if None
    images: tuple[bytes, ...] = ()
    programs: tuple[str, ...] = ()  # of a programming problem: a right and a wrong one

    def __post_init__(self):
        if self.problem is None:
            self.problem = next(iter(self.columns.values()))


STARTER = "class Solution:\n    def double(self, x: int) -> int:\n        "


def programming(columns, level="", starter=""):
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
    return Row(columns, level=level, problem=f"{question}\n\n{task}", programs=programs)


def code_contests(description):
    """A row of CodeContests, whose tests stand in three columns."""
    tests = dict(
        public_tests=dict(input=["1\n"], output=["2\n"]),
        private_tests=dict(input=[], output=[]),
        generated_tests=dict(input=["5\n", "0\n"], output=["10\n", "0\n"]),
    )
    return programming(dict(description=description, **tests))


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


def livecodebench(question, difficulty, date, starter="", packed=True):
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
    return programming(columns, difficulty, starter)


def text(question, answer, gold, level="", names=("question", "answer", "level")):
    """A row of mathematics, in columns of these names."""
    columns = dict(zip(names, (question, answer, level), strict=True))
    return Row(columns, gold, str(level))


def stored(image):
    """An image as the hub's files have it."""
    return dict(bytes=image, path="0.png")


def figure(question, answer, image):
    """A row of Geometry3K, whose images are a list."""
    columns = dict(problem=question, answer=answer, images=[stored(image)])
    return Row(columns, answer, images=(image,))


def arc(question, labels, label, letter):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    choices = dict(text=["24 h", "7 h"], label=[*labels])
    columns = dict(question=question, choices=choices, answerKey=label)
    return Row(columns, letter, problem=f"{question}\nA. 24 h\nB. 7 h")


def math_vision(question, answer, options, level, image, gold, asked):
    """A row of MathVision, whose options may be none."""
    columns = dict(question=question, answer=answer, options=options, level=level)
    return Row(columns | dict(decoded_image=stored(image)), gold, str(level), asked, (image,))


def math_verse(question, answer, version, image, asked):
    """A row of MathVerse, whose question may stand in the image alone."""
    columns = dict(question=question, answer=answer, problem_version=version, image=stored(image))
    return Row(columns, answer, version, asked, (image,))


def pmc_vqa(question, label, choices, image):
    """A row of PMC-VQA, whose choices may begin with their letters."""
    names = [f"choice {letter}" for letter in "abcd"]
    columns = dict(question=question, image=stored(image)) | dict(zip(names, choices, strict=True))
    asked = f"{question}\nA. Liver\nB. Heart\nC. Lung\nD. Eye"
    return Row(columns | {"answer label": label}, label, problem=asked, images=(image,))


SOLUTION = ("problem", "solution", "level")
ANSWER = ("problem", "answer", "level")
IN_TEN_LINES = "Which?\nA. k\nB. l\nC. m\nD. n\nE. o\nF. p\nG. q\nH. r\nI. s\nJ. t"
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
    ("olympiadbench", "test"): [
        Row(dict(question="Roots?", final_answer=["$3$", "$-1$"], solution=["1"]), "$3$, $-1$")
    ],
    ("arc", "test"): [arc("Day?", "AB", "A", "A"), arc("Bed?", "12", "2", "B")],
    ("mmlu-pro", "test"): [
        Row(
            dict(question="Which?", answer="J", options=[*"klmnopqrst"], category="law"),
            **dict(gold="J", level="law", problem=IN_TEN_LINES),
        )
    ],
    ("code-contests", "train"): [code_contests("Double one.")],
    ("code-contests", "test"): [code_contests("Double four.")],
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
    ],
    ("geo3k", "train"): [figure("<image>Find x.", "\\frac{5}{2}", b"1")],
    ("geo3k", "test"): [figure("<image>Find z.", "10 \\sqrt { 3 }", b"3")],
    ("mathvision", "test"): [
        math_vision("How many?", "13", [], 2, b"1", "13", "How many?"),
        math_vision("Area?", "B", ["12", "15"], 5, b"3", ("B", "15"), "Area?\nA. 12\nB. 15"),
    ],
    ("mathverse", "testmini"): [
        math_verse("Angle?\nA:45\nB:60", "B", "Text", b"1", "Angle?\nA:45\nB:60"),
        math_verse("", "C", "Vision", b"3", "Answer the question that stands in the image."),
    ],
    ("pmc-vqa", "train"): [
        pmc_vqa("Organ?", "B", (" A:Liver", " B:Heart ", "C:Lung", "D: Eye"), b"1")
    ],
    ("pmc-vqa", "test"): [pmc_vqa("Where?", "A", ("Liver", "Heart", "Lung", "Eye"), b"2")],
}


def rows_of(name):
    """Split -> its rows, of a data set."""
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}

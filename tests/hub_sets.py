"""Rows of the data sets of the hub, in their real columns, and what is to be read from them."""

import base64
import json
import pickle
import zlib
from dataclasses import dataclass


@dataclass
class Row:
    """The values of a row on the hub, and what is to be read from it."""

    values: tuple  # in the order of the set's columns
    gold: str | tuple[str, ...] | None = None  # the second value if None
    level: str = ""
    problem: str | None = None  # the first value if None
    images: tuple[bytes, ...] = ()
    programs: tuple[str, ...] = ()  # a right and a wrong one, of a programming problem

    def __post_init__(self):
        self.problem = self.values[0] if self.problem is None else self.problem
        self.gold = self.values[1] if self.gold is None else self.gold


STARTER = "class Solution:\n    def double(self, x: int) -> int:\n        "


def programming(values, tests, starter="", level=""):
    """A row with a task to double a number, from standard input or by a function."""
    task = "Read from standard input and write to standard output."
    program = "```python\nprint({} * int(input()))\n```"
    if starter:
        task = f"Complete this code:\n```python\n{starter}\n```"
        program = f"```python\n{starter}return {{}} * x\n```"
    programs = program.format(2), program.format(3)
    return Row(values, json.dumps(tests), level, f"{values[0]}\n\n{task}", programs=programs)


def code_contests(description):
    """A row of CodeContests, whose tests stand in three columns."""
    public, private = dict(input=["1\n"], output=["2\n"]), dict(input=[], output=[])
    generated = dict(input=["5\n", "0\n"], output=["10\n", "0\n"])
    solutions = dict(language=[3], solution=["print(2 * int(input()))"])
    tests = dict(inputs=["1\n", "5\n", "0\n"], outputs=["2\n", "10\n", "0\n"])
    return programming((description, public, private, generated, solutions, 7), tests)


def taco(question, difficulty, starter="", **tests):
    """A row of TACO, whose tests are JSON: of standard input, or of a function."""
    values = (question, json.dumps(tests), starter, difficulty, json.dumps(["print(1)"]))
    return programming(values, tests, starter, difficulty)


def human_eval(name):
    """A row of HumanEval: the head of a function, and the definition of a check."""
    head = f'\ndef {name}(x: int) -> int:\n    """ Twice x\n    >>> {name}(1)\n    2\n    """\n'
    test = "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(4) == 8\n"
    programs = tuple(f"```python\n{head}    return {n} * x\n```" for n in (2, 3))
    gold = json.dumps(dict(head=head, assertions=f"{test}\ncheck({name})"))
    asked = f"Complete this function:\n```python\n{head}\n```"
    return Row((head, test, name, "    return 2 * x\n"), gold, "", asked, programs=programs)


def livecodebench(question, difficulty, date, function=False, packed=True):
    """A row of LiveCodeBench: AtCoder's by standard input, LeetCode's by a function's name."""
    kind, starter = ("functional", STARTER) if function else ("stdin", "")
    public = json.dumps([dict(input="1", output="2", testtype=kind)])
    private = json.dumps([dict(input="5", output="10", testtype=kind)])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    metadata = json.dumps(dict(func_name="double") if function else {})
    name = "double" if function else None
    tests = [
        dict(input=given, output=wanted, testtype=kind, fn_name=name)
        for given, wanted in (("1", "2"), ("5", "10"))
    ]
    values = (question, starter, public, private, metadata, difficulty, date)
    return programming(values, tests, starter, difficulty)


def pictured(*values, **more):
    """A row whose last value is an image, as the hub's files have it."""
    image = values[-1]
    return Row((*values[:-1], dict(bytes=image, path="0.png")), images=(image,), **more)


def arc(question, options, labels, label, **more):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    return Row((question, label, dict(text=options, label=labels)), **more)


def figure(question, answer, image):
    """A row of Geometry3K, whose images are a list."""
    return Row((question, answer, [dict(bytes=image, path="0.png")]), images=(image,))


IN_TEN_LINES = "Which?\nA. k\nB. l\nC. m\nD. n\nE. o\nF. p\nG. q\nH. r\nI. s\nJ. t"
IN_THE_IMAGE = "Answer the question that stands in the image."
LIVECODEBENCH = (
    "question_content, starter_code, public_test_cases, private_test_cases, metadata, difficulty, "
    "contest_date"
)
# Of each data set and split: its rows.
ROWS = {
    ("gsm8k", "train"): [Row(("How many?", "48/2 = <<48/2=24>>24.\nIn all 72.\n#### 72"), "72")],
    ("gsm8k", "test"): [
        Row(("How much is left?", "It is 210,000.\n#### 210,000"), "210,000"),
        Row(("What change?", "It is 2 - 7 = <<2-7=-5>>-5.\n#### -5"), "-5"),
    ],
    ("math", "train"): [
        Row(("Half?", r"Not $\boxed{1}$, but $\boxed{x^{2}}$.", "Level ?", "0"), "x^{2}", "Level ?")
    ],
    ("math", "test"): [
        Row(("Which?", r"It is $\boxed{\{1,2\}}$.", "Level 3", "0"), r"\{1,2\}", "Level 3")
    ],
    ("math500", "test"): [Row(("Degrees?", r"90^\circ", 1, r"\boxed{0}"), level="1")],
    ("open-rs", "train"): [Row(("Root?", r"\sqrt{2}", "Hard", "0"), level="Hard")],
    ("aime24", "train"): [Row(("Torus?", "033", 61, r"\boxed{1}"), "33")],
    ("aime25", "test"): [Row(("Bases?", "70", "0"))],
    ("amc23", "test"): [Row(("Below?", -1.0, 2), "-1")],
    ("minerva", "test"): [Row(("Redshift?", "4.5e33"))],
    ("olympiadbench", "test"): [Row(("Roots?", ["$3$", "$-1$"], ["1"]), "$3$, $-1$")],
    ("arc", "test"): [
        arc("Day?", ["24 h", "7 h"], [*"AB"], "A", gold="A", problem="Day?\nA. 24 h\nB. 7 h"),
        arc("Moon?", ["a", "b", "c"], [*"123"], "3", gold="C", problem="Moon?\nA. a\nB. b\nC. c"),
    ],
    ("mmlu-pro", "test"): [
        Row(("Which?", "J", [*"klmnopqrst"], 9, "law"), level="law", problem=IN_TEN_LINES)
    ],
    ("code-contests", "train"): [code_contests("Double one.")],
    ("code-contests", "test"): [code_contests("Double four.")],
    ("taco", "train"): [taco("Double a.", "EASY", inputs=["1\n", "5\n"], outputs=["2\n", "10\n"])],
    ("taco", "test"): [
        taco("Double c.", "MEDIUM", inputs=["3\n"], outputs=["6\n"]),
        taco("Double d.", "EASY", STARTER, fn_name="double", inputs=[[5]], outputs=[10]),
    ],
    ("human-eval", "test"): [human_eval("double")],
    ("livecodebench-v5", "test"): [
        livecodebench("Double, please.", "easy", "2023-08-21T00:00:00"),
        livecodebench("Double it.", "hard", "2024-10-05T00:00:00", function=True),
        livecodebench("Double!", "medium", "2025-01-04T00:00:00", packed=False),
    ],
    ("livecodebench-v6", "test"): [
        livecodebench("Double it.", "hard", "2024-08-01T00:00:00", function=True),
    ],
    ("geo3k", "train"): [figure("<image>Find x.", "\\frac{5}{2}", b"1")],
    ("geo3k", "test"): [figure("<image>Find z.", "10 \\sqrt { 3 }", b"3")],
    ("mathvision", "test"): [
        pictured("How many?", "13", [], 2, "4.jpg", b"1", level="2"),
        pictured("Which?", "B", [*"AB"], 1, "4.jpg", b"2", level="1", problem="Which?\nA. A\nB. B"),
        pictured(
            *("Area?", "B", ["12", "15"], 5, "4.jpg", b"3"),
            **dict(gold=("B", "15"), level="5", problem="Area?\nA. 12\nB. 15"),
        ),
    ],
    ("mathverse", "testmini"): [
        pictured("Angle?\nA:45\nB:60", "B", "Text", b"1", level="Text"),
        pictured("", "C", "Vision", b"3", level="Vision", problem=IN_THE_IMAGE),
    ],
    ("pmc-vqa", "train"): [
        pictured(
            *("Organ?", "B", " A:Liver", " B:Heart ", "C:Lung", "D: Eye", "Heart", b"1"),
            problem="Organ?\nA. Liver\nB. Heart\nC. Lung\nD. Eye",
        )
    ],
    ("pmc-vqa", "test"): [
        pictured(
            *("Method?", "A", "CT", "MRI", "X-ray", "Eye", "CT", b"2"),
            problem="Method?\nA. CT\nB. MRI\nC. X-ray\nD. Eye",
        )
    ],
}
# Of each data set: its columns on the hub, the split to train on, and the split to evaluate on.
SETS = {
    "gsm8k": ("question, answer", "train", "test"),
    "math": ("problem, solution, level, type", "train", "test"),
    "math500": ("problem, answer, level, solution", None, "test"),
    "open-rs": ("problem, answer, level, solution", "train", None),
    "aime24": ("problem, answer, id, solution", None, "train"),
    "aime25": ("problem, answer, id", None, "test"),
    "amc23": ("question, answer, id", None, "test"),
    "minerva": ("question, answer", None, "test"),
    "olympiadbench": ("question, final_answer, solution", None, "test"),
    "arc": ("question, answerKey, choices", None, "test"),
    "mmlu-pro": ("question, answer, options, answer_index, category", None, "test"),
    "code-contests": (
        "description, public_tests, private_tests, generated_tests, solutions, difficulty",
        "train",
        "test",
    ),
    "taco": ("question, input_output, starter_code, difficulty, solutions", "train", "test"),
    "human-eval": ("prompt, test, entry_point, canonical_solution", None, "test"),
    "livecodebench-v5": (LIVECODEBENCH, None, "test"),
    "livecodebench-v6": (LIVECODEBENCH, None, "test"),
    "geo3k": ("problem, answer, images", "train", "test"),
    "mathvision": ("question, answer, options, level, image, decoded_image", None, "test"),
    "mathverse": ("question, answer, problem_version, image", None, "testmini"),
    "pmc-vqa": (
        "question, answer label, choice a, choice b, choice c, choice d, answer, image",
        "train",
        "test",
    ),
}


def columns_of(name, rows):
    """The rows of a data set as they are on the hub."""
    names = SETS[name][0].split(", ")
    return [dict(zip(names, row.values, strict=True)) for row in rows]


def rows_of(name):
    """Split -> its rows, of a data set."""
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}

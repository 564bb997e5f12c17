"""Rows of the data sets of the hub, in their real columns, and what is to be read from them."""

import base64
import json
import pickle
import zlib
from dataclasses import dataclass, field


@dataclass
class Row:
    """The values of a row on the hub, what is to be read from it, and an answer that is wrong."""

    values: tuple  # in the order of the set's columns
    gold: str | tuple[str, ...] | None = None  # the second value if None
    level: str = ""
    wrong: str = "12345"
    right: str = ""  # an answer; the gold itself if empty
    problem: str | None = None  # the first value if None
    images: tuple[bytes, ...] = ()
    columns: dict = field(default_factory=dict)

    def name_columns(self, names: str):
        """Fill in what the set's columns settle."""
        self.columns = dict(zip(names.split(", "), self.values, strict=True))
        self.problem = self.values[0] if self.problem is None else self.problem
        self.gold = self.values[1] if self.gold is None else self.gold


def lettered(question, options):
    """What a policy is asked."""
    lines = [f"{letter}. {text}" for letter, text in zip("ABCDEFGHIJ", options, strict=False)]
    return "\n".join([question, *lines])


def mmlu_pro(question, options, index, category, wrong):
    """A row of MMLU-Pro, with up to ten options."""
    values = (question, "ABCDEFGHIJ"[index], options, index, category)
    return Row(values, None, category, wrong, problem=lettered(question, options))


def arc(question, options, labels, label, gold, wrong):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    values = (question, label, dict(text=options, label=labels))
    return Row(values, gold, wrong=wrong, problem=lettered(question, options))


DOUBLE, TRIPLE = (f"```python\nprint({n} * int(input()))\n```" for n in (2, 3))
STARTER = "class Solution:\n    def double(self, x: int) -> int:\n        "
DOUBLE_FUNCTION, TRIPLE_FUNCTION = (f"```python\n{STARTER}return {n} * x\n```" for n in (2, 3))


def programming(values, tests, starter="", level=""):
    """A row with a task to double a number, from standard input or by a function."""
    task = f"Complete this code:\n```python\n{starter}\n```"
    if not starter:
        task = "Read from standard input and write to standard output."
    right, wrong = (DOUBLE_FUNCTION, TRIPLE_FUNCTION) if starter else (DOUBLE, TRIPLE)
    return Row(values, json.dumps(tests), level, wrong, right, f"{values[0]}\n\n{task}")


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
    right, wrong = (f"```python\n{head}    return {n} * x\n```" for n in (2, 3))
    gold = json.dumps(dict(head=head, assertions=f"{test}\ncheck({name})"))
    asked = f"Complete this function:\n```python\n{head}\n```"
    return Row((head, test, name, "    return 2 * x\n"), gold, "", wrong, right, asked)


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


IN_THE_IMAGE = "Answer the question that stands in the image."


def pictured(values, image, gold=None, **more):
    """A row with an image, which is the last value: as the hub's files have it."""
    stored = dict(bytes=image, path="0.png")
    return Row((*values, stored), gold, images=(image,), **more)


def mathvision(question, options, answer, level, gold, wrong, image):
    """A row of MathVision, some of whose answers are letters of options."""
    right = "" if isinstance(gold, str) else f"\\boxed{{{answer}}}"
    asked = lettered(question, options)
    values = (question, answer, options, level, "images/4.jpg")
    return pictured(values, image, gold, level=str(level), wrong=wrong, right=right, problem=asked)


def pmc_vqa(question, choices, label, wrong, image):
    """A row of PMC-VQA, some of whose choices begin with their letters."""
    values = (question, label, *choices, choices["ABCD".index(label)])
    texts = [choice.rpartition(":")[2].strip() for choice in choices]
    return pictured(values, image, problem=lettered(question, texts), wrong=wrong)


def figure(question, answer, image):
    """A row of Geometry3K, whose images are a list."""
    return Row((question, answer, [dict(bytes=image, path="0.png")]), images=(image,))


def math(question, solution, level, gold, wrong):
    """A row of MATH, whose gold answer stands in the last box of the solution."""
    return Row((question, solution, level, "Algebra"), gold, level, wrong)


# Of each data set and split: its rows.
ROWS = {
    ("gsm8k", "train"): [
        Row(("How many clips?", "In May: 48/2 = <<48/2=24>>24.\nIn all 72.\n#### 72"), "72"),
    ],
    ("gsm8k", "test"): [
        Row(("How much is left?", "It is 210,000.\n#### 210,000"), "210,000"),
        Row(("What change?", "It is 2 - 7 = <<2-7=-5>>-5.\n#### -5"), "-5"),
    ],
    ("math", "train"): [
        math(
            "Half?", r"So $\boxed{1}/2$ is $\boxed{\frac{1}{2}}$.", "Level 1", r"\frac{1}{2}", "1"
        ),
        math("$f$?", r"It is \[\boxed{x^{2}+1}.\]", "Level ?", "x^{2}+1", "x^{2}-1"),
    ],
    ("math", "test"): [
        math("Which set?", r"It is $\boxed{\{1,2\}}$.", "Level 3", r"\{1,2\}", r"\{1,3\}"),
        math("$x$?", r"Hence $\boxed{x \in [-2,7]}$", "Level 5", r"x \in [-2,7]", "[-2,6]"),
    ],
    ("math500", "test"): [
        Row(("Polar?", r"\left(3, \frac{\pi}{2}\right)", 2, "0"), None, "2", r"(2, \frac{\pi}{2})"),
        Row(("Degrees?", r"90^\circ", 1, r"\boxed{0}"), level="1", wrong=r"60^\circ"),
    ],
    ("open-rs", "train"): [
        Row(("Range?", r"(-\infty, 3)", "Hard", "0"), None, "Hard", r"(-\infty, 4)"),
        Row(("Root?", r"\sqrt{2}", "Hard", "0"), level="Hard", wrong="2"),
    ],
    ("aime24", "train"): [
        Row(("Torus?", "033", 61, r"\boxed{1}"), "33"),
        Row(("Least?", "005", 62, r"\boxed{1}"), "5"),
    ],
    ("aime25", "test"): [Row(("Bases?", "70", "0")), Row(("Area?", "588", "1"))],
    ("amc23", "test"): [
        Row(("Digits?", 0.5, 1), "0.5"),
        Row(("Below?", -1.0, 2), "-1"),
    ],
    ("minerva", "test"): [
        Row(("Refraction?", r"\arcsin{1.3 \sin{\theta}}"), wrong=r"\arcsin{1.4 \sin{\theta}}"),
        Row(("Redshift?", "4.5e33"), wrong="4.5e32"),
    ],
    ("olympiadbench", "test"): [
        Row(("Ratio?", [r"$\frac{1}{2}$"], ["1"]), r"$\frac{1}{2}$", wrong=r"\frac{1}{3}"),
        Row(("Roots?", ["$3$", "$-1$"], ["1"]), "$3$, $-1$", wrong="3"),
    ],
    ("arc", "train"): [arc("Heat?", ["ice", "fire"], ["A", "B"], "B", gold="B", wrong="A")],
    ("arc", "test"): [
        arc("Day?", ["24 h", "7 h"], ["A", "B"], "A", gold="A", wrong="B"),
        arc("Moon?", ["a", "b", "c", "d"], [*"1234"], "3", gold="C", wrong="D"),
    ],
    ("mmlu-pro", "validation"): [mmlu_pro("Why?", ["x", "y"], 0, "law", wrong="B")],
    ("mmlu-pro", "test"): [
        mmlu_pro("Which?", [f"{i}." for i in range(10)], 9, "business", wrong="A"),
        mmlu_pro("Whose?", ["his", "hers", "its"], 1, "law", wrong="C"),
    ],
    ("code-contests", "train"): [code_contests("Double one.")],
    ("code-contests", "valid"): [code_contests("Double three.")],
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
        livecodebench("Double, please.", "easy", "2024-08-03T00:00:00"),
        livecodebench("Double it.", "hard", "2025-04-05T00:00:00", function=True),
    ],
    ("geo3k", "train"): [figure("<image>Find x.", "\\frac{5}{2}", b"1")],
    ("geo3k", "validation"): [figure("<image>Find y.", "3", b"2")],
    ("geo3k", "test"): [figure("<image>Find z.", "10 \\sqrt { 3 }", b"3")],
    ("mathvision", "test"): [
        mathvision("<image1> How many?", [], "13", 2, "13", "12", b"1"),
        mathvision("<image1> Which?", [*"ABCDE"], "D", 1, "D", "A", b"2"),
        mathvision("<image1> Area?", ["12", "15"], "B", 5, ("B", "15"), r"\boxed{12}", b"3"),
    ],
    ("mathvision", "testmini"): [mathvision("<image1> Not I.", [], "1", 1, "1", "2", b"4")],
    ("mathverse", "testmini"): [
        pictured(("Angle?\nA:45\nB:60", "B", "Text"), b"1", level="Text", wrong="A"),
        pictured(("", "C", "Vision"), b"3", None, level="Vision", wrong="D", problem=IN_THE_IMAGE),
    ],
    ("pmc-vqa", "train"): [
        pmc_vqa(
            "Organ?", [" A:Liver", " B:Heart ", "C:Lung", "D: Eye"], "B", wrong="A", image=b"1"
        ),
    ],
    ("pmc-vqa", "test"): [
        pmc_vqa("Method?", ["CT", "MRI", "X-ray", "Eye"], "A", wrong="C", image=b"2"),
    ],
}
LIVECODEBENCH = (
    "question_content, starter_code, public_test_cases, private_test_cases, metadata, difficulty, "
    "contest_date"
)
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
for (name, _), rows in ROWS.items():
    for row in rows:
        row.name_columns(SETS[name][0])


def rows_of(name):
    """Split -> its rows, of a data set."""
    return {split: rows for (holder, split), rows in ROWS.items() if holder == name}

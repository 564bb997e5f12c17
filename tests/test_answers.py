"""Verifiers of answers: what is right, wrong, or cannot be read, in boxes and in whole texts.

Verifiers are called in this process. tests/test_grader.py asks graders.
"""

import math
import random
import re
import time
from fractions import Fraction

from rlvr.verify.answers.boxes import boxed, find_boxes, last_boxed, last_boxes, verify_choice
from rlvr.verify.answers.expressions import extract_answer, verify_countdown
from rlvr.verify.answers.latex import plain, split
from rlvr.verify.answers.mathematics import clean, is_name, verify_math
from rlvr.verify.answers.numbers import (
    LARGEST,
    digits,
    is_too_large,
    last_number,
    read_number,
    verify_number,
)

import math_verify
import pytest
import sympy
from answers import CHOICE, COUNTDOWN, MATH, NUMBER, answers

ANSWERS = [
    *((verify_math, *row) for row in answers(MATH)),
    *((verify_number, *row) for row in answers(NUMBER)),
    *((verify_choice, *row) for row in answers(CHOICE)),
]


@pytest.mark.parametrize("verify, answer, gold, reward", ANSWERS)
def test_answers(verify, answer, gold, reward):
    assert verify(boxed(answer), gold) == reward


def test_a_blank_tells_a_unit_from_unknowns():
    for answer, gold in [("2 m/h", "2"), ("2m/h", r"\frac{2m}{h}")]:
        assert verify_math(boxed(answer), gold) == 1
    for answer, gold in [("2 m/h", r"\frac{2m}{h}"), ("2m/h", "2")]:
        assert not verify_math(boxed(answer), gold)


# ------------------------------------------------------------------------------------ whole texts

MATH_TEXTS = [
    (r"\boxed{1}, \boxed{2,3}", "1,2,3", 0.0),  # the last box holds an answer of two parts
    ("\\boxed{\\begin{aligned}\nx &= 1 \\\\\ny &= 2\n\\end{aligned}}", "x=1, y=2", 1.0),
    (
        "\\boxed{\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}}",
        r"\begin{pmatrix}1\\2\end{pmatrix}",
        1.0,
    ),
    (r"First \boxed{3}, no, \boxed{5}.", "5", 1.0),
    (r"First \boxed{3}, no, \boxed{5}.", "3", 0.0),
    (r"\boxed{3} \boxed{5}", "3,5", 1.0),
    (r"First \boxed{3}, then \boxed{5}. So \boxed{5} and \boxed{3}.", "3, 5", 1.0),
    (r"\boxed{4} is wrong. It is \boxed{3} or \boxed{5}.", "3, 5", 1.0),
    (r"\boxed{4}, \boxed{3} and \boxed{5}", "3, 5", 0.0),
    (r"\boxed{4} is wrong. It is \boxed{3, 5}.", "3, 5", 1.0),
    (r"\boxed{(2, 2)} \quad \text{and} \quad \boxed{(6, 2)}", "(2, 2), (6, 2)", 1.0),
    (r"(a) \boxed{k = 45}. For the second part we get (b) \boxed{n = 2}", "k=45, n=2", 1.0),
    (r"\boxed{2} or \boxed{-2}", r"\pm 2", 1.0),
    (r"\boxed{2}", r"\pm 2", 0.0),
    (r"\boxed{x = \boxed{5}}", "5", 1.0),
    (r"so $\boxed 5$.", "5", 1.0),
    (r"\boxed{5} is \boxed .", "5", 1.0),
    (r"\boxed{4 \to 5}", "5", None),
    (r"\boxed{2 \circ 5}", "5", None),
    (r"\boxed{The answer is 5}", "5", None),
    (r"\boxed{5}", r"see 4 and the lemma in section 5", None),
    (r"\boxed{5}", r"4 \mho 5 \to 5", None),
    (r"\boxed{1 5}", "15", None),
    (r"\boxed{5 \text{ or 6}}", "5", None),
    (r"\boxed{" + "+1" * 2000 + "}", "4000", None),
    (r"\boxed{\boxed{5}}", "5", 1.0),
    (r"\boxed {5}", "5", 1.0),
    ("\\boxed\n{ 5\n}", "5", 1.0),
    (r"$$\boxed{5}$$", "5", 1.0),
    (r"\boxed{\frac{1}{\sqrt{\frac{4}{1}}}}", "0.5", 1.0),
    (r"} \boxed{5} {", "5", 1.0),
    (r"{ \boxed{5}", "5", 1.0),
    (r"\{ \boxed{\{1,2\}} \{", r"\{2,1\}", 1.0),
    (r"\boxed{5", "5", None),
    (r"\boxed{5\}", "5", None),
    (r"\boxed", "5", None),
    (r"\boxed{\frac{1}{2}", "0.5", None),
    (r"\boxed{4} so \boxed{5", "4", 1.0),
    (r"\boxed{}", "5", None),
    (r"\boxed{ }", "5", None),
    ("", "5", None),
    (r"\boxed{5} \boxed{}", "5", None),
    ("The answer is 5.", "5", None),
    ("<answer>5</answer>", "5", None),
    ("boxed{5}", "5", None),
    (r"答案是 \boxed{5}。", "5", 1.0),
    ("\ud800 \0 \\boxed{5}", "5", 1.0),
    ("word " * 200_000 + r"\boxed{5}", "5", 1.0),
    (r"\boxed{5}" + " word" * 200_000, "5", 1.0),
    (r"\boxed{" * 20_000, "5", None),
    ("{" * 200_000 + r"\boxed{5}", "5", 1.0),
    (r"\boxed{" + "{" * 50_000 + "5" + "}" * 50_000 + "}", "5", None),
    (r"\boxed{" * 10_000 + "5" + "}" * 10_000, "5", None),
    (r"\boxed{6} " * 20_000 + r"\boxed{5}", "5", 1.0),
    (r"\fbox{5}", "5", 1.0),
    (r"\boxed{\$18}", "18", 1.0),
]
NUMBER_TEXTS = [
    (boxed("1" * 41), "1" * 41, None),
    (boxed("9" * 10**6), "9", None),
    (boxed("1" + ",000" * 13), "1" + "0" * 30, None),
    ("#### " + " " * 5000 + "?", "5", None),
    (boxed("a " * 5000 + "?"), "5", None),
    ("so\n#### 18", "18", 1.0),
    ("#### 17\n#### 18", "18", 1.0),
    ("#### $1,800", "1800", 1.0),
    ("#### 17", "18", 0.0),
    ("<answer>18</answer>", "18", 1.0),
    ("<answer> 17 </answer>", "18", 0.0),
    (r"\boxed{18} #### 17", "18", 1.0),
    (r"#### 18 \boxed{17}", "18", 0.0),
    (r"\boxed{17} and \boxed{18}", "18", 1.0),
    (r"\boxed{17} and \boxed{18}", "17", 0.0),
    (r"<answer>17</answer> \boxed{18}", "18", 1.0),
    ("<answer>17</answer> #### 18", "18", 1.0),
    ("It is 18.", "18", None),
    ("", "18", None),
    (r"\boxed{18", "18", None),
    ("####", "18", None),
    ("<answer>18", "18", None),
    ("<answer></answer>", "0", None),
    ("#### **18**", "18", 1.0),
    ("#### 18\n\nLet me know if you have 3 questions.", "18", 1.0),
    ("#### 18. Let me know.", "18", 1.0),
    ("#### 18\n</answer>", "18", 1.0),
    ("#### 18<|im_end|>", "18", 1.0),
    ("####\n18", "18", 1.0),
    ("#### 18 or 19", "18", None),
    ("#### 18, 19", "18", None),
    (r"\boxed{18}", "no number", None),
]
CHOICE_TEXTS = [
    ("<answer>B</answer>", "B", 1.0),
    ("<answer>(C)</answer>", "B", 0.0),
    ("B", "B", None),
    (r"\boxed{A} or \boxed{B}", "B", 1.0),
    (r"\boxed{A} or \boxed{B}", "A", 0.0),
    (r"\boxed{B} <answer>C</answer>", "B", 1.0),
    ("The answer is (B).", "B", None),
]


TEXTS = [
    *((verify_math, *row) for row in MATH_TEXTS),
    *((verify_number, *row) for row in NUMBER_TEXTS),
    *((verify_choice, *row) for row in CHOICE_TEXTS),
]


@pytest.mark.parametrize(
    "verify, text, gold, reward", TEXTS, ids=lambda part: getattr(part, "__name__", str(part)[-50:])
)
def test_where_an_answer_stands(verify, text, gold, reward):
    assert verify(text, gold) == reward


@pytest.mark.parametrize(
    "text, parts, expected",
    [
        (r"\boxed{1}, \boxed{2}", 1, "1, 2"),
        (r"\boxed{1}, no: \boxed{2}", 1, "2"),
        (r"\boxed{1}, no: \boxed{2}", 2, "1, 2"),
        (r"\boxed{1}, no: \boxed{2}", 3, "1, 2"),
        (r"\boxed{2}, no: \boxed{1}. So $\boxed{1}$ and $\boxed{2}$.", 2, "1, 2"),
        ("no box", 2, "NA"),
    ],
)
def test_last_boxes(text, parts, expected):
    assert last_boxes(text, parts) == expected


@pytest.mark.parametrize(
    "read, text, expected",
    [
        (last_boxed, r"\boxed{1} then \boxed{2}", "2"),
        (last_boxed, r"\boxed{\boxed{3}}", "{3}"),
        (last_boxed, r"\boxed{\boxed{1} or \boxed 2}", "{1} or 2"),
        (last_boxed, r"\boxed{\{1\}}", r"\{1\}"),
        (last_boxed, r"\boxed{1} then \boxed{2", "1"),
        (last_boxed, r"\boxed{ }", "NA"),
        (last_boxed, "no box", "NA"),
        (last_number, "5 - 3 = 2, so 2.", "2"),
        (last_number, "It is -1,234.5!", "-1,234.5"),
        (last_number, "from 7-9", "9"),
        (last_number, "The answer is \u22125.", "-5"),  # a minus sign
        (last_number, "It is \u20135", "-5"),  # a dash
        (last_number, "from 7\u20139", "9"),
        (last_number, "about .5", ".5"),
        (last_number, "about -.25!", "-.25"),
        (last_number, "v2", "NA"),
        (last_number, "none", "NA"),
        (read_number, "$1,234.50", Fraction(2469, 2)),
        (read_number, "6/8", Fraction(3, 4)),
        (read_number, "2 or 3", None),
        (extract_answer, "<answer> 3+9 </answer>", "3+9"),
        (extract_answer, "<answer></answer>", ""),
        (extract_answer, "<answer>1", "NA"),
        (extract_answer, "1</answer>", "NA"),
    ],
)
def test_what_is_read(read, text, expected):
    assert read(text) == expected


# -------------------------------------------------------------------------- what changes no verdict

WRAPS = [
    "${}$",
    r"\({}\)",
    r"\[{}\]",
    "\n{}\n",
    "{{{}}}",
    r"\boxed{{{}}}",
    r"\boxed{{${}$}}",
    r"\fbox{{{}}}",
    r"\mathbf{{{}}}",
    r"\textbf{{{}}}",
    r"\boldsymbol{{{}}}",
    "**{}**",
    "{}.",
]
MATH_WRAPS = [*WRAPS, r"\displaystyle {}", r"\color{{red}}{{{}}}", r"\quad {}\,", r"\bf {}", "~{},"]
TOKENS = re.compile(
    r"\\(?:begin|end)\{\w+\}|\\[A-Za-z]+|\\.|[A-Za-z]+|[\d.]+e-?\d+|[\d.,]*\d|\s+|.", re.S
)
PIECES = [
    *r"{ } \boxed{ \boxed{1} \text{ \text{a} \\ \mathbf{ \frac \color{ \left \circ".split(),
    *r"\begin{cases} 1, 1,000 1/ 1 0 x= = x_{ x'( A. (A)or ,or B,and - ^ _".split(),
    *"#### ####5 <answer> </answer>".split(),
    *r"{,} \! ** $ ° *10^ [ ( é ~ / .".split(),
    *["\n", " ", "1 000 ", "1 1/2 ", "a ", "5 apples ", "m^2 ", "sin "],
]


def spaced(rng, text, share):
    """The text with blanks and new lines between its tokens."""
    blanks = "\n", " ", "  ", "\n\n", "\t"
    tokens = TOKENS.findall(text)
    return "".join(part + rng.choice(blanks) * (rng.random() < share) for part in tokens)


# A blank or a brace more changes what these say.
FRAGILE = [
    r"\log_2 8",
    r"\left\{2,1\right\}",
    r"42\text{.}",
    "A. B.",
    "A) B) C)",
    "D) Both A and B",
    "3",
]
ROBUST = [row for row in ANSWERS if row[1] not in FRAGILE]


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(random.Random(0).sample(ROBUST, 40), id="some"),
        pytest.param(ROBUST, id="all", marks=pytest.mark.slow),
    ],
)
def test_blanks_and_wraps_do_not_change_a_verdict(some):
    rng = random.Random(0)
    flipped = []
    for verify, answer, gold, reward in some:
        others = []
        if verify is verify_math:
            others += [(spaced(rng, answer, share), gold) for share in (0.4, 1)]
            others += [(answer, spaced(rng, gold, 0.4))]
        wraps = MATH_WRAPS if verify is verify_math else WRAPS
        others += [(wrap.format(answer), gold) for wrap in wraps]
        flipped += [
            each for each in others if (verify(boxed(each[0]), each[1]) == 1) != (reward == 1)
        ]
    assert flipped == []


@pytest.mark.parametrize(
    "pieces",
    [pytest.param(PIECES[::12], id="some"), pytest.param(PIECES, id="all", marks=pytest.mark.slow)],
)
def test_long_texts_take_no_time(pieces):
    """Nothing here tries many ways to read a text, so repeating one piece is no way to hang it.

    math-verify itself has no such bound; a grader has a deadline for it.
    """
    for piece in pieces:
        for end in ("", "?", "}"):
            long = piece * (20_000 // len(piece)) + end
            short = piece * (1900 // len(piece)) + end
            started = time.process_time()
            for read in (find_boxes, last_number, lambda text: last_boxes(text, 3)):
                read(long)
            for verify, gold in ((verify_number, "5"), (verify_choice, "B")):
                verify(long, gold)
                verify(boxed(long), gold)
                verify(boxed(short), gold)
            for read in (plain, clean, is_name, lambda text: split(text, ",")):
                read(short)
            assert time.process_time() - started < 60, piece + end


# --------------------------------------------------------------------------------------- Countdown

GOLD = "3 9 5 : 48 "


@pytest.mark.parametrize("expression, gold, reward", [*answers(COUNTDOWN)])
def test_countdown(expression, gold, reward):
    assert verify_countdown(f"<think>9*5=45</think><answer>{expression}</answer>", gold) == reward


@pytest.mark.parametrize(
    "text, reward",
    [
        ("3+9*5", 0.0),
        ("", 0.0),
        (r"\boxed{3+9*5}", 0.0),
        ("<answer>3+9*5", 0.0),
        ("3+9*5</answer>", 0.0),
        ("</answer>3+9*5<answer>", 0.0),
        ("<Answer>3+9*5</Answer>", 0.0),
        ("<answer>1</answer><answer>3+9*5</answer>", 1.0),  # the last one counts
        ("<answer>3+9*5</answer><answer>1</answer>", 0.0),
        ("<answer>3+9*5</answer><answer></answer>", 0.0),
        ("<answer>3+9*5</answer><answer>1", 1.0),  # the last complete one
        ("<answer>1<answer>3+9*5</answer>", 1.0),
        ("<think>\n9*5=45\n</think>\n<answer>\n3+9*5\n</answer>\n", 1.0),
        ("<answer>3+<think>9*5</think></answer>", 0.0),
        ("<answer>\t3+9*5\r\n</answer>", 1.0),
        ("<answer> </answer>", 0.0),
        ("<answer>3+\n9*5</answer>", 0.0),
        ("<answer>3\u00a0+9*5</answer>", 0.0),  # no-break space
        (f"<answer>{'(' * 30}3{')' * 30}+9*5</answer>", 1.0),
        # long, deep, huge
        (f"<answer>{'(' * 200}3+9*5{')' * 200}</answer>", 0.0),
        (f"<answer>{'-' * 95}3+9*5</answer>", 0.0),
        (f"<answer>3+9*5{'+0' * 5000}</answer>", 0.0),
        (f"<answer>{'9' * 100}</answer>", 0.0),
        (f"<answer>{'9' * 40}*{'9' * 40}</answer>", 0.0),
        # <answer>(.*?)</answer> as a regular expression takes minutes for the first of these
        ("<answer>" * 125_000, 0.0),
        ("</answer>" * 110_000, 0.0),
        ("<answer></answer>" * 60_000, 0.0),
        (f"<answer>{'(' * 1_000_000}</answer>", 0.0),
    ],
    ids=lambda value: str(value)[:30],
)
def test_where_a_countdown_answer_stands(text, reward):
    assert verify_countdown(text, GOLD) == reward


# ------------------------------------------------------------ what no computer can work out in time

NEVER_WORKED_OUT = [
    "9^{9^{9^{9}}}",
    "(10^{9})!",
    "((((10!)!)!)!)",
    r"\binom{10^{9}}{10^{8}}",
    "123456789^{987654321}",
    "2^{2^{2^{2^{2^{2}}}}}",
    r"\frac{1}{9^{9^{9}}}",
    "(x+1)^{99999}",
    "e^{e^{e^{79}}}",
    r"\prod_{k=1}^{10^9} k",
    r"\{1, 9^{9^{9}}\}",
    r"\sqrt{2}^{\sqrt{2}^{99999999}}",
]


def unevaluated(kind, *arguments):
    return kind(*map(sympy.Integer, arguments), evaluate=False)


@pytest.mark.parametrize(
    "expression, expected",
    [
        (sympy.Integer(1024), 10),
        (sympy.Integer(-8), 3),
        (sympy.Rational(3, 16), 4),
        (sympy.Integer(0), 0),
        (unevaluated(sympy.Pow, 2, 2024), 2024),
        (unevaluated(sympy.Pow, 4, 16), 32),
        (unevaluated(sympy.factorial, 64), 64 * 6),  # 64! < 64^64
        (unevaluated(sympy.binomial, 64, 2), 2 * 6),  # < 64^2
        (unevaluated(sympy.Mul, 8, 16), 7),
    ],
)
def test_digits_by_hand(expression, expected):
    assert digits(expression) == pytest.approx(expected)


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_the_estimate_is_no_less_than_the_digits_of_the_number(n):
    for kind, value in [
        (unevaluated(sympy.factorial, n), math.factorial(n)),
        (unevaluated(sympy.Pow, 7, n), 7**n),
        (unevaluated(sympy.binomial, 2 * n, n), math.comb(2 * n, n)),
    ]:
        assert math.log2(value) <= digits(kind) * (1 + 1e-9)
        assert not is_too_large(kind)


def test_the_limit():
    assert not is_too_large(unevaluated(sympy.Pow, 2, LARGEST - 1))
    assert is_too_large(unevaluated(sympy.Pow, 2, LARGEST + 1))


@pytest.mark.parametrize("answer", NEVER_WORKED_OUT)
def test_a_tower_is_wrong_and_math_verify_is_not_asked(answer, monkeypatch):
    """Most would take longer than anyone waits."""
    monkeypatch.setattr(math_verify, "verify", None)
    assert not verify_math(boxed(answer), "5")


def test_the_same_tower_is_right():
    tower = NEVER_WORKED_OUT[0]
    assert verify_math(boxed(tower), tower) == 1.0
    assert verify_math(boxed(tower), "8^{9^{9^{9}}}") == 0.0


@pytest.mark.parametrize(
    "answer, gold",
    [
        ("2^{2024}", "4^{1012}"),
        (r"2^{2024}+1", r"4^{1012}+1"),
        (r"\sqrt{2} \cdot 2^{2024}", r"\sqrt{2} \cdot 4^{1012}"),
        (r"\binom{100}{50}", r"\frac{100!}{50! \cdot 50!}"),
        (r"\sum_{n=1}^{100} n", "5050"),
        ("(x+1)^{3}", "x^3 + 3x^2 + 3x + 1"),
        (r"\frac{10^{100}-1}{9}", "1" * 100),
    ],
)
def test_large_numbers_are_still_worked_out(answer, gold):
    assert verify_math(boxed(answer), gold) == 1.0

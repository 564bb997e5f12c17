r"""The same answer written in many ways: its verdict stays, and near misses stay wrong.

Verifiers are called in this process. tests/test_answers.py sends rows through graders.
"""

import random
import re
import time

from rlvr.tasks.boxes import boxed, find_boxes, last_boxes
from rlvr.tasks.choices import verify_choice
from rlvr.tasks.latex import plain, split
from rlvr.tasks.mathematics import clean, is_name, verify_math
from rlvr.tasks.numbers import last_number, verify_number

import pytest

GOLDS = {  # gold -> right answers, wrong answers
    "204": (
        [
            # units that begin as the name of a function does, and bare ones
            "204 minutes",
            "204 modules",
            "204 km/h",
            "204 m/s",
            "204 °C",
            r"204^\circ C",
            r"204\degree",
            # the option whose value it is
            r"\textbf{(A) }204",
            r"\text{(B)}\ 204",
            "(A) 204",
            # names with a number
            r"m\angle 1 = 204^\circ",
            r"\angle 2 = 204",
            "m∠1 = 204",
            r"\lfloor 100x \rfloor = 204",
            r"204_{10}",
            # kelvin, which is not a thousand
            r"204\text{ K}",
            r"204\text{ J/(mol K)}",
        ],
        [
            *[
                r"204 \sin x",
                "204 sin x",
                r"204 \max",
                "204_8",
                "(A) 203",
                r"\angle 204 = 3",
                "(A)",
            ],
            *["204 sinx", "204 cosx", "204 sinh x", "204 logx", "204 cosecx", "x = 204_8"],
            *["(A) or 204", "204x/h", r"\sin x + 1 = 204", r"\lfloor x \rfloor + 1 = 204"],
            *[r"\lfloor 2.5 \rfloor x = 204", r"\sin 30^\circ + x = 204", r"\cos 2x \cdot 3 = 204"],
        ],
    ),
    "0": (
        ["2-2", "1 + (-1)", r"\sin\pi", r"\ln 6-\ln 2-\ln 3", r"\frac12-\frac12", "x = 2 - 2"],
        ["2-3", "1e-9", r"\cos\pi"],
    ),
    r"\sin\pi": (["0", "1-1"], ["1", "1e-9"]),
    r"\log 0": ([], ["0", "1"]),
    "204000": ([], [r"204\,\text{K}"]),
    "52_8": (["N = 52_8", "52_{8}", "52"], ["52_7", "x = 52_7", "52_{10}"]),
    "52_8, 13_8": (["13_8, 52_8"], ["52_7, 13_7", "52_8"]),
    "A, C": (["(A) and (C)", r"\text{(A)}, \text{(C)}", "C, A"], ["A", "(C)", "(A) and (D)"]),
    r"(A) \cup (B)": ([], ["A"]),
    "2 sinx": (["2 sin x"], ["2 cosx", "2"]),
    r"\frac13": (
        [
            r"\cos 2\theta = \frac13",
            r"\sin(2A) = \frac13",
            r"\tan 20^\circ = \frac13",
            "0.33333333",
        ],
        [r"\cos 2x = \frac14", "0.333", r"\cos 0 = \frac13", r"\cos 2x + 1 = \frac13"],
    ),
    "3.89e-10": (
        ["3.89e-10", r"3.89 \times 10^{-10}", "0.000000000389", r"3.890 \cdot 10^{-10}"],
        ["0", "0.0", "3.88e-10", "0.000000000255", r"3.89 \times 10^{-11}", "-3.89e-10"],
    ),
    "0.003846": ([r"\frac{1}{260}"], ["0.003848", r"\frac{1}{259}"]),
    "0.0000001": (["1e-7", r"10^{-7}", r"\frac{1}{10^7}"], ["0.0000003", "0", "-0.0000001"]),
    "B": (
        [
            "(B)",
            "B. 30^\\circ",
            "(B) 30",
            r"\textbf{(B) }30",
            r"\text{B. Paris}",
            "Option B",
            "B) 30",
        ],
        ["C", "(C) 30", "A. B", "A or B", "30"],
    ),
    r"\text{(A)}": (["A", "(A)", r"\textbf{(A) } 5"], ["B", "(B) 5"]),
    "5": (
        [
            "5",
            "5.0",
            r"x=5",
            "5=x",
            r"\frac{10}{2}",
            r"5\text{ cm}",
            "5 apples",
            r"2+3=5",
            r"x = 2+3 = 5",
            "f(2)=5",
            r"\text{Area} = 5",
            r"5\%",
            "+5",
            "05",
            "{5}",
            r"|AB| = 5",
            r"S_{\triangle ABC}=5",
            r"\frac{dy}{dx}=5",
            r"\lim_{x\to 0} f(x) = 5",
            r"m\angle A = 5^\circ",
            r"P(A|B)=5",
            r"x^*=5",
            r"\hat{\beta}_1=5",
            r"a+b=5",
            r"3x+2y=5",
            r"A = \frac{1}{2}bh = 5",
            "a_{n+1}=5",
            "f^{-1}(x)=5",
            "f'(x)=5",
            r"\theta = 5",
            r"n = 5.",
            r"5 \text{ units}",
            r"\$5",
            r"5\ \mathrm{m/s}",
            r"5 \text{ m}^2",
            r"x=5 \text{ cm}",
            r"\mathbf{5}",
            r"\text{5}",
            r"5 = 5",
            r"A \cup B = 5",
            r"x \approx 5",
        ],
        [
            "6",
            "-5",
            "x=6",
            "2+2=5",
            "5=6",
            "2x=5",
            "x+1=5",
            "5 or 6",
            r"5 \text{ or } 6",
            "5, 6",
            "-x=5",
            "55",
            r"4 \to 5",
            r"4 \circ 5",
            "5!",
            "5x",
            "5^2",
            r"5\text{ million}",
            "5 million",
            r"\frac15",
            "0.5",
            "x=5=6",
            "x<5",
            r"x \ne 5",
            "5 6",
            "5 1/2",
            r"5\frac12",
            r"4, x=5",
            "1 5",
            r"5 \text{ or 6}",
            r"\{5,6\}",
            "(5,5)",
            "The answer is 5",
            r"5 \pm 1",
            r"\pm 5",
            "5i",
            "5a",
            "five6",
            "5@5",
            "4 | 5",
            r"5 \text{ and } 7",
        ],
    ),
    r"\frac{1}{2}": (
        [
            "0.5",
            "1/2",
            r"\frac12",
            r"\dfrac{1}{2}",
            r"\frac{2}{4}",
            "x=1/2",
            r"\frac 12",
            ".5",
            r"2^{-1}",
            r"\frac{1}{2} = 0.5",
            "½",
            r"P = \frac{3}{6} = \frac{1}{2}",
        ],
        ["2", "1", "1/3", "0.50001", r"\frac{1}{-2}", "1 2", r"1\frac12", "1, 2", r"50\%"],
    ),
    r"\frac{3}{2}": (
        ["1.5", r"1\frac{1}{2}", "1 1/2", "3/2", r"1 \frac12"],
        ["11/2", "1/2", r"\frac{11}{2}", "1"],
    ),
    "1000": (
        [
            "1,000",
            r"1{,}000",
            r"1\,000",
            r"1,\!000",
            "1 000",
            "10^3",
            r"1\times10^{3}",
            "1e3",
            "1000.0",
            r"1 \text{ thousand}",
        ],
        ["1", "100", "1,00", "1, 000, 0", "10000", "0"],
    ),
    "3000000": (
        [r"3 \text{ million}", "3 million", "3,000,000", r"3\times 10^6"],
        ["3", r"3 \text{ billion}", "3000"],
    ),
    "2, -2": (
        [
            r"\pm 2",
            "-2, 2",
            r"2 \text{ or } -2",
            "x=2, x=-2",
            r"x = 2 \text{ or } x=-2",
            r"\{2,-2\}",
            r"x=\pm 2",
            "2 and -2",
            r"x_1 = 2, x_2=-2",
            r"\begin{cases}x_1=2\\x_2=-2\end{cases}",
            "-2; 2",
        ],
        ["2", "-2", "2, -3", "2, -2, 0", r"\pm 3", "4", "(2,-2, 1)"],
    ),
    "(3,2)": (
        [
            r"(x,y)=(3,2)",
            r"\left(3, 2\right)",
            r"(3,\ 2)",
            "(3.0,2)",
            r"x=3, y=2",
            r"(\frac{6}{2},2)",
        ],
        ["(2,3)", "3", "(3,2,1)", "(3,3)", "x=2, y=3"],
    ),
    "x=5": (["5", "x = 5", "5 = x", "x=5.0"], ["6", "x=6", "y=6", "x<5"]),
    "y=2x+1": (["y = 2x+1", "2x+1=y", "y-2x=1", "y=1+2x", "2x+1"], ["y=2x+2", "x=2y+1", "2x+2"]),
    "x^2+1": (
        ["1+x^2", "f(x)=x^2+1", "y = 1+x^2", r"x^{2}+1", "f(x) = x^2+1 = 1+x^2"],
        ["x^2", "x^2-1", "x^2+2", "2x+1", "f(x)=x^2"],
    ),
    r"\text{even}": (
        ["even", r"\text{Even}", "EVEN", r"\mathrm{even}", r"\textbf{even}"],
        ["odd", "veen", r"\text{not even}", "neve", "e"],
    ),
    "silent": (["silent", r"\text{silent}", "Silent"], ["listen", "enlist", "tinsel"]),
    "AB": (["AB", r"\text{AB}"], ["BA", "A", "B"]),
    "no": (["No", r"\text{no}"], ["on", "yes"]),
    "E": (["E", r"\text{E}", "(E)", r"\mathrm{E}"], ["e", "F"]),
    "e": (["e", r"\mathrm{e}"], ["E", "2.718"]),
    "C": (
        ["C", "(C)", r"\text{C}", r"\textbf{(C)}"],
        [
            *["B", "CC", "(A) or (C)", "(A) and (C)", r"\text{(A)}, \text{(C)}", "C OR D"],
            *["C_{12}", "C'BD", "C^2 + x"],
        ],
    ),
    "R": (["R"], [r"\mathbb{R}", "R 12"]),
    "[0,1)": (["[0, 1)", r"\left[0,1\right)", r"x \in [0,1)"], ["[0,1]", "(0,1)", "[0,2)"]),
    "x<3": (["3>x", "x < 3"], ["x>3", r"x \le 3", "3"]),
    r"\begin{pmatrix}1\\2\end{pmatrix}": (
        [r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", "\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}"],
        ["2", "1", r"\begin{pmatrix}2\\1\end{pmatrix}", "1,3"],
    ),
    "2ab": (["2ab", "2ba", "ab2", r"2 \cdot a b"], ["2", "ab", "2a"]),
    "3t": (["3t", r"3 t"], ["3", "t", "3c"]),
    r"\text{Alice}, \text{Bob}": (
        ["Alice, Bob", "Bob and Alice", r"\text{Bob}, \text{Alice}", r"\text{Alice and Bob}"],
        ["Alice", "Alice, Carl", "Bob, Carl"],
    ),
    r"\sqrt{2}": (
        ["√2", r"\sqrt2", r"2^{1/2}", r"x=\sqrt{2}"],
        ["2", "1.414", r"-\sqrt2", r"\pm\sqrt2"],
    ),
    r"6\pi": (
        [r"C = 2\pi r = 6\pi", r"6π", r"6\pi \text{ cm}", r"\pi \cdot 6", r"6\pi meters"],
        ["6", r"\pi", "18.85", r"6\pi^2"],
    ),
    r"\infty": (["∞", "infinity", r"+\infty"], [r"-\infty", "0"]),
    r"\emptyset": ([r"\varnothing", r"\{\}", "∅"], ["0", r"\{0\}"]),
    r"0.\overline{3}": ([r"0.\overline{3}"], ["3", "0.3"]),
    "12:30": (["12:30"], ["12:31", "1:30"]),
}

NUMBERS = {  # gold -> right answers, wrong answers
    "42": (
        [
            *["42.0", "x = 42", "42 km", "$42", "084/2", "$42/day", r"\$42/\text{hour}", "(42)"],
            *["42 T-shirts", "42-year-old", "42 kids'", "42 (eggs)", "42/hr", "42 (km)", "42-ish"],
            *["42 K", "42 J/K", "42K", "42 K gold"],
        ],
        [
            *["41", "-42", "42 million", "42 or 43", "42k", "42 (or 43)", "42-43", "42-and-a-half"],
            *["42/2", "42 - x", "42-x", "42/x", "42(x)", "42-y/z", "42 (a/b)", "42-a-b"],
        ],
    ),
    "70000": (["$70k", "$70K", "70k", "70 thousand", "70,000"], ["70", "70 km", "70 K", "70K"]),
    "1500000": (["$1.5mn", "1.5 mn"], ["1.5 Mn", "1.5", "1.5 bn"]),
    "1.5": ([r"1\frac{1}{2}", "1 1/2", r"\frac{3}{2}", "1.50"], ["11/2", "1", "1.5 million"]),
    "3000000": (["3 million", "3,000,000", r"3 \times 10^{6}"], ["3", "3 billion", "3,000"]),
}
CHOICES = {
    "B": (["(B)", "b", "[B]", "B. Paris", "Option B"], ["C", "(a)", "A or B", "B and C", "A. B."]),
}
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


def verdict(verify, answer, gold):
    """The reward of an answer in a box; 0 where it cannot be read."""
    return verify(boxed(answer), gold) or 0.0


def cases(table):
    """(gold, answer, reward) of a table."""
    for gold, (right, wrong) in table.items():
        yield from ((gold, answer, 1.0) for answer in [gold, *right])
        yield from ((gold, answer, 0.0) for answer in wrong)


ALL = [
    *((verify_math, *case) for case in cases(GOLDS)),
    *((verify_number, *case) for case in cases(NUMBERS)),
    *((verify_choice, *case) for case in cases(CHOICES)),
]


def spaced(rng, text, share):
    """The text with blanks and new lines between its tokens."""
    blanks = "\n", " ", "  ", "\n\n", "\t"
    tokens = TOKENS.findall(text)
    return "".join(part + rng.choice(blanks) * (rng.random() < share) for part in tokens)


@pytest.mark.parametrize("verify, gold, answer, reward", ALL)
def test_right_answers_and_near_misses(verify, gold, answer, reward):
    assert verdict(verify, answer, gold) == reward


def test_a_blank_tells_a_unit_from_unknowns():
    assert verdict(verify_math, "2 m/h", "2") == verdict(verify_math, "2m/h", r"\frac{2m}{h}") == 1
    assert verdict(verify_math, "2 m/h", r"\frac{2m}{h}") == verdict(verify_math, "2m/h", "2") == 0


SOME = random.Random(0).sample(ALL, 40)


@pytest.mark.parametrize(
    "some", [pytest.param(SOME, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.slow)]
)
def test_blanks_and_wraps_do_not_change_a_verdict(some):
    rng = random.Random(0)
    flipped = []
    for verify, gold, answer, reward in some:
        others = []
        if verify is verify_math:
            others += [(spaced(rng, answer, share), gold) for share in (0.4, 1)]
            others += [(answer, spaced(rng, gold, 0.4))]
        wraps = MATH_WRAPS if verify is verify_math else WRAPS
        others += [(wrap.format(answer), gold) for wrap in wraps]
        flipped += [each for each in others if verdict(verify, *each) != reward]
    assert flipped == []


@pytest.mark.parametrize(
    "pieces",
    [pytest.param(PIECES[::12], id="some"), pytest.param(PIECES, id="all", marks=pytest.mark.slow)],
)
def test_long_texts_take_no_time(pieces):
    """Nothing here tries many ways to read a text, so repeating one piece is no way to hang it.

    math-verify itself has no such bound; a grader has a deadline for it.
    """
    slow = []
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
            if time.process_time() - started > 3:
                slow.append(piece + end)
    assert slow == []

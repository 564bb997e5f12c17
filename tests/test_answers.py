"""Verifiers of answers, called in this process: what is right, wrong, or cannot be read."""

import rlvr.verify.answers.equality as equality
from rlvr.verify.answers.boxes import boxed, verify_choice
from rlvr.verify.answers.expressions import verify_countdown
from rlvr.verify.answers.mathematics import verify_math
from rlvr.verify.answers.numbers import last_number, verify_number
from rlvr.verify.programs.isolation import OutOfTime

import pytest
from answers import CHOICE, COUNTDOWN, LAST_NUMBER, MATH, NUMBER, answers

MATH_TEXTS = [
    ("\\boxed{\\begin{aligned}\nx &= 1 \\\\\ny &= 2\n\\end{aligned}}", "x=1, y=2", 1.0),
    ("\\boxed{\\begin{pmatrix}\n1\\\\\n2\n\\end{pmatrix}}", r"\begin{bmatrix}1\\2\end{bmatrix}", 1),
    # several boxes
    (r"\boxed{1}, \boxed{2,3}", "1,2,3", 0.0),  # the last box holds an answer of two parts
    (r"First \boxed{3}, no, \boxed{5}.", "5", 1.0),
    (r"First \boxed{3}, then \boxed{5}. So \boxed{5} and \boxed{3}.", "3, 5", 1.0),
    (r"\boxed{4} is wrong. It is \boxed{3} or \boxed{5}.", "3, 5", 1.0),
    (r"(a) \boxed{k = 45}. For the second part we get (b) \boxed{n = 2}", "k=45, n=2", 1.0),
    (r"\boxed{2} or \boxed{-2}", r"\pm 2", 1.0),
    # what cannot be read
    (r"\boxed{5}", r"see 4 and the lemma in section 5", None),
    (boxed("+1" * 2000), "4000", None),
    ("The answer is 5.", "5", None),
    # where a box begins and ends
    (r"\boxed{x = \boxed{5}}", "5", 1.0),
    (r"so $\boxed 5$, which is \boxed 12 or \boxed .", "5", 1.0),
    (boxed(r"\frac{\sqrt{\frac{1}{x^{2^{3}}}}}{2}"), r"\frac{1}{2\sqrt{x^{8}}}", 1.0),
    (r"\boxed{5\}", "5", None),
    (r"\framebox{5}, which is in \boxed{}", "5", 1.0),
    *((boxed(f"5 {unit}"), "5", 1.0) for unit in "mgshNJWVALKCFTH"),
    (r"\boxed{4} so \boxed{5", "4", 1.0),
    ("\ud800 \0 答案是 \\boxed{5}。", "5", 1.0),
    # long texts
    (r"\boxed{" * 20_000, "5", None),
    ("{" * 200_000 + r"\boxed{5}", "5", 1.0),
]
UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
NUMBER_TEXTS = [
    # the last box, or else behind the last ####, or else in the last <answer>
    ("#### 17\n#### $1,800", "1800", 1.0),
    ("<answer>17</answer><answer> 18 </answer>", "18", 1.0),
    (r"#### 18 \boxed{17}", "18", 0.0),
    ("<answer>17</answer> #### 18", "18", 1.0),
    (r"\boxed{} <answer>18</answer>", "18", 1.0),
    ("####", "18", None),
    *((f"####{heading}\n18", "18", 1.0) for heading in ("", " **Final Answer**\n", " Answer:")),
    # where the line behind #### ends
    ("#### **18**\n\nLet me know if you have 3 questions.", "18", 1.0),
    *((f"#### 18{end}", "18", 1.0) for end in ("<|im_end|>", ". You have 3.", "! So, 3 left.")),
    ("#### 18. 19", "18", 0.0),
    ("#### 3. Find the total\nIt is 18.", "3", None),
    *((boxed(f"3 hundred {word}"), "300", None) for word in ("two", "twelve", "ninety", "halves")),
    *((f"#### 1{unseen}8", "18", 1.0) for unseen in UNSEEN),
    # a gold without a number, and too long texts
    (r"\boxed{18}", "no number", None),
    ("#### 18" + ". A b" * 100_000, "18", None),
    (boxed("9" * 10**6), "9", None),
]
COUNTDOWN_TEXTS = [
    ("3+9*5", 0.0),
    ("<answer>3+9*5", 0.0),
    ("</answer>3+9*5<answer>", 0.0),
    ("<answer>1</answer><answer>3+9*5</answer>", 1.0),  # the last one counts
    ("<answer>3+9*5</answer><answer>1", 1.0),  # the last complete one
    ("<think>\n9*5=45\n</think>\n<answer>\n\t3+9*5\r\n</answer>\n", 1.0),
    # long, deep, huge
    (f"<answer>{'(' * 30}3{')' * 30}+9*5</answer>", 1.0),
    (f"<answer>{'(' * 200}3+9*5{')' * 200}</answer>", 0.0),
    # <answer>(.*?)</answer> as a regular expression takes minutes for the first of these
    ("<answer>" * 125_000, 0.0),
]
MATH_TEXTS += [(boxed(text), *row) for text, *row in answers(MATH)]
NUMBER_TEXTS += [(boxed(text), *row) for text, *row in answers(NUMBER)]
LAST_NUMBERS = [(text, gold, True) for text, gold, _ in answers(LAST_NUMBER)]
CHOICE_TEXTS = [(boxed(text), *row) for text, *row in answers(CHOICE)]
CHOICE_TEXTS += [(r"\boxed{A} or \boxed{B} <answer>C</answer>", "B", 1.0), (boxed("C"), " 2 ", 1.0)]
CHOICE_TEXTS += [("#### B. Rome or C. Paris.", "B", None)]
COUNTDOWN_TEXTS = [(text, "3 9 5 : 48 ", reward) for text, reward in COUNTDOWN_TEXTS]
COUNTDOWN_TEXTS += [(f"<answer>{text}</answer>", *row) for text, *row in answers(COUNTDOWN)]
# what changes no verdict
BEFORE_BRACES = "text textbf textit textrm textnormal mathrm mbox operatorname emph mathbf mathit"
BEFORE_BRACES += " mathsf boldsymbol pmb bm underline vec overrightarrow boxed fbox"
ALONE = "displaystyle textstyle bf rm it large Large LARGE huge Huge"
WRAPS = [
    *("${}$", r"\({}\)", r"\[{}\]", "\n{}\n", "{{{}}}", "**{}**", "{}.", r"\boxed{{${}$}}"),
    *(rf"\{command}{{{{{{}}}}}}" for command in BEFORE_BRACES.split()),
    *(rf"\{command} {{}}" for command in ALONE.split()),
]
MATH_WRAPS = [*WRAPS, r"\color{{red}}{{{}}}", r"\textcolor{{red}}{{{}}}", r"\quad {}\,", "~{},"]
WRAPPED = [(r"\frac{1}{2}", "0.5"), ("x < 3", "3 > x"), (r"(1, \sqrt{2})", r"(1,\sqrt2)")]
MATH_TEXTS += [(boxed(wrap.format(each)), gold, 1) for each, gold in WRAPPED for wrap in MATH_WRAPS]
NUMBER_TEXTS += [(boxed(wrap.format("1,800")), "1800", 1) for wrap in WRAPS]
CHOICE_TEXTS += [(boxed(wrap.format("(B)")), "B", 1) for wrap in WRAPS]


@pytest.mark.parametrize(
    "verify, rows",
    [
        (verify_math, MATH_TEXTS),
        (verify_number, NUMBER_TEXTS),
        (verify_choice, CHOICE_TEXTS),
        (verify_countdown, COUNTDOWN_TEXTS),
        (lambda text, gold: last_number(text) == gold, LAST_NUMBERS),
    ],
)
def test_verdicts(verify, rows, monkeypatch):
    monkeypatch.setattr(equality, "LIMIT", 60.0)  # so that no verdict depends on the machine
    found = [(text[-80:], gold, verify(text, gold), reward) for text, gold, reward in rows]
    assert [row for row in found if row[2] != row[3]] == []


ENDLESS = ["9^{9^{9^{9}}}", "(10^{9})!", r"\binom{10^{9}}{10^{8}}", r"\frac{1}{9^{9^{9}}}"]
ENDLESS += ["(x+1)^{9^{9}}", "e^{e^{e^{79}}}", r"\prod_{k=1}^{10^9} k", r"\sum_{k=1}^{10^9} k^k"]


@pytest.mark.parametrize("answer", ENDLESS)
def test_what_cannot_be_decided_in_half_a_second(answer):
    """A grader reports it as a timeout. The same answer is right, because it is not worked out."""
    assert equality.LIMIT == 0.5
    assert verify_math(boxed(answer), answer) == 1.0
    with pytest.raises(OutOfTime):
        verify_math(boxed(answer), "5")

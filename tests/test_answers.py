r"""Mathematics, numbers and choices: answers that are right, wrong, or cannot be read.

The rows go through `grade`, as completions do. A row's answer stands in \boxed{}, unless the row
spells out the whole completion.
"""

import time
from fractions import Fraction

import rlvr.tasks.pool
from rlvr.tasks.boxes import last_boxed, last_boxes
from rlvr.tasks.numbers import last_number, read_number

import pytest
from grading import boxed, grade_all, new_graders

MATH_RIGHT = [
    ("52_{8}", "52_8"),
    # numbers
    ("5", "5"),
    (" 5 ", "5"),
    ("5.", "5"),
    ("5.0", "5"),
    ("+5", "5"),
    ("-7", "-7"),
    ("0", "0"),
    ("$5$", "5"),
    ("1,000", "1000"),
    ("1{,}000", "1000"),
    ("1000", "1,000"),
    ("1,234,567", "1234567"),
    (r"3\times 10^4", "30000"),
    (r"10^{-3}", "0.001"),
    (r"3\cdot 4", "12"),
    ("2^{10}", "1024"),
    ("1011_2", "1011_2"),
    # fractions
    (r"\frac{1}{2}", "0.5"),
    ("0.5", r"\frac{1}{2}"),
    (r"\dfrac{1}{2}", r"\frac12"),
    (r"\tfrac{3}{4}", "3/4"),
    (r"\frac{2}{4}", r"\frac{1}{2}"),
    (r"-\frac{1}{3}", r"\frac{-1}{3}"),
    (r"\frac{1}{-3}", r"-\frac{1}{3}"),
    ("1/2", r"\frac{1}{2}"),
    ("0.25", r"\frac{1}{4}"),
    (r"\frac{\frac{1}{2}}{2}", r"\frac{1}{4}"),
    # roots, constants, functions
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"),
    (r"\sqrt[3]{27}", "3"),
    (r"\sqrt{\sqrt{16}}", "2"),
    (r"\sqrt2", r"\sqrt{2}"),
    (r"\pi", r"\pi"),
    (r"\dfrac{7\pi}{6}", r"\frac{7}{6}\pi"),
    (r"\log_2 8", "3"),
    ("5!", "120"),
    (r"\binom{5}{2}", "10"),
    # equations with thousands, units and factorials
    (r"12 \times 150 = 1,800", "1800"),
    (r"N = 12 \times 150 = 1{,}800", "1800"),
    (r"12 \times 150 = \$1,800", "1800"),
    ("1,200 + 600 = 1,800", "1800"),
    (r"\binom{5}{2} = 10 \text{ ways}", "10"),
    (r"2+3=5\text{ apples}", "5"),
    (r"\pi \cdot 3^2 = 9\pi \text{ cm}^2", r"9\pi"),
    (r"A = 3+4 = 7\text{ cm}", "7"),
    ("4! = 24", "24"),
    ("N = 4! = 24", "24"),
    (r"3! \cdot 4! = 144", "144"),
    # thousands in lists
    ("1,000, 2,000", "1000,2000"),
    ("(1,000, 5)", "(1000,5)"),
    ("|-3|", "3"),
    (r"\infty", r"\infty"),
    # algebra
    ("a+b", "b+a"),
    ("(x-1)(x+1)", "x^2-1"),
    ("x^2+2x+1", "(x+1)^2"),
    ("x(x+1)", "x^2+x"),
    (r"\frac{x}{2}", r"\frac{1}{2}x"),
    (r"\frac{x+1}{2}", r"\frac{x}{2}+\frac{1}{2}"),
    ("2(l+w)", "2l+2w"),
    # complex numbers
    ("3+4i", "4i+3"),
    ("-i", "-i"),
    (r"2\mathrm{i}+1", "1+2i"),
    ("1 + 2 i", "1+2i"),
    (r"\frac{3+4i}{2}", "1.5+2i"),
    # equations
    ("x=3", "3"),
    ("x = 3", "3"),
    (r"x=\frac{1}{2}", "0.5"),
    ("f(x)=x^2", "x^2"),
    ("y=2x+1", "y=2x+1"),
    ("2x+1=y", "y=2x+1"),
    ("x_1=3", "3"),
    (r"\theta=30^\circ", "30"),
    ("x=y=3", "3"),
    ("3=x", "3"),
    ("(x,y)=(3,2)", "(3,2)"),
    ("x=3, y=2", "(3,2)"),
    (r"x=1 \text{ or } x=-2", "1,-2"),
    (r"x = -3 \pm \sqrt{2}", r"-3+\sqrt2, -3-\sqrt2"),
    ("f(-2)=3", "3"),
    ("f^{-1}(x)=2x", "2x"),
    (r"\frac{dy}{dx}=2x", "2x"),
    (r"\lim_{x\to 0}f(x)=3", "3"),
    (r"P(A|B)=\frac12", "0.5"),
    (r"A \cup B = [0,1]", "[0,1]"),
    (r"V = \frac{4}{3}\pi r^3 = 36\pi", r"36\pi"),
    ("a+b=7", "7"),
    ("\\begin{aligned}\nx &= 1 \\\\\ny &= 2\n\\end{aligned}", "x=1, y=2"),
    ("x=3", "x=3"),
    # inequalities and intervals
    ("x<3", "x<3"),
    ("3>x", "x<3"),
    (r"x\le 3", r"x\leq 3"),
    ("-1<x<2", "-1<x<2"),
    ("[0,1)", "[0,1)"),
    (r"\left[0,1\right)", "[0,1)"),
    (r"(-\infty,3]", r"(-\infty, 3]"),
    (r"(3,4)\cup(1,2)", r"(1,2)\cup(3,4)"),
    # sets, pairs, matrices
    (r"\{3,1,2\}", r"\{1,2,3\}"),
    (r"\left\{2,1\right\}", r"\{1,2\}"),
    (r"\{\frac{1}{2}\}", r"\{0.5\}"),
    (r"\emptyset", r"\emptyset"),
    ("(1,2)", "(1,2)"),
    (r"\left(1,2\right)", "(1, 2)"),
    ("(1,2,3)", "(1,2,3)"),
    (r"\left(\frac{1}{2},\sqrt{4}\right)", "(0.5,2)"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    (r"\begin{bmatrix}1\\\frac{2}{4}\end{bmatrix}", r"\begin{pmatrix}1\\0.5\end{pmatrix}"),
    # words, units, degrees, percent
    (r"\text{Monday}", r"\text{Monday}"),
    ("Monday", r"\text{Monday}"),
    (r"\text{even}", "even"),
    (r"\text{(B)}", "B"),
    (r"5\text{ cm}", "5"),
    (r"5 \text{ cm}", r"5\text{ cm}"),
    (r"12\,\mathrm{m}", "12"),
    (r"30^\circ", "30"),
    (r"30^{\circ}", r"30^\circ"),
    (r"50\%", "50"),
    ("50%", "50"),
    ("50", r"50\%"),
    # unicode
    ("π", r"\pi"),
    ("−5", "-5"),
    ("x≤3", r"x\le 3"),
    ("30°", "30"),
]
MATH_WRONG = [
    # numbers of different bases
    ("52_8", "52_7"),
    ("52_{8}", "52_7"),
    ("1_2", "1_3"),
    ("6", "5"),
    ("-5", "5"),
    ("50", "5"),
    ("1,000", "1"),
    ("1000", "100"),
    ("10", "10^2"),
    ("5", "5!"),
    ("3.1", "3"),
    (r"\frac{1}{3}", "0.5"),
    ("0.33", r"\frac{1}{3}"),
    (r"\frac{2}{1}", r"\frac{1}{2}"),
    ("3.14", r"\pi"),
    (r"\sqrt{2}", "2"),
    ("1.414", r"\sqrt{2}"),
    (r"2\sqrt{3}", r"3\sqrt{2}"),
    ("2^{2^3}", "64"),
    (r"\pi", r"2\pi"),
    ("x^2+1", "(x-1)(x+1)"),
    ("3x", "3"),
    ("x", "3"),
    ("a-b", "b-a"),
    ("(x+1)^2", "x^2+1"),
    ("3-4i", "3+4i"),
    ("4=3", "3"),
    ("2+2=3", "3"),
    (r"12 \times 150 = 1,700", "1700"),
    (r"12 \times 150 = 1,800", "1"),
    (r"A = \frac12 \cdot 6 \cdot 4 = 24 \text{ cm}^2", "12"),
    (r"A = \frac12 \cdot 6 \cdot 4 = 24 \text{ cm}^2", "24"),
    (r"A = 3+4 = 8\text{ cm}", "7"),
    (r"A = 3+4 = 8\text{ cm}", "8"),
    ("4! = 25", "25"),
    ("x != 24", "24"),
    ("1,200,3", "12003"),
    (r"4 \equiv 3", "3"),
    (r"\frac{2+2}{1} = 3", "3"),
    ("(2,3)=(3,2)", "(3,2)"),
    ("x+1=3", "3"),
    ("x=4", "3"),
    ("2x=3", "3"),
    ("x=3=4", "4"),
    ("4=x=3", "3"),
    ("y=2x+2", "y=2x+1"),
    ("x>3", "x<3"),
    (r"x\le 3", "x<3"),
    ("-1<x<3", "-1<x<2"),
    ("[0,1]", "[0,1)"),
    ("(0,1)", "[0,1]"),
    (r"(-\infty,3)", r"(-\infty,3]"),
    (r"(1,2)\cup(3,5)", r"(1,2)\cup(3,4)"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    (r"\{1,2,3\}", r"\{1,2\}"),
    ("(2,1)", "(1,2)"),
    ("(1,2,3)", "(1,2)"),
    ("(1,3,2)", "(1,2,3)"),
    ("3,4", "3"),
    (r"3\text{ or }4", "3"),
    (r"\pm 2", "2"),
    ("2,-2", "2"),
    ("1,2", "12"),
    (r"\begin{pmatrix}1&2\\3&5\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\text{Tuesday}", r"\text{Monday}"),
    (r"\text{not even}", r"\text{even}"),
    (r"5\text{ cm}", "6"),
    (r"30^\circ", "60"),
    (r"50\%", "0.5"),
    ("50%", "0.5"),
    ("0.5", r"50\%"),
    (r"5\%", "50"),
    (r"\infty", r"-\infty"),
]
MATH_TEXTS = [
    (r"First \boxed{3}, no, \boxed{5}.", "5", 1.0, ""),
    (r"First \boxed{3}, no, \boxed{5}.", "3", 0.0, ""),
    (r"\boxed{3} \boxed{5}", "3,5", 1.0, ""),
    (r"First \boxed{3}, then \boxed{5}. So \boxed{5} and \boxed{3}.", "3, 5", 1.0, ""),
    (r"\boxed{4} is wrong. It is \boxed{3} or \boxed{5}.", "3, 5", 1.0, ""),
    (r"\boxed{4}, \boxed{3} and \boxed{5}", "3, 5", 0.0, ""),
    (r"\boxed{4} is wrong. It is \boxed{3, 5}.", "3, 5", 1.0, ""),
    (r"\boxed{(2, 2)} \quad \text{and} \quad \boxed{(6, 2)}", "(2, 2), (6, 2)", 1.0, ""),
    (r"(a) \boxed{k = 45}. For the second part we get (b) \boxed{n = 2}", "k=45, n=2", 1.0, ""),
    (r"\boxed{2} or \boxed{-2}", r"\pm 2", 1.0, ""),
    (r"\boxed{2}", r"\pm 2", 0.0, ""),
    (r"\boxed{x = \boxed{5}}", "5", 1.0, ""),
    (r"so $\boxed 5$.", "5", 1.0, ""),
    (r"\boxed{5} is \boxed .", "5", 1.0, ""),
    (r"\boxed{4 \to 5}", "5", 0.0, "unparsed"),
    (r"\boxed{2 \circ 5}", "5", 0.0, "unparsed"),
    (r"\boxed{The answer is 5}", "5", 0.0, "unparsed"),
    (r"\boxed{5}", r"see 4 and the lemma in section 5", 0.0, "unparsed"),
    (r"\boxed{5}", r"4 \mho 5 \to 5", 0.0, "unparsed"),
    (r"\boxed{1 5}", "15", 0.0, "unparsed"),
    (r"\boxed{5 \text{ or 6}}", "5", 0.0, "unparsed"),
    (r"\boxed{" + "+1" * 2000 + "}", "4000", 0.0, "unparsed"),
    (r"\boxed{\boxed{5}}", "5", 1.0, ""),
    (r"\boxed {5}", "5", 1.0, ""),
    ("\\boxed\n{ 5\n}", "5", 1.0, ""),
    (r"$$\boxed{5}$$", "5", 1.0, ""),
    (r"\boxed{\frac{1}{\sqrt{\frac{4}{1}}}}", "0.5", 1.0, ""),
    (r"} \boxed{5} {", "5", 1.0, ""),
    (r"{ \boxed{5}", "5", 1.0, ""),
    (r"\{ \boxed{\{1,2\}} \{", r"\{2,1\}", 1.0, ""),
    (r"\boxed{5", "5", 0.0, "unparsed"),
    (r"\boxed{5\}", "5", 0.0, "unparsed"),
    (r"\boxed", "5", 0.0, "unparsed"),
    (r"\boxed{\frac{1}{2}", "0.5", 0.0, "unparsed"),
    (r"\boxed{4} so \boxed{5", "4", 1.0, ""),
    (r"\boxed{}", "5", 0.0, "unparsed"),
    (r"\boxed{ }", "5", 0.0, "unparsed"),
    ("", "5", 0.0, "unparsed"),
    (r"\boxed{5} \boxed{}", "5", 0.0, "unparsed"),
    ("The answer is 5.", "5", 0.0, "unparsed"),
    ("<answer>5</answer>", "5", 0.0, "unparsed"),
    ("boxed{5}", "5", 0.0, "unparsed"),
    (r"答案是 \boxed{5}。", "5", 1.0, ""),
    ("\ud800 \0 \\boxed{5}", "5", 1.0, ""),
    ("word " * 200_000 + r"\boxed{5}", "5", 1.0, ""),
    (r"\boxed{5}" + " word" * 200_000, "5", 1.0, ""),
    (r"\boxed{" * 20_000, "5", 0.0, "unparsed"),
    ("{" * 200_000 + r"\boxed{5}", "5", 1.0, ""),
    (r"\boxed{" + "{" * 50_000 + "5" + "}" * 50_000 + "}", "5", 0.0, "unparsed"),
    (r"\boxed{" * 10_000 + "5" + "}" * 10_000, "5", 0.0, "unparsed"),
    (r"\boxed{6} " * 20_000 + r"\boxed{5}", "5", 1.0, ""),
    (r"\fbox{5}", "5", 1.0, ""),
    (r"\boxed{\$18}", "18", 1.0, ""),
]
NUMBERS = [  # the reward is None where there is no number to be read
    ("10.", "10", 1.0),
    ("10", "10.", 1.0),
    ("1,000", "1000", 1.0),
    ("1000", "1,000", 1.0),
    ("$18.00", "18", 1.0),
    (r"\$18", "18", 1.0),
    (r"\text{\$}18", "18", 1.0),
    ("-$5", "-5", 1.0),
    ("-5", "5", 0.0),
    ("18 eggs", "18", 1.0),
    ("18 eggs.", "18", 1.0),
    (r"18 \text{ eggs}", "18", 1.0),
    ("18 dollars a day", "18", 1.0),
    (r"18\%", "18", 1.0),
    ("18%", "0.18", 0.0),
    ("018", "18", 1.0),
    (".5", "0.5", 1.0),
    ("+5", "5", 1.0),
    ("1,234.50", "1234.5", 1.0),
    (r"1\,000", "1000", 1.0),
    (r"1,\!000", "1000", 1.0),
    ("19", "18", 0.0),
    ("180", "18", 0.0),
    ("1.8", "18", 0.0),
    ("3/4", "0.75", 1.0),
    ("-3/4", "-0.75", 1.0),
    ("6/8", "3/4", 1.0),
    ("10/2", "5", 1.0),
    ("0/5", "0", 1.0),
    ("1/3", "0.3333333333", 0.0),
    ("1/0", "1", None),
    ("1/00", "1", None),
    ("1,00", "100", None),
    ("3,5", "35", None),
    ("1,0000", "10000", None),
    ("18 or 19", "18", None),
    ("18, 19", "18", None),
    ("17 + 1", "18", None),
    ("18-19", "18", None),
    ("1.2.3", "1.2", None),
    ("eighteen", "18", None),
    ("-", "0", None),
    (".", "0", None),
    ("inf", "0", None),
    ("nan", "0", None),
    ("1e3", "1000", None),
    ("0x12", "18", None),
    ("1_000", "1000", None),
    ("١٨", "18", None),
    ("１８", "18", None),
    ("²", "2", None),
    ("1" * 41, "1" * 41, None),
    ("9" * 10**6, "9", None),
    ("1" + ",000" * 13, "1" + "0" * 30, None),
    ("9007199254740993", "9007199254740992", 0.0),
    (r"\text{18}", "18", 1.0),
    (r"\frac{3}{4}", "0.75", 1.0),
    ("1{,}000", "1000", 1.0),
    # mixed numbers, and words that multiply or change a number
    (r"1\frac{1}{2}", "1.5", 1.0),
    (r"1\frac{1}{2}", "5.5", 0.0),
    ("1 1/2 cups", "1.5", 1.0),
    ("-1 1/2", "-1.5", 1.0),
    ("3½", "3.5", 1.0),
    (r"\frac{-1}{2}", "-0.5", 1.0),
    (r"-\frac12", "-0.5", 1.0),
    ("3 million", "3000000", 1.0),
    ("3 million", "3", 0.0),
    (r"3 \text{ million dollars}", "3,000,000", 1.0),
    ("2 hundred thousand", "200000", 1.0),
    ("3 dozen", "36", 1.0),
    ("3 and a half", "3", None),
    ("3 point five", "3", None),
    ("3 or four", "3", None),
    (r"3 \times 10^{4}", "30000", 1.0),
    ("3²", "3", None),
    # equations
    ("x=42", "42", 1.0),
    ("42 = x", "42", 1.0),
    (r"\text{Total cost} = \$42", "42", 1.0),
    (r"6 \times 7 = 42", "42", 1.0),
    (r"x = 0.5 \cdot (80 + 4) = 42", "42", 1.0),
    (r"6 \times 7 = 43", "43", None),
    ("2x = 42", "42", None),
    ("-x = 42", "42", None),
    ("42 = 43", "43", None),
    ("The answer is 42.", "42", 1.0),
    ("It is not 42.", "42", None),
    # units and marks
    (r"\boxed{42}", "42", 1.0),
    (r"42^\circ", "42", 1.0),
    (r"42^{\circ}\text{C}", "42", 1.0),
    (r"\mathbf{42}", "42", 1.0),
    ("\u221242", "-42", 1.0),
    (r"42\text{ m}^2", "42", 1.0),
    (r"42\text{.}", "42", 1.0),
    (r"42 \text{ km/h}", "42", 1.0),
    (r"\(42\)", "42", 1.0),
    ("18 cats and dogs", "18", 1.0),
    ("$3.50 per pound", "3.5", 1.0),
    ("12:30", "12", None),
    ("18-20 eggs", "18", None),
]
NUMBER_TEXTS = [
    ("so\n#### 18", "18", 1.0, ""),
    ("#### 17\n#### 18", "18", 1.0, ""),
    ("#### $1,800", "1800", 1.0, ""),
    ("#### 17", "18", 0.0, ""),
    ("<answer>18</answer>", "18", 1.0, ""),
    ("<answer> 17 </answer>", "18", 0.0, ""),
    (r"\boxed{18} #### 17", "18", 1.0, ""),
    (r"#### 18 \boxed{17}", "18", 0.0, ""),
    (r"\boxed{17} and \boxed{18}", "18", 1.0, ""),
    (r"\boxed{17} and \boxed{18}", "17", 0.0, ""),
    (r"<answer>17</answer> \boxed{18}", "18", 1.0, ""),
    ("<answer>17</answer> #### 18", "18", 1.0, ""),
    ("It is 18.", "18", 0.0, "unparsed"),
    ("", "18", 0.0, "unparsed"),
    (r"\boxed{18", "18", 0.0, "unparsed"),
    ("####", "18", 0.0, "unparsed"),
    ("<answer>18", "18", 0.0, "unparsed"),
    ("<answer></answer>", "0", 0.0, "unparsed"),
    ("#### **18**", "18", 1.0, ""),
    ("#### 18\n\nLet me know if you have 3 questions.", "18", 1.0, ""),
    ("#### 18. Let me know.", "18", 1.0, ""),
    ("#### 18\n</answer>", "18", 1.0, ""),
    ("#### 18<|im_end|>", "18", 1.0, ""),
    ("####\n18", "18", 1.0, ""),
    ("#### 18 or 19", "18", 0.0, "unparsed"),
    ("#### 18, 19", "18", 0.0, "unparsed"),
    (r"\boxed{18}", "no number", 0.0, "unparsed"),
]
CHOICES = [
    ("B", "B", 1.0),
    ("(B)", "B", 1.0),
    ("B.", "B", 1.0),
    ("B) 12", "B", 1.0),
    ("(B) 12", "B", 1.0),
    ("B: 12", "B", 1.0),
    (r"\text{(B)}", "B", 1.0),
    (r"\text{B}", "B", 1.0),
    (r"\textbf{B}", "B", 1.0),
    (r"\textbf{(B)}\ 12", "B", 1.0),
    (" B ", "B", 1.0),
    ("{B}", "B", 1.0),
    ("B", "(B)", 1.0),
    ("J", "J", 1.0),
    ("C", "B", 0.0),
    ("(A)", "B", 0.0),
    ("A) B", "B", 0.0),
    ("A or B", "A", None),
    ("A and B", "B", None),
    ("A, B", "A", None),
    ("BC", "B", None),
    ("AB", "B", None),
    ("12", "B", None),
    ("none", "B", None),
    ("Б", "B", None),
    ("В", "B", None),
    ("Because", "B", None),
    ("(A) or (B)", "A", None),
    ("A. or B.", "A", None),
    ("(A), (C)", "A", None),
    (r"\mathbf{(B)}", "B", 1.0),
    ("A. London", "A", 1.0),
    *((answer, "B", 1.0) for answer in ("b", "(b)", "b.", "[B]", '"B"', "**B**", "b. london")),
    *((rf"\{font}{{B}}", "B", 1.0) for font in ("textit", "mathrm", "boldsymbol", "operatorname")),
    (r"\(B\)", "B", 1.0),
    ("B Paris", "B", 1.0),
    ("B - Paris", "B", 1.0),
    ("B. Vitamin C.", "B", 1.0),
    ("B. U.S.A.", "B", 1.0),
    ("B. C: the speed", "B", 1.0),
    ("D) Both A and B", "D", 1.0),
    ("Option B", "B", 1.0),
    (r"\text{Option B}", "B", 1.0),
    ("The correct answer is (B).", "B", 1.0),
    ("Answer: C", "B", 0.0),
    ("A dog", "A", None),
    ("D.C.", "D", None),
    ("A/B", "A", None),
    ("A & B", "A", None),
    ("A B", "A", None),
    ("A. B.", "A", None),
    ("A) B) C)", "A", None),
    ("(A) 5, (B) 6", "A", None),
    ("A. Paris or B. London", "A", None),
    ("either A or B", "A", None),
    # golds: small letters, and indices from 0
    ("B", "b", 1.0),
    ("C", "(b)", 0.0),
    ("A", "0", 1.0),
    ("(d) 12", "3", 1.0),
    ("B", "3", 0.0),
    ("3", "3", 1.0),
    ("2", "3", 0.0),
    ("B", "26", None),
]
CHOICE_TEXTS = [
    ("<answer>B</answer>", "B", 1.0, ""),
    ("<answer>(C)</answer>", "B", 0.0, ""),
    ("B", "B", 0.0, "unparsed"),
    (r"\boxed{A} or \boxed{B}", "B", 1.0, ""),
    (r"\boxed{A} or \boxed{B}", "A", 0.0, ""),
    (r"\boxed{B} <answer>C</answer>", "B", 1.0, ""),
    ("The answer is (B).", "B", 0.0, "unparsed"),
]


def judged(verifier, rows):
    """Rows of a boxed answer -> question and reply."""
    found = []
    for answer, gold, reward in rows:
        reply = (0.0, "unparsed") if reward is None else (reward, "")
        found.append((verifier, boxed(answer), gold, *reply))
    return found


ROWS = [
    *judged("math", [(*row, 1.0) for row in MATH_RIGHT]),
    *judged("math", [(*row, 0.0) for row in MATH_WRONG]),
    *(("math", *row) for row in MATH_TEXTS),
    *judged("number", NUMBERS),
    *(("number", *row) for row in NUMBER_TEXTS),
    *judged("choice", CHOICES),
    *(("choice", *row) for row in CHOICE_TEXTS),
]


@pytest.fixture(autouse=True, scope="module")
def graders(tmp_path_factory):
    with new_graders(tmp_path_factory.mktemp("scratch")):
        yield


@pytest.fixture(scope="module")
def replies():
    """The replies to all questions, which several threads ask."""
    questions = [row[:3] for row in ROWS]
    return dict(zip(questions, grade_all(questions, 10), strict=True))


def short_name(row):
    verifier, text, gold, *_ = row
    return ascii(f"{verifier} {text[-50:]} {gold[-20:]}")


@pytest.mark.parametrize("row", ROWS, ids=short_name)
def test_row(row, replies):
    assert replies[row[:3]] == row[3:]


@pytest.mark.parametrize("text", ["#### " + " " * 5000 + "?", boxed("a " * 5000 + "?")])
def test_a_long_text_is_no_number_and_takes_no_time(text):
    """A pattern that tries all the ways to split the blanks would take for ever."""
    started = time.monotonic()
    assert rlvr.tasks.pool.grade(("number", text, "5")) == (0.0, "unparsed")
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "text, expected",
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\boxed{3}}", "{3}"),
        (r"\boxed{\boxed{1} or \boxed 2}", "{1} or 2"),
        (r"\boxed{ \frac{1}{2} }", r"\frac{1}{2}"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{1} then \boxed{2", "1"),
        (r"\boxed{ }", "NA"),
        ("no box", "NA"),
    ],
)
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


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
    "text, expected",
    [
        ("5 - 3 = 2, so 2.", "2"),
        ("It is -1,234.5!", "-1,234.5"),
        ("from 7-9", "9"),
        ("The answer is \u22125.", "-5"),  # a minus sign
        ("It is \u20135", "-5"),  # a dash
        ("from 7\u20139", "9"),
        ("about .5", ".5"),
        ("about -.25!", "-.25"),
        ("v2", "NA"),
        ("none", "NA"),
    ],
)
def test_last_number(text, expected):
    assert last_number(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [("$1,234.50", Fraction(2469, 2)), ("6/8", Fraction(3, 4)), ("18 eggs", 18), ("2 or 3", None)],
)
def test_read_number_is_exact(text, expected):
    assert read_number(text) == expected

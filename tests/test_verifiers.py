r"""The verifiers of tasks.py through `grade`: right and wrong answers of every kind, hostile ones, honest programs.

A row's answer stands in \boxed{}, unless the row spells out the whole completion.
"""
import json
import os
import pwd
import queue
import signal
import threading
import time
from pathlib import Path

import pytest

import tasks

GOLD = "3 9 5 : 48 "
ADD = "def add(a, b):\n    return a + b"
DOUBLE = {"inputs": ["7\n", "0\n", "-3\n"], "outputs": ["14\n", "0\n", "-6"]}
DOUBLE_LIST = [{"input": given, "output": wanted} for given, wanted in zip(DOUBLE["inputs"], DOUBLE["outputs"])]
ASSERTIONS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"]


def grade_all(questions, seconds):
    return tasks.in_threads(lambda question: tasks.grade(question, seconds), questions)


MATH_RIGHT = [
    # numbers
    ("5", "5"), (" 5 ", "5"), ("5.", "5"), ("5.0", "5"), ("+5", "5"), ("-7", "-7"), ("0", "0"), ("$5$", "5"),
    ("1,000", "1000"), ("1{,}000", "1000"), ("1000", "1,000"), ("1,234,567", "1234567"),
    (r"3\times 10^4", "30000"), (r"10^{-3}", "0.001"), (r"3\cdot 4", "12"), ("2^{10}", "1024"), ("1011_2", "1011_2"),
    # fractions
    (r"\frac{1}{2}", "0.5"), ("0.5", r"\frac{1}{2}"), (r"\dfrac{1}{2}", r"\frac12"), (r"\tfrac{3}{4}", "3/4"),
    (r"\frac{2}{4}", r"\frac{1}{2}"), (r"-\frac{1}{3}", r"\frac{-1}{3}"), (r"\frac{1}{-3}", r"-\frac{1}{3}"),
    ("1/2", r"\frac{1}{2}"), ("0.25", r"\frac{1}{4}"), (r"\frac{\frac{1}{2}}{2}", r"\frac{1}{4}"),
    # roots, constants, functions
    (r"\sqrt{8}", r"2\sqrt{2}"), (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), (r"\sqrt[3]{27}", "3"),
    (r"\sqrt{\sqrt{16}}", "2"), (r"\sqrt2", r"\sqrt{2}"), (r"\pi", r"\pi"), (r"\dfrac{7\pi}{6}", r"\frac{7}{6}\pi"),
    (r"\log_2 8", "3"), ("5!", "120"), (r"\binom{5}{2}", "10"), ("|-3|", "3"), (r"\infty", r"\infty"),
    # algebra
    ("a+b", "b+a"), ("(x-1)(x+1)", "x^2-1"), ("x^2+2x+1", "(x+1)^2"), ("x(x+1)", "x^2+x"),
    (r"\frac{x}{2}", r"\frac{1}{2}x"), (r"\frac{x+1}{2}", r"\frac{x}{2}+\frac{1}{2}"), ("2(l+w)", "2l+2w"),
    # complex numbers
    ("3+4i", "4i+3"), ("-i", "-i"), (r"\frac{3+4i}{2}", "1.5+2i"),
    # equations
    ("x=3", "3"), ("x = 3", "3"), (r"x=\frac{1}{2}", "0.5"), ("f(x)=x^2", "x^2"), ("y=2x+1", "y=2x+1"),
    ("2x+1=y", "y=2x+1"), ("x_1=3", "3"), (r"\theta=30^\circ", "30"), ("x=y=3", "3"), ("x=3", "x=3"),
    # inequalities and intervals
    ("x<3", "x<3"), ("3>x", "x<3"), (r"x\le 3", r"x\leq 3"), ("-1<x<2", "-1<x<2"), ("[0,1)", "[0,1)"),
    (r"\left[0,1\right)", "[0,1)"), (r"(-\infty,3]", r"(-\infty, 3]"), (r"(3,4)\cup(1,2)", r"(1,2)\cup(3,4)"),
    # sets, pairs, matrices
    (r"\{3,1,2\}", r"\{1,2,3\}"), (r"\left\{2,1\right\}", r"\{1,2\}"), (r"\{\frac{1}{2}\}", r"\{0.5\}"),
    (r"\emptyset", r"\emptyset"), ("(1,2)", "(1,2)"), (r"\left(1,2\right)", "(1, 2)"), ("(1,2,3)", "(1,2,3)"),
    (r"\left(\frac{1}{2},\sqrt{4}\right)", "(0.5,2)"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
    (r"\begin{bmatrix}1\\\frac{2}{4}\end{bmatrix}", r"\begin{pmatrix}1\\0.5\end{pmatrix}"),
    # words, units, degrees, percent
    (r"\text{Monday}", r"\text{Monday}"), ("Monday", r"\text{Monday}"), (r"\text{even}", "even"),
    (r"\text{(B)}", "B"), (r"5\text{ cm}", "5"), (r"5 \text{ cm}", r"5\text{ cm}"), (r"12\,\mathrm{m}", "12"),
    (r"30^\circ", "30"), (r"30^{\circ}", r"30^\circ"), (r"50\%", "50"), ("50%", "50"), ("50", r"50\%"),
    # unicode
    ("π", r"\pi"), ("−5", "-5"), ("x≤3", r"x\le 3"), ("30°", "30"),
]
MATH_WRONG = [
    ("6", "5"), ("-5", "5"), ("50", "5"), ("1,000", "1"), ("1000", "100"), ("10", "10^2"), ("5", "5!"), ("3.1", "3"),
    (r"\frac{1}{3}", "0.5"), ("0.33", r"\frac{1}{3}"), (r"\frac{2}{1}", r"\frac{1}{2}"), ("3.14", r"\pi"),
    (r"\sqrt{2}", "2"), ("1.414", r"\sqrt{2}"), (r"2\sqrt{3}", r"3\sqrt{2}"), ("2^{2^3}", "64"), (r"\pi", r"2\pi"),
    ("x^2+1", "(x-1)(x+1)"), ("3x", "3"), ("x", "3"), ("a-b", "b-a"), ("(x+1)^2", "x^2+1"), ("3-4i", "3+4i"),
    ("4=3", "3"), ("2+2=3", "3"), ("x=4", "3"), ("2x=3", "3"), ("x=3=4", "4"), ("4=x=3", "3"), ("y=2x+2", "y=2x+1"),
    ("x>3", "x<3"), (r"x\le 3", "x<3"), ("-1<x<3", "-1<x<2"), ("[0,1]", "[0,1)"), ("(0,1)", "[0,1]"),
    (r"(-\infty,3)", r"(-\infty,3]"), (r"(1,2)\cup(3,5)", r"(1,2)\cup(3,4)"),
    (r"\{1,2\}", r"\{1,2,3\}"), (r"\{1,2,3\}", r"\{1,2\}"), ("(2,1)", "(1,2)"), ("(1,2,3)", "(1,2)"),
    ("(1,3,2)", "(1,2,3)"), ("3,4", "3"), (r"3\text{ or }4", "3"), (r"\pm 2", "2"), ("2,-2", "2"), ("1,2", "12"),
    (r"\begin{pmatrix}1&2\\3&5\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
    (r"\text{Tuesday}", r"\text{Monday}"), (r"\text{not even}", r"\text{even}"), (r"5\text{ cm}", "6"),
    (r"30^\circ", "60"), (r"50\%", "0.5"), ("50%", "0.5"), ("0.5", r"50\%"), (r"5\%", "50"), (r"\infty", r"-\infty"),
]
MATH_TEXTS = [
    (r"First \boxed{3}, no, \boxed{5}.", "5", 1.0, ""), (r"First \boxed{3}, no, \boxed{5}.", "3", 0.0, ""),
    (r"\boxed{3} \boxed{5}", "3,5", 0.0, ""), (r"\boxed{\boxed{5}}", "5", 1.0, ""),
    (r"\boxed {5}", "5", 1.0, ""), ("\\boxed\n{ 5\n}", "5", 1.0, ""), (r"$$\boxed{5}$$", "5", 1.0, ""),
    (r"\boxed{\frac{1}{\sqrt{\frac{4}{1}}}}", "0.5", 1.0, ""), (r"} \boxed{5} {", "5", 1.0, ""),
    (r"{ \boxed{5}", "5", 1.0, ""), (r"\{ \boxed{\{1,2\}} \{", r"\{2,1\}", 1.0, ""),
    (r"\boxed{5", "5", 0.0, "unparsed"), (r"\boxed{5\}", "5", 0.0, "unparsed"), (r"\boxed", "5", 0.0, "unparsed"),
    (r"\boxed{\frac{1}{2}", "0.5", 0.0, "unparsed"), (r"\boxed{4} so \boxed{5", "4", 1.0, ""),
    (r"\boxed{}", "5", 0.0, "unparsed"), (r"\boxed{ }", "5", 0.0, "unparsed"), ("", "5", 0.0, "unparsed"),
    (r"\boxed{5} \boxed{}", "5", 0.0, "unparsed"), ("The answer is 5.", "5", 0.0, "unparsed"),
    ("<answer>5</answer>", "5", 0.0, "unparsed"), ("boxed{5}", "5", 0.0, "unparsed"),
    (r"答案是 \boxed{5}。", "5", 1.0, ""), ("\ud800 \0 \\boxed{5}", "5", 1.0, ""),
    ("word " * 200_000 + r"\boxed{5}", "5", 1.0, ""), (r"\boxed{5}" + " word" * 200_000, "5", 1.0, ""),
    (r"\boxed{" * 20_000, "5", 0.0, "unparsed"), ("{" * 200_000 + r"\boxed{5}", "5", 1.0, ""),
    (r"\boxed{6} " * 20_000 + r"\boxed{5}", "5", 1.0, ""),
]
NUMBERS = [  # None: cannot be read
    ("10.", "10", 1.0), ("10", "10.", 1.0), ("1,000", "1000", 1.0), ("1000", "1,000", 1.0), ("$18.00", "18", 1.0),
    (r"\$18", "18", 1.0), (r"\text{\$}18", "18", 1.0), ("-$5", "-5", 1.0), ("-5", "5", 0.0), ("18 eggs", "18", 1.0),
    ("18 eggs.", "18", 1.0), (r"18 \text{ eggs}", "18", 1.0), ("18 dollars a day", "18", 1.0), (r"18\%", "18", 1.0),
    ("18%", "0.18", 0.0), ("018", "18", 1.0), (".5", "0.5", 1.0), ("+5", "5", 1.0), ("1,234.50", "1234.5", 1.0),
    (r"1\,000", "1000", 1.0), (r"1,\!000", "1000", 1.0), ("19", "18", 0.0), ("180", "18", 0.0), ("1.8", "18", 0.0),
    ("3/4", "0.75", 1.0), ("-3/4", "-0.75", 1.0), ("6/8", "3/4", 1.0), ("10/2", "5", 1.0), ("0/5", "0", 1.0),
    ("1/3", "0.3333333333", 0.0), ("1/0", "1", None), ("1/00", "1", None), ("1,00", "100", None), ("3,5", "35", None),
    ("1,0000", "10000", None), ("18 or 19", "18", None), ("18, 19", "18", None), ("17 + 1", "18", None),
    ("18-19", "18", None), ("1.2.3", "1.2", None), ("eighteen", "18", None), ("-", "0", None), (".", "0", None),
    ("inf", "0", None), ("nan", "0", None), ("1e3", "1000", None), ("0x12", "18", None), ("1_000", "1000", None),
    ("١٨", "18", None), ("１８", "18", None), ("²", "2", None), ("1" * 41, "1" * 41, None), ("9" * 10**6, "9", None),
    ("1" + ",000" * 13, "1" + "0" * 30, 0.0), ("9007199254740993", "9007199254740992", 0.0),
]
NUMBER_TEXTS = [
    ("so\n#### 18", "18", 1.0, ""), ("#### 17\n#### 18", "18", 1.0, ""), ("#### $1,800", "1800", 1.0, ""),
    ("#### 17", "18", 0.0, ""), ("<answer>18</answer>", "18", 1.0, ""), ("<answer> 17 </answer>", "18", 0.0, ""),
    (r"\boxed{18} #### 17", "18", 1.0, ""), (r"#### 18 \boxed{17}", "18", 0.0, ""),
    (r"\boxed{17} and \boxed{18}", "18", 1.0, ""), (r"\boxed{17} and \boxed{18}", "17", 0.0, ""),
    (r"<answer>17</answer> \boxed{18}", "18", 1.0, ""), ("<answer>17</answer> #### 18", "18", 1.0, ""),
    ("It is 18.", "18", 0.0, "unparsed"), ("", "18", 0.0, "unparsed"), (r"\boxed{18", "18", 0.0, "unparsed"),
    ("####", "18", 0.0, "unparsed"), ("<answer>18", "18", 0.0, "unparsed"), ("<answer></answer>", "0", 0.0, "unparsed"),
]
CHOICES = [
    ("B", "B", 1.0), ("(B)", "B", 1.0), ("B.", "B", 1.0), ("B) 12", "B", 1.0), ("(B) 12", "B", 1.0),
    ("B: 12", "B", 1.0), (r"\text{(B)}", "B", 1.0), (r"\text{B}", "B", 1.0), (r"\textbf{B}", "B", 1.0),
    (r"\textbf{(B)}\ 12", "B", 1.0), (" B ", "B", 1.0), ("{B}", "B", 1.0), ("B", "(B)", 1.0), ("J", "J", 1.0),
    ("C", "B", 0.0), ("(A)", "B", 0.0), ("A) B", "B", 0.0), ("A or B", "A", None), ("A and B", "B", None),
    ("A, B", "A", None), ("b", "B", None), ("(b)", "B", None), ("BC", "B", None), ("AB", "B", None), ("12", "B", None),
    ("none", "B", None), ("Б", "B", None), ("В", "B", None), ("Because", "B", None),
]
CHOICE_TEXTS = [
    ("<answer>B</answer>", "B", 1.0, ""), ("<answer>(C)</answer>", "B", 0.0, ""), ("B", "B", 0.0, "unparsed"),
    (r"\boxed{A} or \boxed{B}", "B", 1.0, ""), (r"\boxed{A} or \boxed{B}", "A", 0.0, ""),
    (r"\boxed{B} <answer>C</answer>", "B", 1.0, ""), ("The answer is (B).", "B", 0.0, "unparsed"),
]
PROGRAMS = [  # a block of ```python, its tests, the reward
    ("print(2 * int(input()))", DOUBLE, 1.0), ("print(2 * int(input()))", DOUBLE_LIST, 1.0),
    ("print(2 * int(input()), end='')", DOUBLE, 1.0), ("print(f'  {2 * int(input())}\\t\\n\\n')", DOUBLE, 1.0),
    ("print(2 + int(input()))", DOUBLE, 0.0), ("print(2 * int(input()) or '')", DOUBLE, 0.0),
    ("print(14)", DOUBLE, 0.0), ("print(14)", DOUBLE_LIST, 0.0), ("print(-6)", DOUBLE_LIST, 0.0),
    ("print(float(2 * int(input())))", DOUBLE, 0.0), ("print(2 * int(input()), 'done')", DOUBLE, 0.0),
    ("print(*f'{2 * int(input())}')", DOUBLE, 0.0), ("", DOUBLE, 0.0), ("pass", DOUBLE, 0.0),
    ("1 / 0", DOUBLE, 0.0), ("print(2 * int(input())", DOUBLE, 0.0), ("raise ValueError", DOUBLE, 0.0),
    ("print(2 * input())", DOUBLE, 0.0), ("import numpy_of_no_one", DOUBLE, 0.0), ("print('\0')", DOUBLE, 0.0),
    ("import sys\nprint(2 * int(input()), file=sys.stderr)", DOUBLE, 0.0),
    ("print(input()[::-1])", {"inputs": ["añ文\n"], "outputs": ["文ña\n"]}, 1.0),
    ("print(1, 2)\nprint(3)", {"inputs": [""], "outputs": ["1  2 \n3"]}, 1.0),
    (ADD, ASSERTIONS, 1.0), (ADD, "\n".join(ASSERTIONS), 1.0),
    (ADD, "for a in range(9):\n    assert add(a, 1) > a", 1.0),
    ("add = lambda a, b: a + b", ASSERTIONS, 1.0), ("from operator import add", ASSERTIONS, 1.0),
    ("def add(a, b):\n    return a - b", ASSERTIONS, 0.0), ("def add(a, b):\n    return 3", ASSERTIONS, 0.0),
    ("def add(a, b):\n    pass", ASSERTIONS, 0.0), ("def plus(a, b):\n    return a + b", ASSERTIONS, 0.0),
    ("def add(a, b)\n    return a + b", ASSERTIONS, 0.0), ("def add(a):\n    return a", ASSERTIONS, 0.0),
    ("", ASSERTIONS, 0.0),
    (ADD, "assert add(1, 2) ==", 0.0), (ADD, "import unknown", 0.0), (ADD, [*ASSERTIONS, "assert add(1, 1) == 3"], 0.0),
]
CODE_TEXTS = [
    (f"Thus\n```py\n{ADD}\n```\nDone.", 1.0, ""), (f"```python3\n{ADD}\n```", 1.0, ""),
    (f"```Python \n{ADD}\n```", 1.0, ""), (f"```python\nadd = min\n```\nNo:\n```python\n{ADD}\n```", 1.0, ""),
    (f"```python\n{ADD}\n```\nNo:\n```python\nadd = min\n```", 0.0, ""), (ADD, 0.0, "unparsed"),
    (f"```\n{ADD}\n```", 0.0, "unparsed"), (f"```cpp\n{ADD}\n```", 0.0, "unparsed"), ("", 0.0, "unparsed"),
    (f"```python\n{ADD}\n", 0.0, "unparsed"), (rf"\boxed{{{ADD}}}", 0.0, "unparsed"),
    (f"```python\nadd = min\n```\n```text\n{ADD}\n```", 0.0, ""), (f"```python\n{ADD}\n```\n```text\n3\n```", 1.0, ""),
]
COUNTDOWN = [
    ("<answer>3+9*5</answer>", 1.0), ("<answer>(5*9)+3</answer>", 1.0),
    ("<answer>1+1</answer><answer>3+9*5</answer>", 1.0),
    ("<answer>3+9*5</answer><answer>1+1</answer>", 0.0), ("<answer>48</answer>", 0.0), ("<answer>3*9+5</answer>", 0.0),
    ("3+9*5", 0.0), (r"\boxed{3+9*5}", 0.0), ("<answer>3+9*5=48</answer>", 0.0), ("<answer>9**9**9**9</answer>", 0.0),
]

def boxed(verifier, rows):
    judged = lambda reward: (0.0, "unparsed") if reward is None else (reward, "")
    return [(verifier, f"So \\boxed{{{answer}}}.", gold, *judged(reward)) for answer, gold, reward in rows]

def block(program):
    return f"So\n```python\n{program}\n```"

ROWS = [
    *boxed("math", [(*row, 1.0) for row in MATH_RIGHT]), *boxed("math", [(*row, 0.0) for row in MATH_WRONG]),
    *(("math", *row) for row in MATH_TEXTS), *boxed("number", NUMBERS), *(("number", *row) for row in NUMBER_TEXTS),
    *boxed("choice", CHOICES), *(("choice", *row) for row in CHOICE_TEXTS),
    *(("code", block(program), json.dumps(gold), reward, "") for program, gold, reward in PROGRAMS),
    *(("code", text, json.dumps(ASSERTIONS), *rest) for text, *rest in CODE_TEXTS),
    *(("countdown", text, GOLD, reward, "") for text, reward in COUNTDOWN),
    ("countdown", "<answer>1.5*2</answer>", "1 5 2 : 3 ", 0.0, ""),
]

@pytest.fixture(autouse=True, scope="module")
def scratch(tmp_path_factory):
    """Where this module's graders, which are new ones, keep their temporary folders."""
    folder = tmp_path_factory.mktemp("scratch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tasks, "IDLE_GRADERS", queue.SimpleQueue())
        assert tasks.grade(("math", r"\boxed{5}", "5"), 30) == (1.0, "")  # math-verify is loaded
        yield folder

def solutions_alive(scratch):
    """The processes that run a solution in a folder of this module."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"run_solution" in (process / "cmdline").read_bytes() and str(scratch) in os.readlink(process / "cwd"):
                found.append(process.name)
        except OSError:  # it has ended by now
            pass
    return found

@pytest.fixture(scope="module")
def replies(scratch):
    assert len(ROWS) >= 150
    questions = [row[:3] for row in ROWS]
    return dict(zip(questions, grade_all(questions, 10)))

@pytest.mark.parametrize("row", ROWS, ids=lambda row: ascii(f"{row[0]} {row[1][-50:]} {row[2][-20:]}"))
def test_row(row, replies):
    assert replies[row[:3]] == row[3:]

@pytest.mark.parametrize("answer, gold", [
    ("1" * 5000, "5"), ("9" * 100_000, "5"), ("1+" * 3000 + "1", "5"), ("(" * 3000 + "5" + ")" * 3000, "6"),
    ("x" * 5000 + "=5", "6"), (r"\frac{1}{" * 300 + "2" + "}" * 300, "5"), (r"\left(" * 100, "5"),
    (r"\text{" + "a" * 9999, "b"),
    ("\ud800", "5"), ("\0", "5"), (r"\input{/etc/passwd}", "5"), (r"\undefined\command", "5"), ("_^_^", "5")],
    ids=lambda value: str(value)[:20])
def test_odd_answers_score_0(answer, gold):
    start = time.monotonic()
    assert tasks.grade(("math", f"\\boxed{{{answer}}}", gold), 1)[0] == 0
    assert time.monotonic() - start < 2.5

TOWERS = ["9^{9^{9^9}}", "10^8!", "(10^8)!", "(x+y+z+1)^{200}", "2^{2^{2^{2^{2^{2}}}}}"]

@pytest.mark.parametrize("tower", TOWERS)
def test_towers_time_out(tower):
    tasks.grade(("math", r"\boxed{5}", "5"), 30)  # a grader is ready
    start = time.monotonic()
    assert tasks.grade(("math", f"\\boxed{{{tower}}}", "5"), 1) == (0.0, "timeout")
    assert 0.9 < time.monotonic() - start < 2.5

def test_towers_do_not_harm_their_batch():
    good = [("math", rf"\boxed{{{n}}}", str(n % 3)) for n in range(9)]
    code = [("code", block(ADD), json.dumps(ASSERTIONS)), ("code", block("while True: pass"), json.dumps(ASSERTIONS))]
    bad = [("math", f"\\boxed{{{tower}}}", "5") for tower in TOWERS[:2]]
    questions = [*good[:3], *bad, *code, *good[3:]]
    wanted = [(1.0, "")] * 3 + [(0.0, "timeout")] * 2 + [(1.0, ""), (0.0, "timeout")] + [(0.0, "")] * 6
    assert grade_all(questions, 1) == wanted

def test_a_killed_grader_is_replaced():
    tasks.grade(("math", r"\boxed{5}", "5"), 30)
    while not tasks.IDLE_GRADERS.empty():
        grader = tasks.IDLE_GRADERS.get()
    tasks.IDLE_GRADERS.put(grader)
    killer = threading.Timer(0.5, os.kill, (grader.pid, signal.SIGKILL))
    start = time.monotonic()
    killer.start()
    assert tasks.grade(("math", rf"\boxed{{{TOWERS[0]}}}", "5"), 30) == (0.0, "timeout")
    assert time.monotonic() - start < 5 and grader.poll() is not None
    assert tasks.grade(("math", r"\boxed{5}", "5"), 30) == (1.0, "")
    assert tasks.IDLE_GRADERS.get().pid != grader.pid

# Bombs are small here, so that a verifier that lets them through does not harm the machine. {mark} is a new file.
REFUSED = {  # the program goes on to the right answer where nothing stops it
    "fork": "import os\nfor _ in range(3): os.fork()",
    "fork and sleep": "import os, time\nif not os.fork(): time.sleep(20)",
    "forkpty": "import os\nos.forkpty()",
    "subprocess": "import subprocess\nsubprocess.run(['touch', '{mark}'])",
    "multiprocessing": "import multiprocessing\nmultiprocessing.Process(target=open, args=('{mark}', 'w')).start()",
    "os.system": "import os\nassert not os.system('touch {mark}')",
    "os.popen": "import os\nos.popen('touch {mark}').read()",
    "os.posix_spawn": "import os\nos.posix_spawn('/bin/touch', ['touch', '{mark}'], {{}})",
    "os.spawnlp": "import os\nos.spawnlp(os.P_WAIT, 'touch', 'touch', '{mark}')",
    "os.execlp": "import os\nos.execlp('sh', 'sh', '-c', 'touch {mark}; echo 7')",
    "open": "open('{mark}', 'w').write('x')",
    "append": "open('{mark}', 'a').close()",
    "exclusive": "open('{mark}', 'x').close()",
    "os.open": "import os\nos.open('{mark}', os.O_CREAT | os.O_WRONLY)",
    "io.FileIO": "import io\nio.FileIO('{mark}', 'w')",
    "pathlib": "import pathlib\npathlib.Path('{mark}').write_text('x')",
    "touch": "import pathlib\npathlib.Path('{mark}').touch()",
    "mkdir": "import os\nos.mkdir('{mark}')",
    "symlink": "import os\nos.symlink('/etc/passwd', '{mark}')",
    "shutil": "import shutil, sys\nshutil.copy(shutil.__file__, '{mark}')",
    "tempfile": "import tempfile\ntempfile.mkdtemp()",
    "sqlite3": "import sqlite3\nsqlite3.connect('{mark}').execute('create table t (x)')",
    "shelve": "import shelve\nshelve.open('{mark}')",
    "relative": "open('marker', 'w').write('x')",
    "relative os.open": "import os\nos.open('marker', os.O_CREAT | os.O_WRONLY)",
    "overwrite": "import os\nopen('job.json', 'w').close()",
    "remove": "import os\nos.remove('job.json')",
    "rename": "import os\nos.rename('job.json', '{mark}')",
    "chdir": "import os\nos.chdir('/')",
    "socket": "import socket\nsocket.socket()",
    "urllib": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
    "ctypes": "import ctypes\nctypes.CDLL(None).getpid()",
    "read /etc/passwd": "open('/etc/passwd').read()",
    "read by os.open": "import os\nos.read(os.open('/etc/passwd', os.O_RDONLY), 9)",
    "read /proc": "open('/proc/self/environ').read()",
    "read its own tests": "open('job.json').read()",
    "read through ..": "import os\nopen(os.__file__ + '/../../../../../../../../../etc/passwd').read()",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)",
    "kill the group": "import os\nos.killpg(os.getpgid(os.getppid()), 9)",
    "lift the limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
}
STOPPED = {
    "memory": "x = bytearray(8 * 2**30)",
    "memory by doubling": "x = [0]\nwhile len(x) < 2**30: x += x",
    "flood of stdout": "while True: print('passed' * 1000)",
    "flood of stderr": "import sys\nwhile True: sys.stderr.write('x' * 10000)",
    "silent flood": "import os\nwhile True:\n    try: os.write(1, b'x' * 10000)\n    except BaseException: pass",
    "endless loop": "while True: pass",
    "loop that catches all": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "huge power": "print(9 ** 9 ** 9)",
    "sleep": "import time\ntime.sleep(20)",
    "sleeping thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(20,)).start()",
    "deaf to signals": "import signal\nfor s in (1, 2, 14, 15, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
    "setsid": "import os, time\nos.setsid()\ntime.sleep(20)",
    "deep recursion": "def f(n): return f(n + 1)\nf(0)",
    "deeper recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)",
    "crash": "import sys\nsys.setrecursionlimit(10**9)\nrepr(type('A', (), {'__repr__': lambda s: repr(s)})())",
    "close stdout": "import os\nos.close(1)",
    "close sys.stdout": "import sys\nsys.stdout.close()",
    "SystemExit": "raise SystemExit",
    "KeyboardInterrupt": "raise KeyboardInterrupt",
    "exit": "exit()", "quit": "quit(0)", "sys.exit": "import sys\nsys.exit(0)", "os._exit": "import os\nos._exit(0)",
    "os.abort": "import os\nos.abort()", "print passed": "print('passed')\nimport sys\nsys.exit(0)",
    "bad source": "x = " + "(" * 10_000,
}

@pytest.fixture
def marks(tmp_path):
    home = pwd.getpwuid(os.getuid()).pw_dir
    paths = [Path(folder, f"marker-{os.getpid()}") for folder in ("/dev/shm", home, tmp_path)]
    yield paths
    for path in paths:
        path.unlink(missing_ok=True)

def check_no_trace(scratch, marks=()):
    assert solutions_alive(scratch) == []
    assert list(scratch.iterdir()) == []
    assert not any(os.path.lexists(path) for path in (*marks, "marker"))

def indent(program):
    return program.replace("\n", "\n    ")

@pytest.mark.parametrize("template", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(template, marks, scratch):
    """It scores 0 in both kinds of tests, and does nothing where the program goes on after the refusal, either."""
    actions = sorted({template.format(mark=mark) for mark in marks})
    plain, called, swallowed = (
        [("code", block(program(action)), gold) for action in actions] for program, gold in (
            (lambda action: f"{action}\nprint(7)", json.dumps(dict(inputs=[""], outputs=["7"]))),
            (lambda action: f"def add(a, b):\n    {indent(action)}\n    return a + b", json.dumps(ASSERTIONS)),
            (lambda action: f"try:\n    {indent(action)}\nexcept BaseException: pass", json.dumps(ASSERTIONS))))
    start = time.monotonic()
    rewards = [reward for reward, _ in grade_all([*plain, *called, *swallowed], 5)]
    assert rewards == [0] * len(rewards)
    assert time.monotonic() - start < 5
    check_no_trace(scratch, marks)

@pytest.mark.parametrize("action", STOPPED.values(), ids=STOPPED)
def test_what_is_stopped(action, scratch):
    """Before the function that the assertions want is there, and in the call."""
    programs = f"{action}\n{ADD}", f"def add(a, b):\n    {indent(action)}\n    return a + b"
    start = time.monotonic()
    replies = grade_all([("code", block(program), json.dumps(ASSERTIONS)) for program in programs], 1)
    assert [reward for reward, _ in replies] == [0, 0]
    assert time.monotonic() - start < 3.5
    check_no_trace(scratch)

def test_an_endless_program_times_out_once_for_all_cases():
    cases = dict(inputs=["7"] * 5, outputs=["7"] * 5)
    start = time.monotonic()
    question = "code", block("import time\ntime.sleep(0.4)\nprint(input())"), json.dumps(cases)
    assert tasks.grade(question, 1) == (0.0, "timeout")
    assert time.monotonic() - start < 2.5

@pytest.mark.parametrize("trick", [
    "print('passed')", "print('True')", "__name__ = 'passed'", "assert True", "'add(1, 2) == 3'"])
def test_tricks_score_0(trick):
    program = f"{trick}\ndef add(a, b):\n    return a - b"
    assert tasks.grade(("code", block(program), json.dumps(ASSERTIONS)), 5) == (0.0, "")

def test_a_program_cannot_see_what_is_expected_of_it():
    program, secret = "import os, sys\nprint('secret' in f'{os.environ} {sys.argv} {globals()}')", ["False secret"]
    assert tasks.grade(("code", block(program), json.dumps(dict(inputs=[""], outputs=secret))), 5) == (0.0, "")
    assert tasks.grade(("code", block(program), json.dumps(dict(inputs=[""], outputs=["False"]))), 5) == (1.0, "")

LEGIT = {  # from the input "3\n1 2 3\n" to the output 6
    "input": "n = int(input())\nprint(sum(map(int, input().split())))",
    "sys.stdin.read": "import sys\nprint(sum(map(int, sys.stdin.read().split()[1:])))",
    "sys.stdin": "import sys\nn, line = sys.stdin\nprint(sum(map(int, line.split())))",
    "readline": "import sys\ninput = sys.stdin.readline\ninput()\nprint(sum(map(int, input().split())))",
    "open(0)": "print(sum(map(int, open(0).read().split()[1:])))",
    "stdin.buffer": "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))",
    "os.read": "import os\nprint(sum(map(int, os.read(0, 10**6).split()[1:])))",
    "sys.stdout.write": "import sys\nsys.stdout.write(str(sum(map(int, sys.stdin.read().split()[1:]))))",
    "stdout.buffer": "import sys\nsys.stdout.buffer.write(b'6')",
    "until EOF": "total = -3\ntry:\n    while True: total += sum(map(int, input().split()))\n"
                 "except EOFError: print(total)",
    "main": "def main():\n    print(6)\nif __name__ == '__main__':\n    main()",
    "exit": "print(6)\nexit()", "sys.exit": "import sys\nprint(6)\nsys.exit(0)",
    "globals": "total = 0\ndef add(x):\n    global total\n    total += x\n[add(x) for x in (1, 2, 3)]\nprint(total)",
    "recursion": "import sys\nsys.setrecursionlimit(10**6)\n"
                 "def f(n): return n and 1 + f(n - 1)\nprint(f(20000) - 19994)",
    "big numbers": "print(6 if len(str(2**10000)) == 3011 else 0)",
    "many numbers": "print(6 if sum(range(10**6)) == 499999500000 else 0)",
    "100 MB": "x = bytearray(10**8)\nprint(6)",
    "collections": "from collections import Counter, defaultdict, deque\n"
                   "d = defaultdict(int, Counter('aab'))\n"
                   "print(deque([d['a'] + d['b'] + 3])[0])",
    "namedtuple": "from collections import namedtuple\nprint(sum(namedtuple('P', 'x y')(2, 4)))",
    "heapq": "import heapq\nh = [9, 6, 7]\nheapq.heapify(h)\nprint(heapq.heappop(h))",
    "math": "import math\nprint(math.gcd(12, 18) * math.isqrt(36) // 6)",
    "itertools": "import itertools\nprint(len([*itertools.permutations('abc')]))",
    "functools": "from functools import lru_cache, reduce\n"
                 "@lru_cache(None)\ndef f(n): return n * f(n - 1) if n else 1\n"
                 "print(reduce(max, map(f, range(4))))",
    "bisect": "import bisect\nprint(bisect.bisect_left(range(10), 6))",
    "re": "import re\nprint(re.findall(r'\\d', 'a6')[0])",
    "string": "import string\nprint(string.ascii_lowercase.index('g'))",
    "random": "import random\nrandom.seed(0)\nprint(random.choice([6]))",
    "datetime": "import datetime\nprint(datetime.datetime.strptime('2024-06-01', '%Y-%m-%d').month)",
    "typing": "from typing import List, Optional\n"
              "def f(x: List[int]) -> Optional[int]: return sum(x)\nprint(f([1, 2, 3]))",
    "decimal": "from decimal import Decimal, getcontext\ngetcontext().prec = 50\nprint(int(Decimal('0.1') * 60))",
    "fractions": "from fractions import Fraction\nprint(Fraction(1, 2) * 12)",
    "dataclasses": "from dataclasses import dataclass\n"
                   "@dataclass\nclass P:\n    '''A point.'''\n    x: int\nprint(P(6).x)",
    "enum": "from enum import Enum, auto\nclass E(Enum):\n    A = 6\nprint(E.A.value)",
    "json": "import json\nprint(json.loads('[6]')[0])",
    "threading": "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**26)\n"
                 "t = threading.Thread(target=lambda: print(6))\nt.start()\nt.join()",
    "array": "from array import array\nprint(sum(array('i', [1, 2, 3])))",
    "copy": "import copy\nprint(copy.deepcopy([[6]])[0][0])",
    "statistics": "import statistics\nprint(statistics.median([5, 6, 7]))",
    "operator": "from operator import itemgetter\nprint(itemgetter(0)([6]))",
    "io": "import io, sys\nsys.stdin = io.StringIO(sys.stdin.read())\nprint(2 * int(input()))",
    "time": "import time\ntime.perf_counter()\ntime.sleep(0.01)\nprint(6)",
    "other modules": "import abc, ast, base64, calendar, cmath, contextlib, gc, hashlib, inspect, numbers, os, pprint\n"
                     "import queue, struct, textwrap, traceback, types, unittest, uuid, warnings, weakref\n"
                     "gc.disable()\nprint(6)",
}

@pytest.mark.parametrize("program", LEGIT.values(), ids=LEGIT)
def test_honest_programs_score_1(program, scratch):
    gold = json.dumps(dict(inputs=["3\n1 2 3\n"], outputs=["6\n"]))
    assert tasks.grade(("code", block(program), gold), 10) == (1.0, "")
    check_no_trace(scratch)

@pytest.mark.parametrize("question, expected", [
    (("number", "#### " + " " * 5000 + "?", "5"), (0.0, "unparsed")),
    (("number", "\\boxed{" + "a " * 5000 + "?}", "5"), (0.0, "unparsed")),
    (("number", r"\boxed{\text{18}}", "18"), (1.0, "")), (("number", r"\boxed{1{,}000}", "1000"), (1.0, "")),
    (("number", r"\boxed{\frac{3}{4}}", "0.75"), (1.0, "")), (("number", "#### **18**", "18"), (1.0, "")),
    (("math", r"\boxed{\$18}", "18"), (1.0, "")), (("math", r"\fbox{5}", "5"), (1.0, "")),
    (("choice", r"\boxed{(A) or (B)}", "A"), (0.0, "unparsed")),
    (("choice", r"\boxed{A. or B.}", "A"), (0.0, "unparsed")),
    (("choice", r"\boxed{(A), (C)}", "A"), (0.0, "unparsed")), (("choice", r"\boxed{\mathbf{(B)}}", "B"), (1.0, "")),
    (("choice", r"\boxed{A. London}", "A"), (1.0, ""))], ids=lambda value: str(value)[:40])
def test_answers_that_need_care(question, expected):
    started = time.monotonic()
    assert tasks.grade(question) == expected
    assert time.monotonic() - started < 3

ADDS = json.dumps("assert add(1, 2) == 3")
SIX = json.dumps({"inputs": ["1"], "outputs": ["6"]})

@pytest.mark.parametrize("program, gold, reward", [
    ("def add(a, b): return a + b\nprint(add(1, 2))", ADDS, 1.0),  # an example of its use
    ("def add(a, b): return a + b\nprint('add')\nimport sys\nsys.exit(0)", ADDS, 0.0),
    ("import logging, socket, concurrent.futures, dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(6)",
     SIX, 1.0),
    ("print(6)\nraise ValueError", SIX, 0.0), ("import os\nos.mkfifo('fifo')\nprint(6)", SIX, 0.0),
    ("import os\nos.mknod('node')\nprint(6)", SIX, 0.0), ("import os\nos.setsid()\nprint(6)", SIX, 0.0),
    ("import socket\nsocket.socket()\nprint(6)", SIX, 0.0),
    ("def f(): pass\nf.__code__ = f.__code__\nprint(6)", SIX, 0.0)])
def test_programs_that_need_care(program, gold, reward):
    assert tasks.grade(("code", block(program), gold), 10) == (reward, "")

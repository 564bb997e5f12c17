"""Rows of the data sets of the hub, in their real schemas, and what is to be read from them."""

import base64
import json
import pickle
import zlib
from dataclasses import dataclass


@dataclass
class Row:
    """A row as it is on the hub, what is to be read from it, and an answer that is wrong."""

    columns: dict
    problem: str
    gold: str | tuple[str, ...]
    level: str = ""
    wrong: str = "12345"
    right: str = ""  # an answer; the gold itself if empty
    images: tuple[bytes, ...] = ()


@dataclass
class HubSet:
    """A data set: where it is, what judges its answers, and its splits."""

    path: str
    splits: dict[str, list[Row]]
    train: str | None = None  # the split to train on
    test: str | None = None  # the split to evaluate on
    verifier: str = "math"
    configuration: str | None = None
    files: str | None = None  # of a split, where the hub's repository has to be told which


def gsm8k(question, solution, gold):
    """A row of gsm8k."""
    columns = dict(question=question, answer=f"{solution}\n#### {gold}")
    return Row(columns, question, gold)


def math(problem, level, solution, gold, wrong):
    """A row of MATH."""
    columns = dict(problem=problem, level=level, type="Algebra", solution=solution)
    return Row(columns, problem, gold, level, wrong)


def math500(problem, level, answer, wrong):
    """A row of MATH-500."""
    columns = dict(
        problem=problem,
        solution=f"Thus $\\boxed{{{answer}}}$.",
        answer=answer,
        subject="Precalculus",
        level=level,
        unique_id=f"test/precalculus/{level}.json",
    )
    return Row(columns, problem, answer, str(level), wrong)


def open_rs(problem, level, answer, wrong="12345"):
    """A row of Open-RS."""
    columns = dict(problem=problem, solution=f"Thus {answer}.", answer=answer, level=level)
    return Row(columns, problem, answer, level, wrong)


def aime24(problem, answer, gold):
    """A row of AIME 2024, whose answers have leading zeros."""
    columns = dict(
        id=60,
        problem=problem,
        solution=f"So \\boxed{{{answer}}}.",
        answer=answer,
        year="2024",
        url="https://artofproblemsolving.com/wiki/index.php/2024_AIME_I_Problems/Problem_1",
    )
    return Row(columns, problem, gold)


def aime25(problem, answer, number):
    """A row of AIME 2025."""
    return Row(dict(problem=problem, answer=answer, id=number), problem, answer)


def amc23(question, answer, gold):
    """A row of AMC 2023, whose answers are floats."""
    url = "https://artofproblemsolving.com/wiki/index.php/2022_AMC_12A_Problems/Problem_1"
    return Row(dict(id=0, question=question, answer=answer, url=url), question, gold)


def minerva(question, answer, wrong="12345"):
    """A row of Minerva."""
    return Row(dict(question=question, answer=answer), question, answer, wrong=wrong)


def olympiadbench(question, answers, gold, wrong):
    """A row of OlympiadBench, whose answers are a list."""
    columns = dict(
        id=1606,
        question=question,
        solution=["Let $n=1$."],
        final_answer=answers,
        context=None,
        modality="Text-only",
        difficulty="Competition",
        is_multiple_answer=len(answers) > 1,
        unit=None,
        answer_type="Expression",
        error=None,
        question_type="Open-ended",
        subfield="Algebra",
        subject="Math",
        language="English",
    )
    return Row(columns, question, gold, wrong=wrong)


def arc(question, options, labels, label, gold, wrong):
    """A row of ARC-Challenge, whose labels are letters or numbers."""
    columns = dict(
        id="Mercury_7175875",
        question=question,
        choices=dict(text=options, label=labels),
        answerKey=label,
    )
    return Row(columns, lettered(question, options), gold, wrong=wrong)


def mmlu_pro(question, options, index, category, wrong):
    """A row of MMLU-Pro, with up to ten options."""
    columns = dict(
        question_id=70,
        question=question,
        options=options,
        answer="ABCDEFGHIJ"[index],
        answer_index=index,
        cot_content="",
        category=category,
        src="ori_mmlu-business_ethics",
    )
    return Row(columns, lettered(question, options), "ABCDEFGHIJ"[index], category, wrong)


def lettered(question, options):
    """What a policy is asked."""
    letters = "ABCDEFGHIJ"[: len(options)]
    lines = [f"{letter}. {text}" for letter, text in zip(letters, options, strict=True)]
    return "\n".join([question, *lines])


IN_AND_OUT = "Read from standard input and write to standard output."
DOUBLE = "```python\nprint(2 * int(input()))\n```"
TRIPLE = "```python\nprint(3 * int(input()))\n```"
DOUBLE_FUNCTION = "```python\nclass Solution:\n    def double(self, x):\n        return 2 * x\n```"
TRIPLE_FUNCTION = DOUBLE_FUNCTION.replace("2", "3")
STARTER = "class Solution:\n    def double(self, x: int) -> int:\n        "


def code_contests(description):
    """A row of CodeContests: as many columns as on the hub, but for some of the last ones."""
    columns = dict(
        name="1575_A. Another Sorting Problem",
        description=description,
        public_tests=dict(input=["1\n"], output=["2\n"]),
        private_tests=dict(input=[], output=[]),
        generated_tests=dict(input=["5\n", "0\n"], output=["10\n", "0\n"]),
        source=2,
        difficulty=7,
        solutions=dict(language=[3], solution=["print(2 * int(input()))"]),
        incorrect_solutions=dict(language=[3], solution=["print(int(input()))"]),
        cf_contest_id=1575,
        cf_index="A",
        cf_points=0.0,
        cf_rating=1100,
        cf_tags=["data structures", "sortings"],
        is_description_translated=False,
        untranslated_description="",
        time_limit=dict(seconds=2, nanos=0),
        memory_limit_bytes=256000000,
        input_file="",
        output_file="",
    )
    tests = dict(inputs=["1\n", "5\n", "0\n"], outputs=["2\n", "10\n", "0\n"])
    asked = f"{description}\n\n{IN_AND_OUT}"
    return Row(columns, asked, json.dumps(tests), wrong=TRIPLE, right=DOUBLE)


def taco(question, difficulty, starter="", **tests):
    """A row of TACO, whose tests are JSON: of standard input, or of a function."""
    columns = {
        "question": question,
        "solutions": json.dumps(["print(2 * int(input()))"]),
        "starter_code": starter,
        "input_output": json.dumps(tests),
        "difficulty": difficulty,
        "raw_tags": "['math']",
        "name": None,
        "source": "codeforces",
        "tags": "['Mathematics']",
        "skill_types": "[]",
        "url": "https://codeforces.com/problemset/problem/1422/C",
        "Expected Auxiliary Space": None,
        "time_limit": "1 second",
        "date": "2020-10-04",
        "picture_num": "0",
        "memory_limit": "256 megabytes",
        "Expected Time Complexity": None,
    }
    return programming(columns, question, starter, tests, difficulty)


def human_eval(name):
    """A row of HumanEval: the head of a function, and the definition of a check."""
    head = f'\ndef {name}(x: int) -> int:\n    """ Twice x\n    >>> {name}(1)\n    2\n    """\n'
    test = "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate(4) == 8\n"
    columns = dict(
        task_id="HumanEval/0",
        prompt=head,
        canonical_solution="    return 2 * x\n",
        test=test,
        entry_point=name,
    )
    asked = f"Complete this function:\n```python\n{head}\n```"
    right, wrong = (f"```python\n{head}    return {n} * x\n```" for n in (2, 3))
    gold = json.dumps(dict(head=head, assertions=f"{test}\ncheck({name})"))
    return Row(columns, asked, gold, wrong=wrong, right=right)


def livecodebench(question, difficulty, date, function=False, packed=True):
    """A row of LiveCodeBench: AtCoder's by standard input, LeetCode's by a function's name."""
    kind = "functional" if function else "stdin"
    public = [dict(input="1", output="2", testtype=kind)]
    private = json.dumps([dict(input="5", output="10", testtype=kind)])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    starter = STARTER if function else ""
    columns = dict(
        question_title="Doubling",
        question_content=question,
        platform="leetcode" if function else "atcoder",
        question_id="abc301_a",
        contest_id="abc301",
        contest_date=date,
        starter_code=starter,
        difficulty=difficulty,
        public_test_cases=json.dumps(public),
        private_test_cases=private,
        metadata=json.dumps(dict(func_name="double") if function else {}),
    )
    if function:
        tests = dict(fn_name="double", inputs=[[1], [5]], outputs=[2, 10])
    else:
        tests = dict(inputs=["1", "5"], outputs=["2", "10"])
    return programming(columns, question, starter, tests, difficulty)


def programming(columns, question, starter, tests, difficulty):
    """A row with a task to double a number, from standard input or by a function."""
    task = f"Complete this code:\n```python\n{starter}\n```" if starter else IN_AND_OUT
    right, wrong = (DOUBLE_FUNCTION, TRIPLE_FUNCTION) if starter else (DOUBLE, TRIPLE)
    gold = json.dumps(tests)
    return Row(columns, f"{question}\n\n{task}", gold, difficulty, wrong=wrong, right=right)


LIVECODEBENCH = dict(path="lighteval/code_generation_lite", test="test", verifier="code")


def geo3k(problem, answer, wrong, shown):
    """A row of Geometry3K, whose questions begin with the place of their image."""
    columns = dict(images=[stored(shown)], problem=problem, answer=answer)
    return Row(columns, problem, answer, wrong=wrong, images=(shown,))


def mathvision(question, options, answer, level, gold, wrong, shown):
    """A row of MathVision, some of whose answers are letters of options."""
    columns = dict(
        id="4",
        question=question,
        options=options,
        image="images/4.jpg",
        decoded_image=stored(shown),
        answer=answer,
        solution=None,
        level=level,
        subject="counting",
    )
    problem = lettered(question, options)
    right = "" if isinstance(gold, str) else f"\\boxed{{{answer}}}"
    return Row(columns, problem, gold, str(level), wrong, right, images=(shown,))


def mathverse(question, version, answer, problem, wrong, shown):
    """A row of MathVerse, some of whose questions stand in the image alone."""
    columns = dict(
        sample_index="1",
        problem_index="1",
        problem_version=version,
        question=question,
        image=stored(shown),
        answer=answer,
        question_type="multi-choice",
        query_wo="Please directly answer the question.",
    )
    return Row(columns, problem, answer, version, wrong, images=(shown,))


def pmc_vqa(question, choices, label, problem, wrong, shown):
    """A row of PMC-VQA, some of whose choices begin with their letters."""
    names = [f"choice {letter}" for letter in "abcd"]
    columns = {
        "image": stored(shown),
        "caption": "Figure 1",
        "question": question,
        "answer": choices["ABCD".index(label)],
        **dict(zip(names, choices, strict=True)),
        "answer label": label,
    }
    return Row(columns, problem, label, wrong=wrong, images=(shown,))


def stored(encoded):
    """An image as the hub's files have it."""
    return dict(bytes=encoded, path="0.png")


SETS = {
    "gsm8k": HubSet(
        "openai/gsm8k",
        {
            "train": [
                gsm8k(
                    "How many clips?",
                    "In May: 48/2 = <<48/2=24>>24.\nIn all: 48+24 = <<48+24=72>>72.",
                    "72",
                ),
                gsm8k("How much profit?", "He has 2*500=$<<2*500=1000>>1,000.", "1,000"),
            ],
            "test": [
                gsm8k(
                    "How many dollars?",
                    "Janet sells 16 - 3 - 4 = <<16-3-4=9>>9.\n9 * 2 = $<<9*2=18>>18.",
                    "18",
                ),
                gsm8k(
                    "How much is left?", "It is 70000 * 3 = <<70000*3=210000>>210,000.", "210,000"
                ),
                gsm8k("What change?", "It is 2 - 7 = <<2-7=-5>>-5.", "-5"),
            ],
        },
        train="train",
        test="test",
        verifier="number",
        configuration="main",
    ),
    "math": HubSet(
        "DigitalLearningGmbH/MATH-lighteval",
        {
            "train": [
                math(
                    "Half of 1?",
                    "Level 1",
                    r"So $\boxed{1}/2$ is $\boxed{\frac{1}{2}}$.",
                    gold=r"\frac{1}{2}",
                    wrong="1",
                ),
                math(
                    "What is $f$?",
                    "Level ?",
                    r"It is \[\boxed{x^{2}+1}.\]",
                    gold="x^{2}+1",
                    wrong="x^{2}-1",
                ),
            ],
            "test": [
                math(
                    "Which set?",
                    "Level 3",
                    r"It is $\boxed{\{1,2\}}$.",
                    gold=r"\{1,2\}",
                    wrong=r"\{1,3\}",
                ),
                math(
                    "Which $x$?",
                    "Level 5",
                    r"Hence $\boxed{x \in [-2,7]}$",
                    gold=r"x \in [-2,7]",
                    wrong="[-2,6]",
                ),
                math(
                    "Who?",
                    "Level 2",
                    r"It is $\boxed{\text{Evelyn}}$.",
                    gold=r"\text{Evelyn}",
                    wrong=r"\text{Carla}",
                ),
            ],
        },
        train="train",
        test="test",
    ),
    "math500": HubSet(
        "HuggingFaceH4/MATH-500",
        {
            "test": [
                math500(
                    "Polar?",
                    2,
                    r"\left( 3, \frac{\pi}{2} \right)",
                    wrong=r"\left( 2, \frac{\pi}{2} \right)",
                ),
                math500("Sums?", 5, "p - q", wrong="p + q"),
                math500("Degrees?", 1, r"90^\circ", wrong=r"60^\circ"),
                math500(
                    "Vector?",
                    4,
                    r"\begin{pmatrix} -2 \\ 1 \end{pmatrix}",
                    wrong=r"\begin{pmatrix} -2 \\ 2 \end{pmatrix}",
                ),
            ],
        },
        test="test",
    ),
    "open-rs": HubSet(
        "knoveleng/open-rs",
        {
            "train": [
                open_rs("Range?", "Hard", r"(-\infty, 3)", wrong=r"(-\infty, 4)"),
                open_rs("Count?", "Easy", "6"),
                open_rs("Root?", "Hard", r"\sqrt{2}", wrong="2"),
            ],
        },
        train="train",
    ),
    "aime24": HubSet(
        "HuggingFaceH4/aime_2024",
        {
            "train": [
                aime24("Minutes?", "204", gold="204"),
                aime24("Torus?", "033", gold="33"),
                aime24("Least?", "005", gold="5"),
            ],
        },
        test="train",
    ),
    "aime25": HubSet(
        "math-ai/aime25",
        {"test": [aime25("Bases?", "70", "0"), aime25("Area?", "588", "1")]},
        test="test",
    ),
    "amc23": HubSet(
        "math-ai/amc23",
        {
            "test": [
                amc23("Fractions?", 27.0, gold="27"),
                amc23("Digits?", 0.5, gold="0.5"),
                amc23("Below?", -1.0, gold="-1"),
            ],
        },
        test="test",
    ),
    "minerva": HubSet(
        "math-ai/minervamath",
        {
            "test": [
                minerva(
                    "Refraction?",
                    r"\arcsin{1.3 \sin{\theta_w}}",
                    wrong=r"\arcsin{1.4 \sin{\theta_w}}",
                ),
                minerva("Redshift?", "4.5e33", wrong="4.5e32"),
                minerva("Magnitude?", "20"),
            ],
        },
        test="test",
    ),
    "olympiadbench": HubSet(
        "math-ai/olympiadbench",
        {
            "test": [
                olympiadbench("Ratio?", [r"$\frac{1}{2}$"], r"$\frac{1}{2}$", wrong=r"\frac{1}{3}"),
                olympiadbench("Number?", ["2"], "2", wrong="3"),
                olympiadbench("Roots?", ["$3$", "$-1$"], "$3$, $-1$", wrong="3"),
            ],
        },
        test="test",
    ),
    "arc": HubSet(
        "allenai/ai2_arc",
        {
            "train": [arc("Heat?", ["ice", "fire"], ["A", "B"], "B", gold="B", wrong="A")],
            "test": [
                arc("Day?", ["24 h", "7 h"], ["A", "B"], "A", gold="A", wrong="B"),
                arc("Moon?", ["a", "b", "c", "d"], [*"1234"], "3", gold="C", wrong="D"),
            ],
        },
        test="test",
        verifier="choice",
        configuration="ARC-Challenge",
    ),
    "mmlu-pro": HubSet(
        "TIGER-Lab/MMLU-Pro",
        {
            "validation": [mmlu_pro("Why?", ["x", "y"], 0, "law", wrong="B")],
            "test": [
                mmlu_pro("Which?", [f"{i}." for i in range(10)], 9, "business", wrong="A"),
                mmlu_pro("Whose?", ["his", "hers", "its"], 1, "law", wrong="C"),
            ],
        },
        test="test",
        verifier="choice",
    ),
    "code-contests": HubSet(
        "deepmind/code_contests",
        {
            "train": [code_contests("Double one."), code_contests("Double two.")],
            "valid": [code_contests("Double three.")],
            "test": [code_contests("Double four.")],
        },
        train="train",
        test="test",
        verifier="code",
    ),
    "taco": HubSet(
        "BAAI/TACO",
        {
            "train": [
                taco("Double a.", "EASY", inputs=["1\n", "5\n"], outputs=["2\n", "10\n"]),
                taco("Double b.", "HARD", inputs=["7\n"], outputs=["14\n"]),
            ],
            "test": [
                taco("Double c.", "MEDIUM", inputs=["3\n"], outputs=["6\n"]),
                taco(
                    "Double d.",
                    "EASY",
                    starter=STARTER,
                    fn_name="double",
                    inputs=[[1], [5]],
                    outputs=[2, 10],
                ),
            ],
        },
        train="train",
        test="test",
        verifier="code",
        files="ALL/{split}-*.parquet",
    ),
    "human-eval": HubSet(
        "openai/openai_humaneval",
        {"test": [human_eval("double"), human_eval("twice")]},
        test="test",
        verifier="code",
        configuration="openai_humaneval",
    ),
    "livecodebench-v5": HubSet(
        **LIVECODEBENCH,
        splits={
            "test": [
                livecodebench("Double, please.", "easy", "2023-08-21T00:00:00"),
                livecodebench("Double it.", "hard", "2024-10-05T00:00:00", function=True),
                livecodebench("Double!", "medium", "2025-01-04T00:00:00", packed=False),
            ],
        },
        configuration="release_v5",
    ),
    "livecodebench-v6": HubSet(
        **LIVECODEBENCH,
        splits={
            "test": [
                livecodebench("Double, please.", "easy", "2024-08-03T00:00:00"),
                livecodebench("Double it.", "hard", "2025-04-05T00:00:00", function=True),
            ],
        },
        configuration="release_v6",
    ),
    "geo3k": HubSet(
        "hiyouga/geometry3k",
        {
            "train": [geo3k("<image>Find x.", "\\frac{5}{2}", "5", b"1")],
            "validation": [geo3k("<image>Find y.", "3", "4", b"2")],
            "test": [geo3k("<image>Find z.", "10 \\sqrt { 3 }", "10", b"3")],
        },
        train="train",
        test="test",
    ),
    "mathvision": HubSet(
        "MathLLMs/MathVision",
        {
            "test": [
                mathvision("<image1> How many?", [], "13", 2, "13", "12", b"1"),
                mathvision("<image1> Which?", [*"ABCDE"], "D", 1, "D", "A", b"2"),
                mathvision(
                    "<image1> Area?",
                    ["12", "15", "18", "20"],
                    "B",
                    5,
                    ("B", "15"),
                    r"\boxed{12}",
                    b"3",
                ),
            ],
            "testmini": [mathvision("<image1> Not this one.", [], "1", 1, "1", "2", b"4")],
        },
        test="test",
    ),
    "mathverse": HubSet(
        "AI4Math/MathVerse",
        {
            "testmini": [
                mathverse(
                    "Angle?\nChoices:\nA:45°\nB:60°",
                    "Text Dominant",
                    "B",
                    "Angle?\nChoices:\nA:45°\nB:60°",
                    "A",
                    b"1",
                ),
                mathverse("Side?", "Vision Intensive", "14", "Side?", "15", b"2"),
                mathverse(
                    "",
                    "Vision Only",
                    "C",
                    "Answer the question that stands in the image.",
                    "D",
                    b"3",
                ),
            ],
        },
        test="testmini",
        configuration="testmini",
    ),
    "pmc-vqa": HubSet(
        "mdwiratathya/PMC-VQA_small",
        {
            "train": [
                pmc_vqa(
                    "Which organ?",
                    [" A:Liver", " B:Heart ", " C:Lung", "D:Eye"],
                    "B",
                    "Which organ?\nA. Liver\nB. Heart\nC. Lung\nD. Eye",
                    "A",
                    b"1",
                ),
            ],
            "test": [
                pmc_vqa(
                    "Which method?",
                    ["CT", "MRI", "X-ray", "A scan: B"],
                    "A",
                    "Which method?\nA. CT\nB. MRI\nC. X-ray\nD. A scan: B",
                    "C",
                    b"2",
                ),
            ],
        },
        train="train",
        test="test",
        verifier="choice",
        files="data/{split}-00000-*.parquet",
    ),
}

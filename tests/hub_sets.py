"""Rows of the data sets of the hub, in their real schemas, and what is to be read from them."""

from dataclasses import dataclass


@dataclass
class Row:
    """A row as it is on the hub, what is to be read from it, and an answer that is wrong."""

    columns: dict
    problem: str
    gold: str
    level: str = ""
    wrong: str = "12345"


@dataclass
class HubSet:
    """A data set: where it is, what judges its answers, and its splits."""

    path: str
    splits: dict[str, list[Row]]
    train: str | None = None  # the split to train on
    test: str | None = None  # the split to evaluate on
    verifier: str = "math"
    configuration: str | None = None


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
}

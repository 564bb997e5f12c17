"""The tables of data sets: those of the hub, and those that are made here."""

from collections.abc import Callable
from dataclasses import dataclass

from rlvr.tasks.arithmetic import draw_arithmetic
from rlvr.tasks.cells import (
    code_contests_tests,
    function_to_write,
    human_eval_tests,
    letter_of,
    letter_or_option,
    livecodebench_tests,
    question_or_image,
    read_question,
    with_choices,
    with_options,
    with_starter,
)
from rlvr.tasks.countdown import draw_countdown
from rlvr.tasks.verifiers import VERIFIERS


@dataclass(frozen=True)
class Source:
    """Where a data set is, and which columns hold what. Several columns stand in a tuple."""

    path: str  # hub id, or local path
    problem: str | tuple[str, ...]  # the columns whose cells `ask` takes
    answer: str | tuple[str, ...]  # the columns whose cells `gold` takes
    images: str | None = None  # column whose cells rlvr.tasks.pictures reads
    train: str | None = None  # split to train on
    test: str | None = None  # split to evaluate on
    level: str | None = None  # column whose values are also evaluated by themselves
    verifier: str = "math"
    configuration: str | None = None  # of the hub's set
    files: str | None = None  # of the hub's set, in parquet: those of a split, where it says so
    since: tuple[str, str] | None = None  # a column of dates, and the first that is wanted
    ask: Callable = read_question  # cells -> question
    gold: Callable | None = None  # cells -> gold answer; as the verifier's entry says if None

    def columns(self, part: str) -> tuple[str, ...]:
        """The columns of `problem` or `answer`."""
        named = getattr(self, part)
        return (named,) if isinstance(named, str) else named

    def read_gold(self) -> Callable:
        """The function that reads a gold answer."""
        return self.gold or VERIFIERS[self.verifier].gold


LIVECODEBENCH = dict(
    path="lighteval/code_generation_lite",  # livecodebench's own, as files instead of a script
    problem=("question_content", "starter_code"),
    answer=("public_test_cases", "private_test_cases", "metadata"),
    test="test",
    level="difficulty",
    verifier="code",
    ask=with_starter,
    gold=livecodebench_tests,
)
DATASETS = {
    "gsm8k": Source(
        "openai/gsm8k",
        "question",
        "answer",
        train="train",
        test="test",
        verifier="number",
        configuration="main",
    ),
    "math": Source(
        "DigitalLearningGmbH/MATH-lighteval",
        "problem",
        "solution",
        train="train",
        test="test",
        level="level",
    ),
    "math500": Source("HuggingFaceH4/MATH-500", "problem", "answer", test="test", level="level"),
    "open-rs": Source("knoveleng/open-rs", "problem", "answer", train="train", level="level"),
    "aime24": Source("HuggingFaceH4/aime_2024", "problem", "answer", test="train"),
    "aime25": Source("math-ai/aime25", "problem", "answer", test="test"),
    "amc23": Source("math-ai/amc23", "question", "answer", test="test"),
    "minerva": Source("math-ai/minervamath", "question", "answer", test="test"),
    "olympiadbench": Source("math-ai/olympiadbench", "question", "final_answer", test="test"),
    "arc": Source(
        "allenai/ai2_arc",
        ("question", "choices"),
        ("answerKey", "choices"),
        test="test",
        verifier="choice",
        configuration="ARC-Challenge",
        ask=with_options,
        gold=letter_of,
    ),
    "mmlu-pro": Source(
        "TIGER-Lab/MMLU-Pro",
        ("question", "options"),
        "answer",
        test="test",
        level="category",
        verifier="choice",
        ask=with_options,
    ),
    "code-contests": Source(
        "deepmind/code_contests",
        "description",
        ("public_tests", "private_tests", "generated_tests"),
        train="train",
        test="test",
        verifier="code",
        ask=with_starter,
        gold=code_contests_tests,
    ),
    "taco": Source(
        "BAAI/TACO",
        ("question", "starter_code"),
        "input_output",
        train="train",
        test="test",
        level="difficulty",
        verifier="code",
        files="ALL/{split}-*.parquet",  # the repository also has a script, which is not run
        ask=with_starter,
    ),
    "human-eval": Source(
        "openai/openai_humaneval",
        "prompt",
        ("test", "entry_point", "prompt"),
        test="test",
        verifier="code",
        configuration="openai_humaneval",
        ask=function_to_write,
        gold=human_eval_tests,
    ),
    # FADE's two evaluations: all of release 5, and of release 6 what is of August 2024 or later.
    "livecodebench-v5": Source(**LIVECODEBENCH, configuration="release_v5"),
    "livecodebench-v6": Source(
        **LIVECODEBENCH, configuration="release_v6", since=("contest_date", "2024-08")
    ),
}
# A-GRAE's sets with images, and for its medical one the largest of those that it is made of.
DATASETS |= {
    "geo3k": Source(
        "hiyouga/geometry3k",
        "problem",
        "answer",
        images="images",
        train="train",
        test="test",
    ),
    "mathvision": Source(
        "MathLLMs/MathVision",
        ("question", "options"),
        ("answer", "options"),
        images="decoded_image",
        test="test",
        level="level",
        ask=with_options,
        gold=letter_or_option,
    ),
    "mathverse": Source(
        "AI4Math/MathVerse",
        "question",
        "answer",
        images="image",
        test="testmini",
        level="problem_version",
        configuration="testmini",
        ask=question_or_image,
    ),
    "pmc-vqa": Source(
        "mdwiratathya/PMC-VQA_small",
        ("question", "choice a", "choice b", "choice c", "choice d"),
        "answer label",
        images="image",
        train="train",
        test="test",
        verifier="choice",
        files="data/{split}-00000-*.parquet",  # the first of each split: all of them are 14 GB
        ask=with_choices,
    ),
}
# Sets that are made here: config -> the problems to train on, and those to evaluate on.
EMBEDDED = {"countdown": draw_countdown, "arithmetic": draw_arithmetic}

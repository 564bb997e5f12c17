"""Data sets: a table of those of the hub, local files, and what of them can be used."""

import glob
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks import grade, in_threads
from rlvr.tasks.answers import last_boxed
from rlvr.tasks.code import has_tests
from rlvr.tasks.countdown import draw_countdown
from rlvr.tasks.prompts import choose_system_prompt, encode_prompt, write_prompt


def answer_text(value) -> str:
    """The gold answer in a column.

    A list's items are joined; after #### stands the answer; 27.0 and 027 are 27; of a solution it
    is the last box.
    """
    if value is None:
        text = ""
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    else:
        text = str(value).strip()
    text = text.rpartition("####")[2].strip()
    if re.fullmatch(r"-?\d+(\.0*)?", text):
        return str(int(float(text)))
    return last_boxed(text) if "\\boxed" in text else text


def tests_text(value) -> str:
    """Unit tests in a column, as the JSON that read_tests takes; what is no JSON is assertions."""
    try:
        return json.dumps(json.loads(value) if isinstance(value, str) else value)
    except ValueError:
        return json.dumps(value)


@dataclass(frozen=True)
class Source:
    """Where a data set is, and which columns hold what."""

    path: str  # hub id, or local path
    problem: str  # column
    answer: str  # column
    train: str | None = None  # split to train on
    test: str | None = None  # split to evaluate on
    level: str | None = None  # column whose values are also evaluated by themselves
    verifier: str = "math"
    configuration: str | None = None  # of the hub's set
    gold: Callable[[object], str] = answer_text  # what stands in the answer column -> gold


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
}
FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}


def load_problems(config, tokenizer) -> tuple[list[Problem], dict[str, list[Problem]]]:
    """The problems to train on, and those of each data set to evaluate on.

    There is nothing to train on where --max_steps is 0. UserError where a set cannot be read, or
    has too few problems that can be used.
    """
    needed = dict.fromkeys(config.eval_names)
    if config.max_steps > 0:
        needed[config.dataset] = None
    found = {}
    for name in needed:
        found[name] = draw_countdown(config) if name == "countdown" else read_set(name, config)
    evaluation = {}
    training = []
    if config.max_steps > 0:
        training = prepare(config.dataset, found[config.dataset][0], config, tokenizer)
    for name in config.eval_names:
        evaluation[name] = prepare(name, found[name][1], config, tokenizer)
    if config.max_steps > 0 and not training:
        raise UserError(
            f"the data set {config.dataset} has no problem to train on beside the --eval_problems "
            f"{config.eval_problems}; some sets are for --eval_dataset alone"
        )
    for name, problems in evaluation.items():
        if len(problems) < world.WORLD_SIZE:
            raise UserError(
                f"the data set {name} has {len(problems)} problems to evaluate on, less than one a "
                "rank"
            )
    return training, evaluation


def source_of(name: str, config) -> Source:
    """The row of the table, or one for local files, by the flags."""
    if name in DATASETS:
        return DATASETS[name]
    return Source(
        name,
        config.prompt_column,
        config.answer_column,
        train="train",
        test="test",
        verifier=config.verifier,
        gold=tests_text if config.verifier == "code" else answer_text,
    )


def read_set(name: str, config) -> tuple[list[Problem], list[Problem]]:
    """The problems of a data set to train and to evaluate on, shuffled.

    A set without an evaluation split holds out --eval_problems of its own. UserError, in one line,
    for trouble.
    """
    source = source_of(name, config)
    training, evaluation = (problems_of(rows, name, source) for rows in read_splits(name, source))
    evaluation = (evaluation or training)[: config.eval_problems or None]
    held_out = {problem.prompt for problem in evaluation}
    return [problem for problem in training if problem.prompt not in held_out], evaluation


def read_splits(name: str, source: Source) -> list[list[dict]]:
    """The rows of the training and the evaluation split, shuffled; [] for a missing split."""
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what fails is told once, below
    suffix = Path(name).suffix
    if suffix in FILES:
        where = dict(path=FILES[suffix], data_files=glob.escape(name))
    else:
        where = dict(path=source.path, name=source.configuration)
    try:
        splits = datasets.load_dataset(**where)
    except Exception as error:  # of every kind, by format and by network
        reason = str(error.__cause__ or error) or repr(error)
        first_line = reason.splitlines()[0]
        raise UserError(f"cannot load the data set {name}: {first_line}") from error
    parts = [[*splits.get(split, ())] for split in (source.train, source.test)]
    for part in parts:
        random.Random(0).shuffle(part)
    return parts


def problems_of(rows: list[dict], name: str, source: Source) -> list[Problem]:
    """A problem for each row; UserError where a column is missing."""
    for column in (source.problem, source.answer):
        if rows and column not in rows[0]:
            columns = ", ".join(rows[0])
            raise UserError(f"the data set {name} has no column {column!r}; it has {columns}")
    return [
        Problem(
            str(row[source.problem] or ""),
            source.gold(row[source.answer]),
            source.verifier,
            str(row.get(source.level) or ""),
        )
        for row in rows
    ]


def prepare(name: str, problems: list[Problem], config, tokenizer) -> list[Problem]:
    """Write each problem's prompt; drop and count the problems that cannot be used."""
    if not problems:
        return []
    system = choose_system_prompt(problems[0].verifier, config.system_prompt, tokenizer)
    asked = [write_prompt(problem, system, tokenizer) for problem in problems if problem.prompt]
    short = [
        problem
        for problem in asked
        if len(encode_prompt(tokenizer, problem.prompt)) <= config.max_prompt_length
    ]
    good = in_threads(lambda problem: has_gold(problem, config), short)
    kept = [problem for problem, is_good in zip(short, good, strict=True) if is_good]
    if len(kept) < len(problems) and world.RANK == 0:
        print(
            f"{name}: {len(problems)} problems less {len(problems) - len(asked)} without a text, "
            f"{len(asked) - len(short)} over {config.max_prompt_length} tokens and "
            f"{len(short) - len(kept)} without a readable answer are {len(kept)}"
        )
    return kept


def has_gold(problem: Problem, config) -> bool:
    """Whether the verifier gives a point to the gold answer itself, or can run its tests."""
    if problem.verifier == "countdown":
        return True
    if problem.verifier == "code":
        return has_tests(problem.gold)
    itself = problem.verifier, f"\\boxed{{{problem.gold}}}", problem.gold
    return grade(itself, config.verify_seconds)[0] > 0

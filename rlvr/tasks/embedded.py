"""Problems that are generated: Countdown, arithmetic in words, and those of reasoning-gym."""

import itertools
import json
import operator
import random
import zlib
from collections.abc import Iterator
from fractions import Fraction

from rlvr import progress
from rlvr.errors import loading
from rlvr.tasks.problems import Problem
from rlvr.verify.answers import open_gym, value_of

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": Fraction}
LARGEST_TARGET = 99
TRAINING_PROBLEMS = 4096


def make_countdown(rng: random.Random, size: int, held_out: bool = False) -> tuple[Problem, str]:
    """Return a problem of `size` numbers from 1 to 9, and a solution with positive integer steps.

    A tenth of all pairs (numbers in any order, target) is held out for evaluation.
    """
    while True:
        numbers = [rng.randint(1, 9) for _ in range(size)]
        value, completion = join_at_random(rng, numbers)
        key = f"{sorted(numbers)} {value}".encode()
        if value and (zlib.crc32(key) % 10 == 0) == held_out:
            prompt = f"{' '.join(map(str, numbers))} : {value} "
            return Problem(prompt, prompt, level=f"{size} numbers"), completion


def join_at_random(rng: random.Random, numbers: list[int]) -> tuple[int, str]:
    """Join two numbers at a time until one is left. Return its value, and the completion for it.

    Return 0 for a value that is too large, or a step that does not give a positive integer.
    """
    terms = [(number, str(number)) for number in numbers]
    steps = []
    while len(terms) > 1:
        a, left = terms.pop(rng.randrange(len(terms)))
        b, right = terms.pop(rng.randrange(len(terms)))
        sign = rng.choice("+-*/")
        value = OPERATORS[sign](a, b)
        if value < 1 or value != int(value):
            return 0, ""
        steps.append(f"{a}{sign}{b}={value}")
        terms.append((int(value), f"({left}{sign}{right})"))
    value, expression = terms[0]
    completion = f"<think>{' '.join(steps)}</think><answer>{expression[1:-1]}</answer>"
    return (value, completion) if value <= LARGEST_TARGET else (0, "")


def draw_countdown(config) -> tuple[list[Problem], list[Problem]]:
    """Return `draw` of the sizes of --numbers."""
    sizes = map(int, config.numbers.split(","))
    return draw(make_countdown, sizes, 4 * TRAINING_PROBLEMS, lambda problem, _: problem, config)


EXPRESSIONS = {  # tell problems apart; high is the larger one of a and b
    "sum": "{high}+{low}",
    "difference": "{a}-{b}",
    "product": "{high}*{low}",
    "chain": "{high}+{low}-{c}",
}
WORDINGS = {
    "sum": ("What is {a}+{b}?", "What is {a} plus {b}?", "What is the sum of {a} and {b}?"),
    "difference": ("What is {a}-{b}?", "What is {a} minus {b}?", "Subtract {b} from {a}."),
    "product": ("What is {a}*{b}?", "What is {a} times {b}?", "Multiply {a} by {b}."),
    "chain": (
        "What is {a}+{b}-{c}?",
        "What is {a} plus {b} minus {c}?",
        "Add {a} and {b}, then subtract {c}.",
    ),
}
LEVELS = {  # kinds of problems, their smallest and largest number
    "1": (("sum", "difference"), 1, 20),
    "2": (("sum", "difference", "chain"), 10, 99),
    "3": (("product",), 10, 99),
    "4": (("sum", "difference", "product", "chain"), 100, 999),
}


def make_arithmetic(rng: random.Random, level: str, held_out: bool = False) -> tuple[Problem, str]:
    """Return a problem of a level, whose answer is an integer of at least 0, and its expression.

    The expression does not depend on the wording, nor on the order of what is added or multiplied.
    A tenth of all expressions, at any level, is held out for evaluation.
    """
    kinds, smallest, largest = LEVELS[level]
    while True:
        kind = rng.choice(kinds)
        a, b, c = (rng.randint(smallest, largest) for _ in range(3))
        if kind == "product":
            a = rng.randint(2, 9)  # the first factor has one digit
        low, high = sorted((a, b))
        expression = EXPRESSIONS[kind].format(a=a, b=b, c=c, low=low, high=high)
        value = value_of(expression)
        is_held_out = zlib.crc32(expression.encode()) % 10 == 0
        if value is not None and value >= 0 and is_held_out == held_out:
            text = rng.choice(WORDINGS[kind]).format(a=a, b=b, c=c)
            return Problem(text, str(value), "last_number", f"level {level}"), expression


def draw_arithmetic(level: str, config) -> tuple[list[Problem], list[Problem]]:
    """Call `draw` with one level, in which no expression is evaluated twice."""
    return draw(make_arithmetic, level, 2 * TRAINING_PROBLEMS, lambda _, text: text, config)


def draw(make, kinds, most_draws: int, key, config) -> tuple[list[Problem], list[Problem]]:
    """Return problems to train on and to evaluate on, the same in each run; kinds take turns.

    make(rng, kind, held_out) returns a problem and a text, and their key tells evaluation problems
    apart. There may be fewer problems than asked for.
    """
    rng = random.Random(0)
    kinds = itertools.cycle(kinds)
    evaluation, training = {}, {}
    # at most as many problems as for training: drawing millions would take minutes
    for _ in range(20 * min(config.eval_problems, TRAINING_PROBLEMS)):
        problem, text = make(rng, next(kinds), held_out=True)
        evaluation.setdefault(key(problem, text), problem)
    for _ in range(most_draws):
        training[make(rng, next(kinds))[0]] = None
        if len(training) == TRAINING_PROBLEMS:
            break
    return [*training], [*evaluation.values()][: config.eval_problems]


def draw_gym(name: str, config) -> tuple[list[Problem], list[Problem]]:
    """Return problems of reasoning-gym: `size` of them to train on, and some to evaluate on."""
    evaluation, training = {}, {}  # by question
    is_trained_on = name in config.train_names and config.max_steps > 0
    # the package makes problem i from seed + i, so the two seeds are far apart
    draws = (evaluation, 10**6, config.eval_problems), (training, 0, is_trained_on * 10**6)
    for problems, seed, count in draws:
        for entry in draw_entries(name, seed, count):
            if entry["question"] not in evaluation:
                gold = json.dumps(entry | dict(set=name), default=str)
                problem = Problem(entry["question"], gold, "reasoning_gym", level_of(entry))
                problems[problem.prompt] = problem
    return [*training.values()], [*evaluation.values()]


def draw_entries(name: str, seed: int, count: int) -> Iterator[dict]:
    """Yield a set's first entries. Raise a UserError for a wrong value that only they show."""
    entries = open_gym(name, seed)
    with loading(name, Exception):
        for i, entry in enumerate(itertools.islice(entries, count)):
            progress.count(f"{name}: making problems", i, min(count, len(entries)))
            yield entry


def level_of(entry: dict) -> str:
    """Return the first difficulty that counts something in an entry, such as "num_terms 3"."""
    metadata = entry["metadata"]
    ranges = metadata.get("difficulty")
    names = ranges if isinstance(ranges, dict) else ()
    counts = [f"{name} {metadata[name]}" for name in names if metadata.get(name) in range(99)]
    return counts[0] if counts else ""

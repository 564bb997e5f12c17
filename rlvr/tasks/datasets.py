"""The problems to train on and to evaluate on, and what is dropped on the way."""

import math
import re
import unicodedata
from collections import Counter
from dataclasses import replace

from rlvr import world
from rlvr.errors import UserError
from rlvr.machine import from_rank_0
from rlvr.tasks.pictures import with_image_tokens, with_images
from rlvr.tasks.problems import Problem, ProblemStream
from rlvr.tasks.prompts import choose_system_prompt, that_fit, write_prompts
from rlvr.tasks.sources import EMBEDDED, load_splits, problems_of, source_of
from rlvr.verify import VERIFIERS, grade, in_threads
from rlvr.verify.programs import describe


def open_problems(config, tokenizer) -> tuple[ProblemStream, dict[str, list[Problem]]]:
    """The stream of training problems, and the problems of each data set to evaluate on.

    Rank 0 loads them for all ranks, which call it together. --num_train_epochs becomes a number of
    steps, config.max_steps; groups that dynamic sampling draws again are not counted.
    """
    training, evaluation = from_rank_0(load_problems, config, tokenizer)
    if config.num_train_epochs is not None:
        prompts = config.num_train_epochs * len(training)
        config.max_steps = math.ceil(prompts / config.prompts_per_step)
    return ProblemStream(training, config.seed), evaluation


def load_problems(config, tokenizer) -> tuple[list[Problem], dict[str, list[Problem]]]:
    """The problems to train on, and those of each data set to evaluate on.

    There is nothing to train on where --max_steps is 0. UserError where a set cannot be read, or
    has too few problems that can be used.
    """
    trained_on = [config.dataset] if config.max_steps > 0 else []
    found = {
        name: read_set(name, config) for name in dict.fromkeys([*config.eval_names, *trained_on])
    }
    sets = {name: found[name][1] for name in config.eval_names}
    evaluation = {}
    for name, problems in sets.items():
        problems = problems[: config.eval_problems or None]
        evaluation[name] = prepare(name, problems, config, tokenizer)
        if len(evaluation[name]) < world.WORLD_SIZE:
            raise UserError(
                f"the data set {name} has {len(evaluation[name])} problems to evaluate on, less "
                "than one a rank"
            )
    training = []
    for name in trained_on:
        training = without_overlap(name, found[name][0], sets)
        training = prepare(name, training, config, tokenizer)
    firsts = [problems[0] for problems in (training, *evaluation.values()) if problems]
    if world.RANK == 0 and any(problem.verifier == "code" for problem in firsts):
        print(describe())
    return training, evaluation


def read_set(name: str, config) -> tuple[list[Problem], list[Problem]]:
    """The problems of a data set that may be trained on, and all that it has for evaluation.

    They are shuffled. A set without an evaluation split is evaluated on its training split, of
    which --eval_problems are held out where it is also trained on. UserError, in one line, for
    trouble.
    """
    if name in EMBEDDED:
        return EMBEDDED[name](config)
    source = source_of(name, config)
    splits = load_splits(name, source)
    training, evaluation = [], problems_of(splits.get(source.test), name, source)
    is_trained_on = name == config.dataset and config.max_steps > 0
    if is_trained_on or not evaluation:
        training = problems_of(splits.get(source.train), name, source)
    held_out = config.eval_problems if is_trained_on else 0
    return training, evaluation or training[: held_out or None]


def without_overlap(
    name: str, problems: list[Problem], sets: dict[str, list[Problem]]
) -> list[Problem]:
    """The problems that stand in none of the evaluation sets; how many do is printed.

    UserError where none is left to train on.
    """
    holders = {overlap_key(problem): holder for holder, held in sets.items() for problem in held}
    found = [holders.get(overlap_key(problem)) for problem in problems]
    kept = [problem for problem, holder in zip(problems, found, strict=True) if not holder]
    counts = Counter(filter(None, found))
    told = ", ".join(f"{count} of {holder}" for holder, count in counts.items())
    if not kept:
        raise UserError(
            f"the data set {name} has no problem to train on beside the evaluated ones"
            + (f": of its {len(problems)} problems it shares {told}" if problems else "")
            + "; some sets are for --eval_dataset alone"
        )
    if counts and world.RANK == 0:
        print(f"{name}: not trained on, since they are evaluated: {told}")
    return kept


def overlap_key(problem: Problem) -> tuple:
    """A question's text, or that of a conversation's last turn, and its images.

    The text is in lower case and evenly spaced.
    """
    prompt = problem.prompt
    text = prompt if isinstance(prompt, str) else prompt[-1][1]
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()), problem.images


def prepare(name: str, problems: list[Problem], config, tokenizer) -> list[Problem]:
    """Write each problem's prompt; drop and count the problems that cannot be used.

    UserError where none is left of them.
    """
    if not problems:
        return []
    verifier = VERIFIERS[problems[0].verifier]
    system = choose_system_prompt(verifier, config.system_prompt, tokenizer)
    steps = {
        "without a question": lambda found: [each for each in found if each.prompt],
        "with a dict, a bool or a nested list as answer": lambda found: [
            each for each in found if each.gold is not None
        ],
        "with an image that cannot be read": lambda found: with_images(name, found, tokenizer),
        "whose prompt does not show each image once": lambda found: with_image_tokens(
            write_prompts(found, system, config, tokenizer), tokenizer
        ),
        f"over {config.max_prompt_length} tokens": lambda found: that_fit(
            found, config.max_prompt_length, tokenizer
        ),
        "whose answer the verifier does not take": lambda found: with_golds(name, found, config),
    }
    kept, losses = problems, []
    for reason, keep in steps.items():
        before, kept = len(kept), keep(kept) if kept else []
        if len(kept) < before:
            losses.append(f"{before - len(kept)} {reason}")
    told = f"{name}: {len(problems)} problems less {', '.join(losses)} are {len(kept)}"
    if not kept:
        raise UserError(
            f"{told}; see --max_prompt_length, and for a file --prompt_column, --answer_column and "
            "--verifier"
        )
    if losses and world.RANK == 0:
        print(told)
    return kept


def with_golds(name: str, problems: list[Problem], config) -> list[Problem]:
    """The problems whose gold can be used: the example that its verifier makes of it is a success.

    Each different gold is tried once, but for those that the verifier's entry is sure of. Of
    alternatives, those that can be used are kept.
    """
    verifier = problems[0].verifier
    entry = VERIFIERS[verifier]
    if entry.example is None:
        return [problem for problem in problems if problem.gold]

    def is_usable(gold: str) -> bool:
        reward, _ = grade((verifier, entry.example(gold), gold), config.verify_seconds)
        return reward >= config.success_threshold

    golds = {gold for problem in problems for gold in alternatives(problem) if gold}
    usable = {gold for gold in golds if re.fullmatch(entry.surely_usable, gold)}
    tried = sorted(golds - usable)
    results = in_threads(is_usable, tried, f"{name}: reading the different answers")
    usable |= {gold for gold, good in zip(tried, results, strict=True) if good}
    kept = []
    for problem in problems:
        left = tuple(gold for gold in alternatives(problem) if gold in usable)
        if left:
            kept.append(problem if left == alternatives(problem) else replace(problem, gold=left))
    return kept


def alternatives(problem: Problem) -> tuple[str, ...]:
    """A problem's gold answers; a text is the only one."""
    return (problem.gold,) if isinstance(problem.gold, str) else problem.gold

"""The problems to train on and to evaluate on, and what is dropped on the way."""

import math
import re
import unicodedata

from rlvr import status, world
from rlvr.errors import UserError
from rlvr.tasks.pictures import with_images
from rlvr.tasks.problems import SUCCESS, Problem, ProblemStream
from rlvr.tasks.prompts import that_fit, write_prompts
from rlvr.tasks.sources import EMBEDDED, load_splits, problems_of, source_of
from rlvr.verify.pool import grade, in_threads
from rlvr.verify.programs.isolation import describe
from rlvr.verify.verifiers import SYSTEM_PROMPTS, VERIFIERS


def open_problems(config, tokenizer) -> tuple[ProblemStream, dict[str, list[Problem]]]:
    """The stream of training problems, and the problems of each data set to evaluate on.

    Rank 0 loads them for all ranks, which call it together. --num_train_epochs becomes a number of
    steps, config.max_steps; groups that dynamic sampling draws again are not counted.
    """
    from rlvr.machine import from_rank_0  # here, because the flags do not wait for torch

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
    names = [*config.eval_names, config.dataset] if config.max_steps else config.eval_names
    sets = {name: read_set(name, config) for name in dict.fromkeys(names)}
    evaluation = {}
    for name in config.eval_names:
        problems = sets[name][1][: config.eval_problems or None]
        evaluation[name] = prepare(name, problems, config, tokenizer)
        if len(evaluation[name]) < world.WORLD_SIZE:
            raise UserError(
                f"the data set {name} has {len(evaluation[name])} problems to evaluate on, less "
                "than one a rank"
            )
    training = []
    if config.max_steps:
        evaluated = [problem for name in config.eval_names for problem in sets[name][1]]
        training = without_overlap(config.dataset, sets[config.dataset][0], evaluated)
        training = prepare(config.dataset, training, config, tokenizer)
    firsts = [problems[0] for problems in (training, *evaluation.values()) if problems]
    if any(problem.verifier == "code" for problem in firsts):
        status.tell(describe())
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


def without_overlap(name: str, problems: list[Problem], evaluated: list[Problem]) -> list[Problem]:
    """The problems that are not evaluated; how many are is printed.

    UserError where none is left to train on.
    """
    keys = set(map(overlap_key, evaluated))
    kept = [problem for problem in problems if overlap_key(problem) not in keys]
    shared = len(problems) - len(kept)
    if not kept:
        raise UserError(
            f"the data set {name} has no problem to train on beside the {shared} that are "
            "evaluated: lower --eval_problems; some sets are for --eval_dataset alone"
        )
    if shared:
        status.tell(f"{name}: {shared} problems are not trained on, since they are evaluated")
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
    prompt = config.system_prompt
    if prompt == "auto":
        can_read_it = tokenizer.chat_template or not verifier.chat_only
        prompt = verifier.system_prompt if can_read_it else "none"
    system = SYSTEM_PROMPTS[prompt]
    limit = config.max_prompt_length
    steps = {
        "without a question": lambda left: [each for each in left if each.prompt],
        "whose images cannot be shown": lambda left: with_images(
            name, write_prompts(left, system, config, tokenizer), tokenizer
        ),
        f"empty or over {limit} tokens": lambda left: that_fit(left, limit, tokenizer),
        "whose answer the verifier does not take": lambda left: with_golds(name, left),
    }
    kept, losses = problems, []
    for reason, keep in steps.items():
        before, kept = len(kept), keep(kept) if kept else []
        if len(kept) < before:
            losses.append(f"{before - len(kept)} {reason}")
    told = f"{name}: {len(problems)} problems less {', '.join(losses)} are {len(kept)}"
    if not kept:
        raise UserError(f"{told}; see --max_prompt_length, and for a file --columns and --verifier")
    if losses:
        status.tell(told)
    return kept


def with_golds(name: str, problems: list[Problem]) -> list[Problem]:
    """The problems whose gold can be used: the example that its verifier makes of it is a success.

    Each different gold is tried once, but for those that the verifier's entry is sure of. Of
    alternatives one is enough.
    """
    verifier = problems[0].verifier
    example = VERIFIERS[verifier].example
    if example is None:
        return [problem for problem in problems if problem.gold]

    def is_usable(gold: str) -> bool:
        reward, _ = grade((verifier, example(gold), gold))
        return reward >= SUCCESS

    golds = {gold for problem in problems for gold in alternatives(problem) if gold}
    usable = {gold for gold in golds if re.fullmatch(VERIFIERS[verifier].surely_usable, gold)}
    tried = sorted(golds - usable)
    results = in_threads(is_usable, tried, f"{name}: reading the different answers")
    usable |= {gold for gold, good in zip(tried, results, strict=True) if good}
    return [problem for problem in problems if usable & {*alternatives(problem)}]


def alternatives(problem: Problem) -> tuple[str, ...]:
    """A problem's gold answers; a text is the only one."""
    return (problem.gold,) if isinstance(problem.gold, str) else problem.gold

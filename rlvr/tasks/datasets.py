"""The problems to train on and to evaluate on, without those that cannot be used."""

import unicodedata
from dataclasses import replace

from rlvr import progress, world
from rlvr.errors import UserError
from rlvr.tasks.embedded import draw_gym
from rlvr.tasks.problems import SUCCESS, Problem, ProblemStream, drop
from rlvr.tasks.prompts import that_fit, write_prompts
from rlvr.tasks.sources import EMBEDDED, is_made, load_splits, problems_of, source_of
from rlvr.verify.pool import grade, in_threads, try_own
from rlvr.verify.programs.isolation import describe
from rlvr.verify.verifiers import SYSTEM_PROMPTS, find_verifier


def open_problems(config, tokenizer) -> tuple[ProblemStream, dict[str, list[Problem]]]:
    """Return the stream of training problems, and a list per evaluation set. All ranks call it."""
    from rlvr.machine import from_rank_0  # here, because the flags do not wait for torch

    training, evaluation = from_rank_0(load_problems, config, tokenizer)
    return ProblemStream(training, config.seed, evaluation), evaluation


def load_problems(config, tokenizer) -> tuple[list[Problem], dict[str, list[Problem]]]:
    """Return what open_problems does, but a list to train on, empty with --max_steps 0.

    UserError if a set cannot be read, or if too few of its problems can be used.
    """
    train_names = config.train_names if config.max_steps else []
    sets = {name: read_set(name, config) for name in dict.fromkeys(config.eval_names + train_names)}
    evaluation = {}
    for name in config.eval_names:
        problems = sets[name][1][: config.eval_problems or None]
        evaluation[name] = prepare(name, problems, config, tokenizer)
        if len(evaluation[name]) < world.WORLD_SIZE:
            raise UserError(
                f"the data set {name} has {len(evaluation[name])} problems to evaluate on, "
                "fewer than one per rank"
            )
    training = []
    evaluated = [problem for name in config.eval_names for problem in sets[name][1]]
    for name in train_names:
        problems = without_overlap(name, sets[name][0], evaluated)
        training += prepare(name, problems, config, tokenizer)
    loaded = (training, *evaluation.values())
    if any(problem.verifier == "code" for problems in loaded for problem in problems):
        progress.write(describe())
    return training, evaluation


def read_set(name: str, config) -> tuple[list[Problem], list[Problem]]:
    """Return the problems of a data set for training, and those for evaluation, shuffled.

    A set without an evaluation split is evaluated on its training split. If it is also trained on,
    --eval_problems of them are held out. UserError if the set cannot be read.
    """
    if name in EMBEDDED:
        return EMBEDDED[name](config)
    if is_made(name):
        return draw_gym(name, config)
    source = source_of(name, config)
    is_trained_on = name in config.train_names and config.max_steps > 0
    splits = load_splits(name, source)
    training, evaluation = [], []
    if name in config.eval_names:  # a test split that is not used may lack its answers
        evaluation = problems_of(splits.get(source.test), name, source)
    if is_trained_on or not evaluation:
        training = problems_of(splits.get(source.train), name, source)
    held_out = config.eval_problems if is_trained_on else 0
    return training, evaluation or training[: held_out or None]


def without_overlap(name: str, problems: list[Problem], evaluated: list[Problem]) -> list[Problem]:
    """Return the problems that are not evaluated. UserError if none is left to train on."""
    keys = set(map(overlap_key, evaluated))
    kept = [problem for problem in problems if overlap_key(problem) not in keys]
    shared = len(problems) - len(kept)
    if not kept:
        raise UserError(
            f"the data set {name} has no problem to train on except the {shared} that are "
            "evaluated; problems that differ only in their system prompts count as equal. If it "
            "has no test split, lower --eval_problems; some sets are only for --eval_dataset"
        )
    if shared:
        progress.write(f"{name}: {shared} of {len(problems)} problems are only evaluated")
    return kept


def overlap_key(problem: Problem) -> str:
    """Return the text of a question, or of a conversation without its system prompt, folded."""
    prompt = problem.prompt
    turns = (("user", prompt),) if isinstance(prompt, str) else prompt
    text = "\n".join(content for role, content in turns if role != "system")
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def prepare(name: str, problems: list[Problem], config, tokenizer) -> list[Problem]:
    """Write the prompts, and drop those that cannot be used. UserError if none is left."""
    problems = [replace(problem, id=i) for i, problem in enumerate(problems)]
    verifier = find_verifier(problems[0].verifier)
    prompt, limit = config.system_prompt, config.max_prompt_length
    if prompt == "auto":
        can_read_it = tokenizer.chat_template or not verifier.chat_only
        prompt = verifier.system_prompt if can_read_it else "none"
    system = SYSTEM_PROMPTS.get(prompt, prompt)
    if find_verifier(config.verifier).file:  # with the set's own prompt
        problems = [replace(problem, verifier=config.verifier) for problem in problems]
    problems = write_prompts(problems, system, config, tokenizer)
    steps = {
        f"empty or over {limit} tokens": lambda left: that_fit(left, limit, tokenizer),
        "whose answer the verifier does not take": lambda left: with_golds(name, left),
    }
    return drop(name, problems, steps)


def with_golds(name: str, problems: list[Problem]) -> list[Problem]:
    """Return the problems with a usable gold answer: the verifier accepts its own example of it.

    Each distinct gold answer is tried once. A user's function is tried on one problem.
    """
    verifier = problems[0].verifier
    if find_verifier(verifier).file:
        try_own(verifier, problems[0].gold)
    example = find_verifier(verifier).example
    if example is None:
        return problems

    tried = sorted({problem.gold for problem in problems})
    questions = [(verifier, example(gold), gold) for gold in tried]
    grades = in_threads(grade, questions, f"{name}: reading the distinct answers")
    usable = {gold for gold, (reward, _) in zip(tried, grades, strict=True) if reward >= SUCCESS}
    return [problem for problem in problems if problem.gold in usable]

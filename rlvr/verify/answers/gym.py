"""Judge answers to problems of the package reasoning-gym by its own scores."""

import difflib
import importlib.util
import json
from collections.abc import Collection
from dataclasses import fields
from functools import lru_cache

from rlvr.errors import UserError, loading
from rlvr.verify.answers.boxes import find_answer


@lru_cache
def open_gym(name: str = "reasoning_gym:gcd", seed: int = 0):
    """Return the set reasoning_gym:TASK:SETTING=VALUE:... The first call takes two seconds.

    Raise a UserError for a wrong name, with near ones, and for a wrong value.
    """
    if not importlib.util.find_spec("reasoning_gym"):
        raise UserError(f"cannot load {name}: first pip install reasoning-gym==0.1.25")
    import reasoning_gym
    import yaml
    from reasoning_gym.factory import DATASETS

    task, *pairs = name.split(":")[1:]
    parts = [pair.partition("=") for pair in pairs]
    check_names(name, "task", [task], DATASETS)
    known = [field.name for field in fields(DATASETS[task][1]) if field.name != "seed"]
    check_names(name, "setting", [setting for setting, *_ in parts], known)
    with loading(name, AssertionError, TypeError, yaml.YAMLError):  # of wrong values
        settings = {setting: yaml.safe_load(value) for setting, _, value in parts}
        return reasoning_gym.create_dataset(task, **settings, seed=seed)


def check_names(name: str, kind: str, given: list[str], known: Collection[str]) -> None:
    """Raise a UserError, which lists near names, for a given name that is not known."""
    for wrong in given:
        if given.count(wrong) > 1:
            raise UserError(f"cannot load {name}: the {kind} {wrong!r} occurs twice")
        if wrong not in known:
            near = ", ".join(difflib.get_close_matches(wrong, known, 8, 0.3))
            hint = f"; near names are {near}" if near else ""
            raise UserError(f"cannot load {name}: it has no {kind} {wrong!r}{hint}")


def answers_in(text: str) -> list[str]:
    """Return the answer in a box or in <answer>, or else the whole text and its last word."""
    answer = find_answer(text)
    last_word = [word.strip('.*"') for word in text.split()[-1:]]
    return [text.strip(), *last_word] if answer == "NA" else [answer]


def verify_entry(text: str, gold: str) -> float:
    """Return the package's score of the best answer, where `gold` is its entry as JSON."""
    entry = json.loads(gold)
    metadata = entry["metadata"]
    if "output" in metadata:  # a picture of ARC, which the package compares with tuples
        metadata["output"] = tuple(map(tuple, metadata["output"]))
    entries = open_gym(entry.get("set") or f"reasoning_gym:{metadata['source_dataset']}")
    return max(score_of(answer, entry, entries) for answer in answers_in(text))


def score_of(answer: str, entry: dict, entries) -> float:
    """Return the package's score of an answer, 0 where its scorer cannot read the text."""
    try:
        return entries.score_answer(answer, entry)
    except (Exception, SystemExit):  # such as an OverflowError for 1e999; a few run the answer
        return 0.0

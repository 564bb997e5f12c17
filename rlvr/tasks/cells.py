"""What stands in the cells of a data set: questions, and gold answers in more than one column.

A function that reads a question gives a text, a conversation, or "" where the cells hold neither.
One that reads a gold answer gives "" where there is none, and None where the cells are of a kind
that holds none.
"""

import base64
import io
import json
import pickle
import re
import string
import zlib
from collections.abc import Callable

from rlvr.verify.programs import tests_text

ROLES = {"system", "user", "assistant"}


def read_question(cell) -> str | tuple:
    """A text, or a conversation as pairs of role and content that ends with a user's turn.

    A conversation is a list of {"role": ..., "content": ...}, as TRL and verl have it.
    """
    if isinstance(cell, str):
        return cell.strip() and cell
    turns = cell if isinstance(cell, list) else []
    if not all(isinstance(turn, dict) for turn in turns):
        return ""
    pairs = tuple((turn.get("role"), turn.get("content")) for turn in turns)
    readable = all(role in ROLES and isinstance(content, str) for role, content in pairs)
    asks = bool(pairs) and pairs[-1][0] == "user" and pairs[-1][1]
    return pairs if readable and asks else ""


def with_starter(question: str, starter: str | None = None) -> str:
    """A programming problem, with the code to begin with or the word to use standard input."""
    if not question:
        return ""
    if starter:
        return f"{question}\n\nComplete this code:\n```python\n{starter}\n```"
    return f"{question}\n\nRead from standard input and write to standard output."


def function_to_write(head: str) -> str:
    """HumanEval's problems: the head of a function, with its docstring."""
    return f"Complete this function:\n```python\n{head}\n```" if head else ""


def with_options(question: str, options: list[str] | dict) -> str:
    """A question, and below it its options, lettered from A on."""
    texts = options["text"] if isinstance(options, dict) else options
    lines = [
        f"{letter}. {text}" for letter, text in zip(string.ascii_uppercase, texts, strict=False)
    ]
    return "\n".join([question, *lines]) if question else ""


def with_choices(question: str, *choices: str) -> str:
    """with_options for choices that may begin with their letters already, as in " A:Liver"."""
    texts = [re.sub(r"^\s*[A-D]\s*[:.]", "", choice).strip() for choice in choices]
    return with_options(question, texts)


def question_or_image(question: str) -> str:
    """MathVerse's problems, some of which have their question in the image alone."""
    return question or "Answer the question that stands in the image."


def letter_or_option(answer: str, options: list[str]) -> str | tuple[str, str]:
    """MathVision's answers: a text, or the letter of an option, whose text is right as well."""
    place = string.ascii_uppercase.find(answer) if len(answer) == 1 else -1
    if 0 <= place < len(options) and options[place] not in ("", answer):
        return answer, options[place]
    return answer


def letter_of(label: str, options: dict) -> str:
    """The letter that with_options gives to a label of ARC, which has A to E or 1 to 5."""
    if label not in options["label"]:
        return ""
    return string.ascii_uppercase[options["label"].index(label)]


def alternatives(gold: Callable) -> Callable:
    """A reader of cells whose lists hold alternatives -> a tuple of golds, each right by itself.

    `gold` reads one of them. Without this, the items of a list are the parts of one answer.
    """

    def read(cell):
        if not isinstance(cell, list):
            return gold(cell)
        found = [gold(each) for each in cell]
        refused = None in found or any(isinstance(each, list) for each in cell)
        return None if refused else tuple(dict.fromkeys(filter(None, found)))

    return read


def code_contests_tests(*cells: dict) -> str:
    """All of a problem's tests, public, private and generated, as one gold."""
    inputs = [text for cell in cells for text in cell["input"]]
    outputs = [text for cell in cells for text in cell["output"]]
    return tests_text(dict(inputs=inputs, outputs=outputs))


def human_eval_tests(test: str, entry_point: str, head: str) -> str:
    """The definition of a check, and its call with the function that is asked for.

    The head goes along, since a completion may have the function alone.
    """
    assertions = f"{test}\ncheck({entry_point})"
    return tests_text(dict(head=head, assertions=assertions)) if test and entry_point else ""


def livecodebench_tests(public: str, private: str, metadata: str) -> str:
    """The tests of a problem as one gold, those of a function with its name as `fn_name`."""
    try:
        tests = json.loads(public) + json.loads(unpack(private))
        name = json.loads(metadata).get("func_name")
        return tests_text([{**test, "fn_name": name} for test in tests])
    except (ValueError, TypeError, AttributeError, zlib.error, pickle.UnpicklingError):
        return ""


class TextUnpickler(pickle.Unpickler):
    """Reads pickled texts, and refuses everything that could run code."""

    def find_class(self, module, name):
        """Refuse it, by UnpicklingError."""
        raise pickle.UnpicklingError(f"{module}.{name} is no text")


def unpack(text: str) -> str:
    """LiveCodeBench's private tests: JSON, or JSON that was pickled, compressed and encoded."""
    if text.startswith("["):
        return text
    return TextUnpickler(io.BytesIO(zlib.decompress(base64.b64decode(text)))).load()

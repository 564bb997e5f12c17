"""Read questions and gold answers from the cells of a data set."""

import base64
import contextlib
import json
import pickletools
import re
import string
import zlib

from rlvr.verify.programs.code import tests_text


def read_question(cell) -> str | tuple:
    """Return a text, or a conversation as pairs of role and content; "" for other cells.

    A conversation is a list of {"role": ..., "content": ...}, as in TRL and verl, or such a list as
    JSON. A content is a text, or a list of parts {"type": "text", "text": ...}.
    """
    if isinstance(cell, str) and re.match(r"\s*\[\s*{", cell):
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            turns = json.loads(cell)
            cell = turns if all({"role", "content"} <= {*turn} for turn in turns) else cell
    if isinstance(cell, str):
        return "" if cannot_be_written(cell) else cell.strip() and cell
    try:
        pairs = tuple((turn["role"], read_content(turn["content"])) for turn in cell)
    except (TypeError, KeyError):
        return ""
    are_texts = all(isinstance(x, str) and not cannot_be_written(x) for _, x in pairs)
    return pairs if are_texts and pairs else ""


def read_content(content):
    """Return the text of a message; a list of text parts becomes one text."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content)
    return content


def cannot_be_written(text: str) -> bool:
    """Return whether a text has half of a surrogate pair, as JSON can, but no encoding."""
    return re.search("[\ud800-\udfff]", text) is not None


def with_starter(question: str, starter: str | None = None) -> str:
    """Return a programming problem with its starter code, or told to use standard input."""
    if starter:
        return f"{question}\n\nComplete this code:\n```python\n{starter}\n```"
    return f"{question}\n\nRead from standard input and write to standard output."


def with_options(question: str, options: list[str] | dict) -> str:
    """Return a question and, below it, its options lettered from A. ARC has them in a dict."""
    texts = options["text"] if isinstance(options, dict) else options
    lettered = zip(string.ascii_uppercase, texts, strict=False)
    return "\n".join([question, *(f"{letter}. {text}" for letter, text in lettered)])


def letter_of(label: str, options: dict) -> str:
    """Return the letter that with_options gives to a label of ARC, A to E or 1 to 5."""
    return string.ascii_uppercase[options["label"].index(label)]


def human_eval_tests(test: str, entry_point: str, head: str) -> str:
    """Return the definition of a check, and its call with the function to write.

    The head is added because a completion may hold the function alone. The helpers of the head also
    precede the check, so that the program cannot redefine them for it.
    """
    helpers = head.rpartition(f"def {entry_point}(")[0]
    return tests_text(dict(head=head, assertions=f"{helpers}\n{test}\ncheck({entry_point})"))


def livecodebench_tests(public: str, private: str, metadata: str) -> str:
    """Join a problem's tests to one gold, with the name of its function, if any, as `fn_name`."""
    tests = json.loads(public) + json.loads(unpack(private))
    name = json.loads(metadata).get("func_name")
    return tests_text([{**test, "fn_name": name} for test in tests])


def unpack(text: str) -> str:
    """Return LiveCodeBench's private tests as JSON. Some are pickled, compressed and encoded."""
    if text.startswith("["):
        return text
    pickled = zlib.decompress(base64.b64decode(text))
    # only the opcodes are read, because unpickling could run code
    return next(value for _, value, _ in pickletools.genops(pickled) if isinstance(value, str))

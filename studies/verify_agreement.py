"""How far `math` and `choice` agree with the tables that other graders are tested on.

    git clone https://github.com/huggingface/Math-Verify clones/Math-Verify     # and others of them
    python studies/verify_agreement.py clones        # --show prints each disagreement

The tables are read out of the clones' test files; none is part of this project. A suite whose clone
is missing is left out. An answer without a box is put into one. Rows in prose, where a gold, or an
answer without a box, stands in a sentence, are counted and left out.

"missed" are answers that the peer calls right and this project does not; "too kind" the opposite.
Not all of them are errors: some suites allow a tolerance, say 33.3 for 100/3, and some have an
opinion, say that the order of a list matters.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import project  # noqa: F401

from rlvr.tasks.boxes import answer_text, boxed
from rlvr.tasks.pool import grade, in_threads

SUITES = {  # folder of the clone -> its tables
    "Math-Verify": "tests/test_*.py",
    "lighteval": "tests/unit/metrics/test_extractive_match.py",
    "MARIO_EVAL": "math_evaluation/tests/test_is_equiv.py",
    "NeMo-Skills": "tests/test_math_equal.py",
    "SkyThought": "tests/evals/util/test_math_parsing.py",
    "math": "modeling/math_equivalence_test.py",
    "open-instruct": "open_instruct/test_math_utils.py",
    "Qwen2.5-Math": "evaluation/data/eval_rm_maj_example/math_cot_100.jsonl",
}
COLUMNS = {  # what the suites call them -> what they hold
    "gold": "gold",
    "reference": "gold",
    "pred": "answer",
    "prediction": "answer",
    "raw_string": "answer",
    "input_string": "answer",
    "expected": "right",
    "result": "right",
    "expected_output": "right",
    "strict": "strict",
}
DELIMITED = re.compile(r"\s*(?:\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\])[\s.]*", re.S)
DELIMITER = re.compile(r"(?<!\\)\$|\\[(\[]")
PROSE = re.compile(r"(?:[A-Za-z']{2,}[\s,:]+){3}|[^\x00-\u036f]{4}")  # English, or another script


class Row(NamedTuple):
    """One line of a table."""

    answer: str
    gold: str
    right: bool
    verifier: str = "math"


def read_table(path: Path) -> list[Row]:
    """The rows of a test file, or of completions with their labels."""
    if path.suffix == ".jsonl":
        problems = map(json.loads, path.read_text().splitlines())
        return [
            Row(response, problem["gt"], right)
            for problem in problems
            for response, right in zip(problem["response"], problem["score"], strict=True)
        ]
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    rows = []
    for function in functions:
        rows += [*decorated_rows(function), *asserted_rows(function)]
    return [row for row in rows if row.answer and row.gold]


def literal(node: ast.expr):
    """The value of a literal; None for another expression."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def decorated_rows(function: ast.FunctionDef) -> Iterator[Row]:
    """The rows of @pytest.mark.parametrize or of @parameterized.expand."""
    for decorator in function.decorator_list:
        arguments = getattr(decorator, "args", [])
        if not arguments or not isinstance(arguments[-1], ast.List):
            continue
        names = [argument.arg for argument in function.args.args if argument.arg != "self"]
        if len(arguments) == 2:
            names = literal(arguments[0]).split(",")
        names = [COLUMNS.get(name.strip(), name.strip()) for name in names]
        for values in filter(None, map(literal, arguments[-1].elts)):
            if names == ["output_pair"]:
                pair = [str(value) if value is not None else "" for value in values]
                yield Row(*pair, "incorrect" not in function.name)
                yield Row(*reversed(pair), "incorrect" not in function.name)
                continue
            cells = dict(zip(names, values, strict=False))
            if names == ["answer", "right"]:  # an answer, and what is left of it
                cells = {"answer": cells["answer"], "gold": cells["right"], "right": True}
            if {"answer", "gold", "right"} <= cells.keys() and cells.get("strict", True):
                verifier = "choice" if function.name.endswith("_abc") else "math"
                yield Row(cells["answer"], cells["gold"], bool(cells["right"]), verifier)


def asserted_rows(function: ast.FunctionDef) -> Iterator[Row]:
    """The rows of assertTrue(is_equiv(first, second)), whose arguments are variables."""
    space = {}
    for statement in function.body:
        if isinstance(statement, ast.Assign):
            space[ast.unparse(statement.targets[0])] = literal(statement.value)
        bodies, pairs = [statement], [None]
        if isinstance(statement, ast.For):
            bodies, pairs = statement.body, space.get(ast.unparse(statement.iter)) or ()
        for pair in pairs:
            if pair:
                space["test_in"], space["test_out"] = pair
            for line in bodies:
                call = re.fullmatch(
                    r"self\.assert(True|False)\(\w+\((\w+), (\w+).*", ast.unparse(line)
                )
                if call:
                    yield Row(space[call[2]], space[call[3]], call[1] == "True")


def question(row: Row) -> tuple[str, str, str] | None:
    """What `grade` is asked: the answer in a box, unless it has one. None for prose."""
    gold = answer_text(row.gold)
    if PROSE.search(gold):
        return None
    if "boxed" in row.answer or "fbox" in row.answer:
        return row.verifier, row.answer, gold
    found = DELIMITED.fullmatch(row.answer)
    inside = next(filter(None, found.groups()), "") if found else row.answer
    if PROSE.search(inside) or DELIMITER.search(inside):
        return None
    return row.verifier, boxed(inside), gold


def main() -> None:
    """Print a line for each suite."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path, help="folder that holds the clones")
    parser.add_argument("--show", action="store_true", help="print each disagreement")
    arguments = parser.parse_args()
    print("suite            rows  agree  missed  too kind  prose")
    for name, pattern in SUITES.items():
        paths = arguments.clones.glob(f"{name}/{pattern}")
        rows = [row for path in sorted(paths) for row in read_table(path)]
        asked = [(row, question(row)) for row in rows]
        asked = [pair for pair in asked if pair[1]]
        rewards = in_threads(lambda pair: grade(pair[1], 20)[0], asked)
        wrong = [
            row
            for (row, _), reward in zip(asked, rewards, strict=True)
            if row.right != (reward > 0)
        ]
        missed = sum(row.right for row in wrong)
        if rows:
            print(
                f"{name:16} {len(asked):4}  {len(asked) - len(wrong):5}  {missed:6}"
                f"  {len(wrong) - missed:8}  {len(rows) - len(asked):5}"
            )
        if arguments.show:
            for row in wrong:
                print(
                    f"    {'missed' if row.right else 'too kind'}: {row.answer!r} for {row.gold!r}"
                )


if __name__ == "__main__":
    main()

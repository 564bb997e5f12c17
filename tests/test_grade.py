"""`python -m rlvr.tasks.grade FILE.jsonl`: rewards and statuses of lines, and a summary."""

import json
import subprocess
import sys

import pytest
from grading import ADD, ASSERTIONS, block, boxed
from runs import ENVIRONMENT, ROOT


def grade_file(path):
    """(exit code, stdout, stderr) of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "rlvr.tasks.grade", *path],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_rewards_statuses_and_summary(tmp_path):
    rows = [
        ("math", boxed("5"), "5"),
        ("math", "five", "5"),
        ("number", boxed("6"), "5"),
        ("code", block(ADD), json.dumps(ASSERTIONS)),
    ]
    names = ("verifier", "text", "gold")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    file = tmp_path / "answers.jsonl"
    file.write_text("\n".join([*lines, ""]))
    code, out, err = grade_file([str(file)])
    assert (code, err) == (0, "")
    assert out[0].startswith("programs run ")
    assert out[1:] == [
        "line 1: 1",
        "line 2: 0 unparsed",
        "line 3: 0",
        "line 4: 1",
        "4 lines: mean reward 0.5; 3 judged, 1 unparsed, 0 timeout",
    ]


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "give one .jsonl file with the columns verifier, text and gold"),
        ('{"verifier": "math", "text": ""}', "line 1: no JSON with texts for verifier, text, g"),
        (
            '{"verifier": "countdown", "text": null, "gold": "1 2 : 3"}',
            "line 1: no JSON with texts for",
        ),
        ('{"verifier": "countdown", "text": "<answer>1</answer>", "gold": "5"}', "line 1: no JSON"),
        ('{"verifier": ["math"], "text": "", "gold": ""}', "line 1: no JSON with texts for"),
        ('{"verifier": "number", "text": "", "gold": 5}', "line 1: no JSON with texts for"),
        ('{"verifier": "math", "text": "", "gold": ["1", 2]}', "line 1: no JSON with texts for"),
        ("5", "line 1: no JSON"),
        ('{"verifier": "maths", "text": "", "gold": ""}', "there is no verifier 'maths'"),
    ],
)
def test_what_cannot_work_is_one_line(tmp_path, content, message):
    file = tmp_path / "answers.jsonl"
    file.write_text(content or "")
    code, out, err = grade_file([str(file)] if content else [])
    assert (code, out) == (2, [])
    assert message in err
    assert err.count("\n") == 1

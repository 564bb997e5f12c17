"""The .jsonl files of a run folder."""

import math

from rlvr.errors import UserError
from rlvr.show.logs import append_row, copy_logs, drop_rows_after, read_rows

import pytest


def test_rows_come_back_and_every_line_is_json_by_the_standard(tmp_path):
    assert read_rows(tmp_path, "metrics") == []
    text = {"step": 1, "reward": 1e300, "text": "a\nb\u2028ü"}
    append_row(tmp_path, "metrics", text)
    append_row(tmp_path, "metrics", {"step": 2, "loss": math.nan, "by_token": [{"a": [-math.inf]}]})
    written = (tmp_path / "metrics.jsonl").read_text().split("\n")
    assert written[1:] == ['{"step": 2, "loss": null, "by_token": [{"a": [null]}]}', ""]
    first, second = read_rows(tmp_path, "metrics")
    assert first == text and math.isnan(second["loss"])


DAMAGE = {  # to a line
    "bytes that are not UTF-8": b'{"step": 2, "text": "\xff\xfe"}\n',
    "cut within the file": b'{"step": 2, "rewa\n',
    "no step": b'{"reward": 2}\n',
    "deep": b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named_and_kept_aside(tmp_path, capsys, damage):
    file = tmp_path / "metrics.jsonl"
    append_row(tmp_path, "metrics", {"step": 1, "reward": 0.5})
    with open(file, "ab") as opened:
        opened.write(DAMAGE[damage])
    append_row(tmp_path, "metrics", {"step": 3, "reward": 0.5})
    before = file.read_bytes()
    with pytest.raises(UserError, match=f"cannot read {file}: line 2 is damaged"):
        read_rows(tmp_path, "metrics")
    drop_rows_after(tmp_path, 3)
    assert [row["step"] for row in read_rows(tmp_path, "metrics")] == [1, 3]
    assert (tmp_path / "metrics.damaged").read_bytes() == before
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"{file}: 1 damaged lines are left out; {tmp_path}/metrics.damaged has them",
        f"{file} lacks 1 steps, the first is 2",
    ]


@pytest.mark.parametrize("half", ['{"step": 5', '{"step": 5, "reward": 0.5}'])
def test_drop_rows_after(tmp_path, capsys, half):
    """Later rows go, and so does what a kill has left: half a line, and half a file.

    A copy stays as it was. Rows that are lost are told; eval.jsonl need not have every step.
    """
    for step in (1, 2, 3, 4, 10):
        append_row(tmp_path, "metrics", {"step": step, "reward": 0.5})
    for step in (0, 10):
        append_row(tmp_path, "eval", {"step": step, "pass@1": 0.5})
    before = (tmp_path / "metrics.jsonl").read_bytes()
    copy_logs(tmp_path, "before-9")
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(half)
    (tmp_path / ".metrics.jsonl").write_text("half")
    drop_rows_after(tmp_path, 4)
    assert read_rows(tmp_path, "metrics") == [{"step": i, "reward": 0.5} for i in (1, 2, 3, 4)]
    assert read_rows(tmp_path, "eval") == [{"step": 0, "pass@1": 0.5}]
    assert capsys.readouterr().out == ""
    assert (tmp_path / "metrics.before-9").read_bytes() == before
    names = {"metrics.jsonl", "eval.jsonl", "metrics.before-9", "eval.before-9"}
    assert {file.name for file in tmp_path.iterdir()} == names
    drop_rows_after(tmp_path, 6)
    told = capsys.readouterr().out
    assert told == f"{tmp_path}/metrics.jsonl lacks 2 steps, the first is 5\n"
    drop_rows_after(tmp_path, -1)
    assert read_rows(tmp_path, "metrics") == []


def test_a_last_line_without_its_end_is_damaged(tmp_path):
    """Its writer was killed: what stands there may be a part of a longer number."""
    (tmp_path / "eval.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}')
    with pytest.raises(UserError, match="line 2 is damaged"):
        read_rows(tmp_path, "eval")

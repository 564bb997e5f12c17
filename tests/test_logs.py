"""The .jsonl files of a run folder."""

from pathlib import Path

from rlvr.errors import UserError
from rlvr.logs import append_row, drop_rows_after, read_rows, write_whole

import pytest


def test_rows_come_back_as_they_were_written(tmp_path):
    assert read_rows(tmp_path, "metrics") == []
    rows = [{"step": 1, "reward": 0.1}, {"step": 2, "reward": float("inf"), "text": "a\nb"}]
    for row in rows:
        append_row(tmp_path, "metrics", row)
    assert read_rows(tmp_path, "metrics") == rows
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 2
    assert read_rows(tmp_path, "eval") == []


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="cannot write .*gone/eval.jsonl"):
        append_row(tmp_path / "gone", "eval", {"step": 1})


def test_drop_rows_after(tmp_path):
    """Later rows go, and so does what a kill has left: half a line, and half a file."""
    for step in (0, 2, 4, 10):
        append_row(tmp_path, "metrics", {"step": step, "reward": 0.5})
        append_row(tmp_path, "eval", {"step": step, "pass@1": 0.5})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "rew')
    (tmp_path / ".metrics.jsonl").write_text("half")
    drop_rows_after(tmp_path, 4)
    for name in ("metrics", "eval"):
        assert [row["step"] for row in read_rows(tmp_path, name)] == [0, 2, 4]
    assert {file.name for file in tmp_path.iterdir()} == {"metrics.jsonl", "eval.jsonl"}
    drop_rows_after(tmp_path, -1)
    assert read_rows(tmp_path, "metrics") == []


@pytest.mark.parametrize("half", ['{"step": 1', '{"step": 1, "reward": 0.5}', "{}\n", "\n"])
def test_a_line_that_is_not_whole_is_dropped(tmp_path, half):
    """The last line is whole only with its line break."""
    append_row(tmp_path, "metrics", {"step": 1, "reward": 0.5})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(half)
    drop_rows_after(tmp_path, 5)
    assert read_rows(tmp_path, "metrics") == [{"step": 1, "reward": 0.5}]


def test_a_file_holds_the_old_or_the_new_text(tmp_path, monkeypatch):
    file = tmp_path / "config.json"
    write_whole(file, "old")
    assert file.read_text() == "old"

    def full_disk(*_):
        raise OSError("disk full")

    for name in ("write_text", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, full_disk)
            with pytest.raises(UserError, match=f"cannot write {file}: disk full"):
                write_whole(file, "new")
        assert file.read_text() == "old"
    write_whole(file, "new")
    assert file.read_text() == "new"

"""studies/compare.py: which runs are one line, and the table of their numbers."""

import compare
import pytest
from test_report import write_run


def test_a_table_with_standard_errors(tmp_path):
    """Two seeds by their spread, one run by its problems; labels are names of folders."""
    folders = [
        write_run(tmp_path / "mine-0", 2, seed=0),
        write_run(tmp_path / "mine-1", 2, seed=1),
        write_run(tmp_path / "theirs", 2, script="fade.py"),
    ]
    eval_rows = (folders[1] / "eval.jsonl").read_text().replace('"pass@1": 0.5', '"pass@1": 0.4')
    (folders[1] / "eval.jsonl").write_text(eval_rows)
    groups = compare.group_runs(folders)
    assert groups == {"mine": folders[:2], "theirs": folders[2:]}
    lines = compare.table_of(groups)
    # (0.5 + 0.4) / 2, and 0.0707 / sqrt 2
    assert lines[2] == "| mine | pass@1 | 0.250 ± 0.000 | 0.450 ± 0.050 |"
    assert lines[3] == "| mine | pass@2 | 0.500 ± 0.000 | 0.500 ± 0.000 |"
    assert "| theirs | pass@1 | 0.250 ± 0.144 | 0.500 ± 0.289 |" in lines
    assert "| theirs | length |  |  |" in lines


@pytest.mark.slow
def test_pictures_of_two_runs(tmp_path, capsys):
    folders = [write_run(tmp_path / name, 2) for name in ("a", "b")]
    compare.main(folders, tmp_path / "compare.png")
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "compare.html").exists()
    assert capsys.readouterr().out.startswith("| run | metric | before | after |")
    with pytest.raises(SystemExit, match="nothing"):
        compare.main([tmp_path / "nothing"], tmp_path / "x.png")

"""studies/compare.py: which runs are one line, and what the lines are."""

import compare
import numpy as np
import pytest
from written_runs import write_run


def test_smooth_is_a_mean_of_what_there_is():
    lines = np.array([[1.0, 3.0, 5.0, 7.0], [0.0, 0.0, 0.0, 6.0]])
    np.testing.assert_allclose(compare.smooth(lines, 2), [[1, 2, 4, 6], [0, 0, 0, 3]])
    np.testing.assert_allclose(compare.smooth(lines, 9), [[1, 2, 3, 4], [0, 0, 0, 1.5]])


def test_runs_that_differ_in_the_seed_are_one_line(tmp_path):
    a = write_run(tmp_path / "a", [0, 1], learning_rate=1e-4, num_threads=1)
    b = write_run(tmp_path / "b", [0, 1], seed=1, learning_rate=1e-4, num_threads=2)
    c = write_run(tmp_path / "c", [0, 1], variant="gspo", learning_rate=1e-4)
    d = write_run(tmp_path / "d", [0, 1], learning_rate=1e-3)
    of_another_script = write_run(tmp_path / "e", [0, 1], learning_rate=1e-4, beta_pos=0.5)
    mine, theirs = (
        write_run(tmp_path / name, [0, 1], script=name) for name in ("mine.py", "grpo.py")
    )
    assert compare.group_runs([a, b, c]) == {"grpo": [a, b], "gspo": [c]}
    assert compare.group_runs([a, d, c]) == {
        "grpo learning_rate=0.0001": [a],
        "grpo learning_rate=0.001": [d],
        "gspo": [c],
    }
    assert compare.group_runs([a, of_another_script]) == {
        "grpo": [a],
        "grpo beta_pos=0.5": [of_another_script],
    }
    assert compare.group_runs([mine, theirs]) == {
        "grpo script=mine.py": [mine],
        "grpo script=grpo.py": [theirs],
    }


def test_k_of_an_evaluation():
    row = {"pass@4": 0.1, "pass@16": 0.1, "pass@1": 0.1, "pass@1 3 numbers": 0.1, "avg@16": 0.1}
    assert compare.ks_of(row) == [1, 4, 16]


def test_runs_of_different_length(tmp_path):
    rewards = [0, 1, 0, 1]
    runs = [write_run(tmp_path / str(i), rewards[: 4 - i], seed=i) for i in range(2)]
    figure = compare.draw_runs(runs)
    lines = {axis.get_title(): axis.lines[0].get_xydata().tolist() for axis in figure.axes}
    # as many steps as both runs have
    assert lines["reward"] == [[1, 0], [2, 0.5], [3, pytest.approx(1 / 3)]]
    assert lines["held-out pass@k"] == [[2**i, 0.5] for i in range(6)]


def test_more_groups_than_styles(tmp_path):
    count = len(compare.STYLES) + 1
    runs = [write_run(tmp_path / str(i), [0, 1], variant=f"v{i}") for i in range(count)]
    figure = compare.draw_runs(runs)
    reward, *_, pass_at_k = figure.axes
    assert len(reward.lines) == count
    assert len(pass_at_k.lines) == count + 1  # the policy before, too


def test_the_figure_is_written(tmp_path):
    compare.main([write_run(tmp_path / "a", [0, 1])], tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_a_run_that_has_no_evaluation_is_named(tmp_path):
    with pytest.raises(SystemExit, match="no finished evaluation in .*empty"):
        compare.main([tmp_path / "empty"], tmp_path / "a.png")

"""The order in which training problems are drawn."""

from rlvr import world
from rlvr.records import Problem
from rlvr.tasks.stream import ProblemStream

import pytest

PROBLEMS = [Problem(str(i), "") for i in range(10)]


def test_a_stream_passes_over_all_problems():
    stream = ProblemStream(PROBLEMS, 0)
    drawn = [problem for count in (3, 4, 7, 1, 10, 5) for problem in stream.draw(count)]
    epochs = [drawn[:10], drawn[10:20], drawn[20:]]
    for epoch in epochs:
        assert sorted(epoch, key=lambda problem: problem.prompt) == PROBLEMS
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != PROBLEMS
    assert stream.position == 30


def test_a_stream_draws_more_than_a_pass():
    drawn = ProblemStream(PROBLEMS, 0).draw(25)
    stream = ProblemStream(PROBLEMS, 0)
    assert drawn == [problem for _ in range(25) for problem in stream.draw(1)]


@pytest.mark.parametrize("before", [0, 4, 10, 17])
def test_a_stream_resumes_from_its_position(before):
    stream, resumed = ProblemStream(PROBLEMS, 7), ProblemStream(PROBLEMS, 7)
    stream.draw(before)
    resumed.position = stream.position
    assert resumed.draw(13) == stream.draw(13)


def test_seeds_differ():
    assert ProblemStream(PROBLEMS, 0).draw(10) != ProblemStream(PROBLEMS, 1).draw(10)
    assert ProblemStream(PROBLEMS, 1).draw(10) == ProblemStream(PROBLEMS, 1).draw(10)


def test_ranks_share_the_stream(monkeypatch):
    """Two ranks that draw 3 each take in turn what one process that draws 6 takes."""
    whole = ProblemStream(PROBLEMS, 0)
    expected = [whole.draw(6) for _ in range(4)]
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    drawn_by = []
    for rank in range(2):
        monkeypatch.setattr(world, "RANK", rank)
        stream = ProblemStream(PROBLEMS, 0)
        drawn_by.append([stream.draw(3) for _ in range(4)])
        assert stream.position == whole.position
    for first, second, both in zip(*drawn_by, expected, strict=True):
        assert [problem for pair in zip(first, second, strict=True) for problem in pair] == both

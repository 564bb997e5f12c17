"""What rank 0 finds out for all ranks, such as which problems have a gold answer in time."""

from rlvr import world
from rlvr.errors import UserError
from rlvr.ranks import from_rank_0

import pytest
import torch


@pytest.fixture
def on_ranks(monkeypatch):
    """on_ranks(function) -> what from_rank_0 gives, or raises, on rank 0 and on rank 1."""
    sent = []

    def broadcast(found):
        if world.RANK == 0:
            sent[:] = found
        found[:] = sent

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)

    def run(function, *given):
        results = []
        for rank in (0, 1):
            monkeypatch.setattr(world, "RANK", rank)
            try:
                results.append(from_rank_0(function, *given))
            except UserError as error:
                results.append(str(error))
        return results

    return run


def test_rank_0_does_it_for_all(on_ranks):
    """So a verifier that is slow on one rank alone gives no rank other problems."""
    asked = []

    def slower_each_time(problems):
        asked.append(world.RANK)
        return problems[: -len(asked)]

    assert on_ranks(slower_each_time, [1, 2, 3, 4]) == [[1, 2, 3]] * 2
    assert asked == [0]


def test_every_rank_hears_of_the_users_error(on_ranks):
    def refuse():
        raise UserError("no such data set")

    assert on_ranks(refuse) == ["no such data set"] * 2


def test_one_process_asks_nobody():
    assert from_rank_0(lambda first, second: first + second, 3, 4) == 7

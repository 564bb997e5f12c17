"""The device of a rank, and the warning where a GPU cannot be used."""

from pathlib import Path

import rlvr.machine.devices
from rlvr import world
from rlvr.errors import UserError
from rlvr.machine.devices import choose_device

import pytest
import torch


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """machine(driver, usable, visible) makes it look as if there were such a GPU."""

    def look(driver, usable=False, visible=None):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)
        monkeypatch.setattr(
            rlvr.machine.devices, "A_GPU", tmp_path if driver else Path("/no such file")
        )
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return look


def test_a_gpu_that_torch_cannot_use_is_warned_of(machine, capsys):
    """As where the driver is too old. Training would silently take days on the CPU."""
    machine(driver=True)
    assert choose_device() == torch.device("cpu")
    warning = capsys.readouterr().err
    assert warning.startswith("warning: there is a GPU")
    assert warning.count("\n") == 1
    assert torch.__version__ in warning


@pytest.mark.parametrize(
    "driver, visible, rank",
    [(False, None, 0), (True, "", 0), (True, "-1", 0), (False, "0", 0), (True, None, 1)],
)
def test_no_warning_without_a_gpu_or_where_it_is_hidden_or_told_by_rank_0(
    machine, monkeypatch, capsys, driver, visible, rank
):
    machine(driver=driver, visible=visible)
    monkeypatch.setattr(world, "RANK", rank)
    assert choose_device() == torch.device("cpu")
    assert capsys.readouterr().err == ""


def test_a_rank_takes_the_gpu_of_its_own_number(machine, monkeypatch, capsys):
    chosen = []
    machine(driver=True, usable=True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(world, "LOCAL_RANK", 3)
    assert choose_device() == torch.device("cuda:3")
    assert chosen == [torch.device("cuda:3")]
    assert capsys.readouterr().err == ""


def test_more_ranks_than_gpus(machine, monkeypatch):
    machine(driver=True, usable=True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(world, "LOCAL_RANK", 2)
    with pytest.raises(UserError, match="^local rank 2 sees 2 GPUs: "):
        choose_device()

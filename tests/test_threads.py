"""When a run says that fewer threads would be faster, and what it does with --num_threads."""

import copy
import signal

import rlvr.flags.command_line
import rlvr.machine.devices
import rlvr.training.run
from rlvr.flags.config import Config
from rlvr.tasks.problems import ProblemStream
from rlvr.training.checkpoints import TrainingState

import pytest
import torch


@pytest.fixture
def four_threads():
    """Torch uses four threads, however many cores there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def seconds(monkeypatch):
    """Number of threads -> seconds of a pass; fill it in. A list gives one after the other."""
    table = {}

    def seconds_of_a_pass(policy, ids):
        entry = table[torch.get_num_threads()]
        return entry.pop(0) if isinstance(entry, list) else entry

    monkeypatch.setattr(rlvr.machine.devices, "seconds_of_a_pass", seconds_of_a_pass)
    return table


@pytest.mark.parametrize(
    "of_4, of_2, of_1, advice",
    [
        (0.131, 0.1, 0.12, "--num_threads 2 is 1.3 times as fast here as 4 threads\n"),
        (0.4, 0.3, 0.1, "--num_threads 1 is 4.0 times as fast here as 4 threads\n"),
        (0.129, 0.1, 0.12, ""),  # not enough to speak of
        (0.1, 0.2, 0.4, ""),
    ],
)
def test_advice_where_fewer_threads_are_over_1_3_times_as_fast(
    tiny, four_threads, seconds, capsys, of_4, of_2, of_1, advice
):
    seconds.update({4: of_4, 2: of_2, 1: of_1})
    rlvr.machine.devices.advise_on_threads(tiny[0])
    assert capsys.readouterr().out == advice
    assert torch.get_num_threads() == 4


def test_the_fastest_of_three_passes_counts(tiny, four_threads, seconds, capsys):
    """So that a moment of another process's work is no reason for advice."""
    seconds.update({4: [0.9, 0.1, 0.9], 2: [0.1, 0.1, 0.1], 1: [0.1, 0.1, 0.1]})
    rlvr.machine.devices.advise_on_threads(tiny[0])
    assert capsys.readouterr().out == ""
    assert seconds == {4: [], 2: [], 1: []}


def test_nothing_is_tried_with_one_thread(tiny, seconds, capsys):
    assert torch.get_num_threads() == 1
    rlvr.machine.devices.advise_on_threads(
        tiny[0]
    )  # `seconds` is empty: a pass would be a KeyError
    assert capsys.readouterr().out == ""


def test_the_number_of_threads_is_restored_after_an_error(tiny, four_threads, monkeypatch):
    def failing_pass(policy, ids):
        if torch.get_num_threads() < 4:
            raise MemoryError
        return 1.0

    monkeypatch.setattr(rlvr.machine.devices, "seconds_of_a_pass", failing_pass)
    with pytest.raises(MemoryError):
        rlvr.machine.devices.advise_on_threads(tiny[0])
    assert torch.get_num_threads() == 4


def test_trying_leaves_no_trace_in_the_policy(sharp, four_threads):
    """Weights and random numbers stay what they are, and there are no gradients."""
    policy = copy.deepcopy(sharp[0])
    torch.manual_seed(3)
    random_state = torch.get_rng_state()
    rlvr.machine.devices.advise_on_threads(policy)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == 4
    for parameter, before in zip(policy.parameters(), sharp[0].parameters(), strict=True):
        torch.testing.assert_close(parameter, before, rtol=0, atol=0)
        assert parameter.grad is None


def test_a_pass_takes_time(tiny):
    assert (
        rlvr.machine.devices.seconds_of_a_pass(copy.deepcopy(tiny[0]), torch.zeros(1, 4).long()) > 0
    )


@pytest.mark.parametrize("given, used, asked", [(None, 4, 1), (2, 2, 0)])
def test_a_run_uses_and_notes_its_threads(
    tiny, four_threads, tmp_path, monkeypatch, given, used, asked
):
    """It asks for advice where --num_threads is not given, and config.json tells what it used."""
    policies = []
    monkeypatch.setattr(rlvr.training.run, "advise_on_threads", policies.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    training = TrainingState(*tiny, optimizer=None, scheduler=None, stream=ProblemStream([], 0))
    with torch.random.fork_rng([]):
        run = rlvr.training.run.Run(Config(output_dir=str(tmp_path / "run"), num_threads=given))
        run.resume(training)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert torch.get_num_threads() == used
    assert f'"num_threads": {used}' in (tmp_path / "run" / "config.json").read_text()
    assert policies == [tiny[0]] * asked

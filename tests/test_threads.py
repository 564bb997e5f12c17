"""When a run says that fewer threads would be faster."""

import copy

import rlvr.machine.devices

import pytest
import torch


@pytest.fixture
def four_threads():
    """Torch uses four threads, however many cores there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


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
    tiny, four_threads, monkeypatch, capsys, of_4, of_2, of_1, advice
):
    """The fastest of three passes counts: another process's work is no reason for advice."""
    table = {4: [9.0, of_4, 9.0], 2: [of_2, 9.0, 9.0], 1: [9.0, 9.0, of_1]}

    def seconds_of_a_pass(policy, ids):
        return table[torch.get_num_threads()].pop(0)

    monkeypatch.setattr(rlvr.machine.devices, "seconds_of_a_pass", seconds_of_a_pass)
    rlvr.machine.devices.advise_on_threads(tiny[0])
    assert capsys.readouterr().out == advice
    assert torch.get_num_threads() == 4
    torch.set_num_threads(1)
    rlvr.machine.devices.advise_on_threads(tiny[0])  # nothing is left to try: it would fail


def test_trying_leaves_no_trace_in_the_policy(sharp, four_threads):
    """Weights and random numbers stay what they are, and there are no gradients."""
    policy = copy.deepcopy(sharp[0])
    torch.manual_seed(3)
    random_state = torch.get_rng_state()
    assert rlvr.machine.devices.seconds_of_a_pass(policy, torch.zeros(1, 4).long()) > 0
    rlvr.machine.devices.advise_on_threads(policy)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.get_num_threads() == 4
    for parameter, before in zip(policy.parameters(), sharp[0].parameters(), strict=True):
        torch.testing.assert_close(parameter, before, rtol=0, atol=0)
        assert parameter.grad is None

"""Whether fewer CPU threads would be faster, as on a machine that others use, too."""

import time

import torch


def seconds_of_a_pass(policy, ids: torch.Tensor) -> float:
    """Wall time of a forward and backward pass over the ids [n, S]; gradients are dropped."""
    started = time.perf_counter()
    policy.base_model(input_ids=ids, use_cache=False).last_hidden_state.sum().backward()
    policy.zero_grad()
    return time.perf_counter() - started


def advise_on_threads(policy) -> None:
    """Print a line where fewer threads are over 1.3 times as fast as those that torch would use.

    On a small policy a second thread gains little, and beside other busy processes it costs much.
    Trying takes some tenths of a second, and changes neither weights nor random numbers.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    tokens = min(2048, max(8, int(6e8 / parameters)))  # about a tenth of a second
    ids = torch.zeros(max(1, tokens // 32), min(tokens, 32), dtype=torch.long)
    fastest = {}
    try:
        for count in (threads, threads // 2, 1) * 3:
            torch.set_num_threads(count)
            seconds = seconds_of_a_pass(policy, ids)
            fastest[count] = min(seconds, fastest.get(count, seconds))
    finally:
        torch.set_num_threads(threads)
    best = min(fastest, key=fastest.get)
    gain = fastest[threads] / fastest[best]
    if gain > 1.3:
        print(f"--num_threads {best} is {gain:.1f} times as fast here as {threads} threads")

"""Processes that end when the study ends: by itself, by an error, Ctrl-C, SIGTERM or kill -9."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

SPAWN = multiprocessing.get_context("spawn")  # a child starts with memory that nobody has used


def end_with_parent() -> None:
    """Call it in a child: from now on the child ends as soon as its parent has ended."""
    threading.Thread(target=wait_for_parent, daemon=True).start()


def wait_for_parent() -> None:
    """Wait until the parent has ended, by whatever, and end this process."""
    multiprocessing.parent_process().join()
    os._exit(1)


@contextlib.contextmanager
def ending_children():
    """End the children of this process where the block ends early: by an error, Ctrl-C, SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    except BaseException:
        for child in multiprocessing.active_children():
            child.kill()  # not terminate: a training run would finish its step first
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def workers(count: int):
    """A pool of `count` processes, which take one task after another."""
    pool = ProcessPoolExecutor(count, SPAWN, initializer=end_with_parent)
    with pool, ending_children():
        yield pool


def in_workers(work, tasks: list[tuple], processes: int):
    """Yield work(*task) of each as it ends, by processes of one thread; print how many are done."""
    started = time.time()
    os.environ["OMP_NUM_THREADS"] = "1"
    with workers(processes) as pool:
        futures = [pool.submit(work, *task) for task in tasks]
        for done, future in enumerate(as_completed(futures), 1):
            yield future.result()
            minutes = (time.time() - started) / 60
            left = minutes / done * (len(tasks) - done)
            print(f"{done}/{len(tasks)} runs in {minutes:.0f} min, {left:.0f} min left", flush=True)


def alone(function, *arguments):
    """function(*arguments) in a process of its own, whose memory nothing else has used."""
    with workers(1) as pool:
        return pool.submit(function, *arguments).result()

"""A watch over the ranks: where one of them falls silent, the others end.

A rank is silent where its machine is gone without a word, or where it was stopped. Nothing else can
end the others then, since their main threads wait for it.
"""

import contextlib
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path

from rlvr import world

import torch.distributed as dist

BEAT = 5.0  # seconds between two signs of life of a rank
SILENCE = 45.0  # seconds without a sign of life after which a rank is taken for dead
START = 300.0  # seconds that a rank may need until its first one, as on a slow disk


@contextlib.contextmanager
def watching():
    """Within the block, end this process, in one line, where a rank falls silent."""
    watch = Watch()
    try:
        yield
    finally:
        watch.end()


class Watch:
    """Two threads: one gives signs of life, and the other one counts the seconds without any.

    The ranks' signs of life are counters in the store that torch.distributed keeps on rank 0's
    machine. Where that machine is stopped, a call of the store never returns, whatever its timeout.
    That must not stop the clock.
    """

    def __init__(self):
        self.counters = [0] * world.WORLD_SIZE  # of each rank, as they were last read
        self.ended = threading.Event()
        self.beater = threading.Thread(target=self.beat, daemon=True)
        self.clock = threading.Thread(target=self.count_seconds, daemon=True)
        self.beater.start()
        self.clock.start()

    def end(self) -> None:
        """Wait until both threads have ended; end the process where the store does not answer.

        Not to wait would be an error: at its end Python kills a thread that comes back from the
        store's C++ code, and this aborts the process.
        """
        self.ended.set()
        self.beater.join()
        self.clock.join()

    def beat(self) -> None:
        """Give a sign of life, and read those of all ranks, again and again."""
        store = None
        while not self.ended.is_set():
            try:
                store = store or connect()
                store.add(f"alive/{world.RANK}", 1)
                self.counters = [store.add(f"alive/{rank}", 0) for rank in range(world.WORLD_SIZE)]
            except dist.DistError:
                pass  # there is no store, or not any more; the clock tells for how long
            self.ended.wait(BEAT)

    def count_seconds(self) -> None:
        """End this process where a rank is silent for too long.

        The seconds are counted by beats, so that the time does not count in which this process
        itself was stopped.
        """
        silent_for = [0.0] * world.WORLD_SIZE  # seconds
        patience = [START] * world.WORLD_SIZE  # seconds
        counters = self.counters
        while True:
            self.beater.join(BEAT)
            if not self.beater.is_alive():
                return
            before, counters = counters, self.counters
            for rank, (last, now) in enumerate(zip(before, counters, strict=True)):
                silent_for[rank] += BEAT
                if now != last:
                    silent_for[rank], patience[rank] = 0.0, SILENCE
                limit = SILENCE if self.ended.is_set() else patience[rank]
                if silent_for[rank] >= limit:
                    give_up(rank, limit)


def connect() -> dist.TCPStore:
    """A connection of its own to the store through which the ranks find each other.

    It waits for the store for longer than the clock does, so that the clock's line is the only one.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(address, port, is_master=False, timeout=timedelta(seconds=2 * START))


def give_up(rank: int, seconds: float) -> None:
    """End this process at once: its main thread may never do so."""
    silent = "rank 0's machine" if rank == world.RANK else f"rank {rank}"  # which keeps the store
    sys.stderr.write(
        f"{Path(sys.argv[0]).name}: error: rank {world.RANK} has not heard of {silent} for "
        f"{seconds:g} s; resume from the last checkpoint\n"
    )
    os._exit(2)

"""The machine that a run is on: its ranks, devices, folders and signals.

Read ranks.py first, if you train on several GPUs. A student may skip the rest: ending.py and
folders.py keep a run whole when it is killed, and record.py says what it was made with.
"""

from .ending import AT_EXIT, end, end_one_of_several_ranks, handle_signals, leave
from .folders import own, remove, remove_empty, scratch_folder
from .ranks import (
    choose_device,
    from_rank_0,
    gather,
    gather_groups,
    global_max,
    global_mean,
    global_sum,
    process_group,
)
from .record import peak_memory_gb, record_of

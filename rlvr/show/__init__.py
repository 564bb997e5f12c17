"""What a run leaves to be looked at: its logs, curves and pages.

Read logs.py first, then console.py. A student may skip all of it: nothing here changes a run.
"""

from .console import Console
from .logs import (
    LOGS,
    append_row,
    drop_rows_after,
    keep_problems,
    ks_of,
    make_writer,
    read_evaluations,
    read_rows,
    write_whole,
)
from .plots import COLORS, SETTINGS, draw_curves
from .report import before_and_after, log_tokens, sample_row, write_report

"""What a run leaves to be looked at: its logs, curves and pages."""

from .console import Console
from .logs import LOGS, append_row, drop_rows_after, make_writer, read_rows, write_whole
from .plots import COLORS, SETTINGS, draw_curves
from .report import before_and_after, log_tokens, prompt_text, write_report
from .statistics import covariance_statistics, fit_pass_at_k, rank1_statistics

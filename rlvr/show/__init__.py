"""What a run leaves to be looked at: its logs, curves and pages."""

from rlvr import door

__getattr__ = door(
    __name__,
    logs="append_row copy_logs drop_rows_after make_writer write_whole",
    plots="draw_curves print_first_and_last",
    report="log_tokens write_report",
)

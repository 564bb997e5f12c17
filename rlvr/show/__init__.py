"""What a run leaves to be looked at: its logs, curves and pages."""

from rlvr import door

__getattr__ = door(
    __name__,
    console="Console",
    logs="append_row drop_rows_after make_writer read_rows write_whole",
    plots="draw_curves",
    report="log_tokens prompt_text write_report",
)

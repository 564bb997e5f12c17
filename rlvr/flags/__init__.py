"""The flags of all scripts, the command line that sets them, and the run that they resume."""

from rlvr import door

__getattr__ = door(
    __name__,
    command_line="parse_flags",
    config="Config Only Share ZeroOrMore",
    run_folders="checkpoints_of find_run newest_whole step_of",
)

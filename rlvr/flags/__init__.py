"""The flags of all scripts, the command line that sets them, and the run that they resume."""

from .command_line import parse_flags
from .config import TINY, Config, flag
from .run_folders import checkpoints_of, find_run, newest_whole, step_of

"""The flags of all scripts, the command line that sets them, and the run that they resume."""

from .command_line import CHECKPOINT, find_run, make_config, parse_flags
from .config import TAUGHT, TINY, Config, flag

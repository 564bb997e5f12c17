"""The flags of all scripts, the command line that sets them, and the run that they resume.

Read config.py first, a table of flags with their limits. A student may skip command_line.py, which
makes argparse's errors and help readable.
"""

from .command_line import CHECKPOINT, find_run, make_config, parse_flags
from .config import TAUGHT, TINY, Config, flag

"""A run from its first to its last line: its folder, its checkpoints, its learning rates."""

from .run import Run, launch
from .updates import make_optimizer

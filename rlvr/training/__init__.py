"""A run from beginning to end: its folder, its checkpoints, its learning rates."""

from .checkpoints import checkpoints_of, save_folder, step_of
from .run import Run, check_advantages, launch
from .updates import make_optimizer

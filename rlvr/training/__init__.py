"""A run from its first to its last line: its folder, its checkpoints, its learning rates."""

from rlvr import door

__getattr__ = door(
    __name__,
    checkpoints="TrainingState",
    run="Run launch",
    updates="UpdateMetrics make_optimizer",
)

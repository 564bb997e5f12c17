"""Completions: drawn by transformers or vLLM, in one turn or several, and graded."""

from rlvr import door

__getattr__ = door(
    __name__,
    rollouts="check_context rollout_metrics room_after sample_groups sampler_mismatch",
    samplers="make_sampler",
)

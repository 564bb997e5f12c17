"""Completions: drawn by transformers or vLLM, in one turn or several, and graded."""

from rlvr import door

__getattr__ = door(
    __name__,
    rollouts=(
        "check_context completion_mask rollout_metrics room_after sample_groups sampled_logprobs "
        "sampler_mismatch"
    ),
    samplers="make_sampler",
)

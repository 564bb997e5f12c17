"""Completions: drawn by transformers or vLLM, in one turn or several."""

from .noise import add_noise
from .rollouts import (
    check_context,
    is_mixed,
    mean_and_error,
    rollout_metrics,
    room_after,
    sampler_mismatch,
)
from .samplers import Sampler
from .vllm_sampler import make_sampler

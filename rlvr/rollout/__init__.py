"""Completions: drawn by transformers or vLLM, in one turn or several."""

from .engines import make_sampler
from .rollouts import check_context, rollout_metrics, room_after, sampler_mismatch
from .samplers import Sampler

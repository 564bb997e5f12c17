"""The choice between the decoding loop and vLLM."""

import importlib.util
from collections.abc import Callable

from rlvr import status, world
from rlvr.flags import Config
from rlvr.rollout.samplers import Sampler
from rlvr.rollout.vllm_sampler import VllmSampler


def make_sampler(policy, tokenizer, config: Config, decode: Callable) -> Sampler:
    """Return the sampler that --engine asks for, with a hint if vLLM would be faster.

    `decode` is the loop that writes completions without vLLM.
    """
    gpu = policy.device.type == "cuda"
    installed = importlib.util.find_spec("vllm") is not None
    if gpu and not installed and world.RANK == 0:
        status.tell("rollouts by transformers; they are faster after: pip install vllm==0.32.0")
    sampler = VllmSampler if config.uses_vllm(gpu) else Sampler
    return sampler(policy, tokenizer, config, decode)

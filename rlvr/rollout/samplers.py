"""Completions by the policy itself, and the choice between it and vLLM."""

import copy
import importlib.util
from collections.abc import Sequence

from rlvr import status, world
from rlvr.errors import UserError
from rlvr.machine import computes_in_bf16
from rlvr.policy import is_sharded, unshard
from rlvr.tasks import end_of_turn, find_call_ends

import torch


def bf16_twin(policy):
    """A copy of the policy in bf16, and never in fp32 on the way.

    Under autocast each product casts its inputs at each token, and the cache of keys and values is
    in fp32. The twin has nothing to cast, and half of the cache.
    """
    in_bf16 = {
        id(parameter): torch.nn.Parameter(parameter.detach().bfloat16(), requires_grad=False)
        for parameter in policy.parameters()
    }
    return copy.deepcopy(policy, in_bf16)


def stop_tokens(policy, tokenizer) -> list[int]:
    """The tokens that end a completion: the checkpoint's, and the one that its template writes.

    UserError where the checkpoint has none.
    """
    stops = policy.generation_config.eos_token_id
    if stops is None:
        stops = tokenizer.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    found = [*dict.fromkeys(stop for stop in (*stops, *end_of_turn(tokenizer)) if stop is not None)]
    if not found:
        raise UserError("--model has no end-of-text token, so that no completion could end")
    return found


class GenerateSampler:
    """Completions by a decoding loop on the policy's own weights."""

    decode = None  # the loop, which make_sampler sets: common.decode, or a function of your own

    def __init__(self, policy, tokenizer, config):
        self.policy, self.tokenizer, self.config = policy, tokenizer, config
        # the devices whose random states are this rank's
        self.devices = [policy.device] if policy.device.type == "cuda" else []
        # A sharded policy is gathered in bf16 anyway.
        self.wants_twin = computes_in_bf16(policy) and not is_sharded(policy)
        self.writer = policy  # whose completions they are: the policy, or its twin in a rollout
        self.stops = stop_tokens(policy, tokenizer)
        self.call_ends = find_call_ends(tokenizer, config.tool)
        given_cap = config.vllm_importance_sampling_cap
        default_cap = 0.0 if self.is_exact else 2.0
        # the largest importance weight, 0 for none
        self.cap = default_cap if given_cap is None else given_cap
        self.gap = None  # how far its log-probs were from the policy's at the last `sync`, in nats

    @property
    def is_exact(self) -> bool:
        """Whether the log-probs are the policy's, to rounding of fp32.

        In bf16 both are rounded, each by kernels of its own.
        """
        return not computes_in_bf16(self.policy)

    def generate(
        self,
        prompt_ids: list[list[int]],
        temperature: float,
        top_p: float,
        max_tokens: int,
        call_ends: Sequence[int] = (),
        images: Sequence[tuple[bytes, ...]] = (),
    ):
        """A completion for each prompt: token ids, the stop token included, and their log-probs.

        It is --rollout_batch_size completions at a time. A completion stops at one of `call_ends`,
        too. `images` are those of each prompt, and empty where no prompt has any.
        """
        stops = {*self.stops, *call_ends}
        size = self.config.rollout_batch_size
        completions, logprobs = [], []
        # A compiled layer would be compiled anew for the cache of each token.
        with torch.compiler.set_stance("force_eager"):
            for start in range(0, len(prompt_ids), size):
                status.progress("completions", start, len(prompt_ids))
                part = slice(start, start + size)
                found = self.decode(
                    self.writer,
                    prompt_ids[part],
                    stops,
                    max_tokens,
                    temperature,
                    top_p,
                    images[part],
                )
                completions += found[0]
                logprobs += found[1]
        return completions, logprobs

    def sync(self) -> None:
        """Call before a rollout, as the policy may have changed: gathers or copies its weights."""
        unshard(self.policy, True)
        if self.wants_twin:
            self.writer = bf16_twin(self.policy)

    def sleep(self) -> None:
        """Call after a rollout: gives back what `sync` has gathered or copied."""
        unshard(self.policy, False)
        self.writer = self.policy


def make_sampler(policy, tokenizer, config, decode) -> GenerateSampler:
    """What --engine asks for, with a hint where vLLM would be faster.

    decode is the loop that draws completions where vLLM does not.
    """
    gpu = policy.device.type == "cuda"
    installed = importlib.util.find_spec("vllm") is not None
    if gpu and not installed and world.RANK == 0:
        status.tell("rollouts by transformers; they are faster after: pip install vllm==0.32.0")
    if config.uses_vllm(gpu):
        from rlvr.rollout.vllm_sampler import VllmSampler

        return VllmSampler(policy, tokenizer, config)
    sampler = GenerateSampler(policy, tokenizer, config)
    sampler.decode = decode
    return sampler

"""Completions by a decoding loop on the policy itself."""

import contextlib
from collections.abc import Callable, Sequence

from rlvr import progress
from rlvr.errors import UserError
from rlvr.flags import Config
from rlvr.policy import gathered, is_sharded, settings_of
from rlvr.rollout.turns import complete_in_turns
from rlvr.tasks import end_of_turn, find_call_ends, special_tokens

import torch


def stop_tokens(policy, tokenizer) -> list[int]:
    """Return the stop tokens of checkpoint and chat template. UserError if there are none."""
    stops = policy.generation_config.eos_token_id
    if stops is None:
        stops = tokenizer.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    stops = [*dict.fromkeys(stop for stop in (*stops, *end_of_turn(tokenizer)) if stop is not None)]
    if not stops:
        raise UserError("--model has no end-of-text token, so no completion could end")
    return stops


class Sampler:
    """Writes completions, here by a decoding loop on the policy's own weights.

    `decode` is the loop: common.decode, or a function of your own with the same parameters.
    """

    def __init__(self, policy, tokenizer, config: Config, decode: Callable, is_exact: bool = True):
        self.policy, self.tokenizer, self.config = policy, tokenizer, config
        self.decode = decode
        # the devices whose random states belong to this rank
        self.devices = [policy.device] if policy.device.type == "cuda" else []
        self.settings = settings_of(policy)
        # Whether its log-probs are the policy's, up to rounding in fp32. In bf16 they differ.
        self.is_exact = is_exact and not self.settings.half
        self.stops = stop_tokens(policy, tokenizer)
        self.call_ends = find_call_ends(tokenizer, config.tool)
        self.cap = config.vllm_importance_sampling_cap  # the largest weight, 0 for none
        if self.cap is None:
            self.cap = 0.0 if self.is_exact else 2.0
        # how far vLLM's log-probs were from the policy's after the last push, in nats
        self.gap: float | None = None

    complete = complete_in_turns

    def texts(self, completions: list[list[int]]) -> list[str]:
        """Return completions as text, without special tokens that pad or end a turn or a text.

        Other special tokens stay: they may be tags that the verifier reads.
        """
        left_out = special_tokens(self.tokenizer) & {self.tokenizer.pad_token_id, *self.stops}
        kept = [[token for token in ids if token not in left_out] for ids in completions]
        return self.tokenizer.batch_decode(kept)

    def generate(
        self,
        prompt_ids: list[list[int]],
        *,
        temperature: float,
        top_p: float,
        max_tokens: int,
        call_ends: Sequence[int] = (),
    ):
        """Return token ids, with the stop token, and log-probs of a completion of each prompt.

        --decode_batch_size completions are written at a time. They also stop at `call_ends`.
        """
        how = dict(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
        stops = {*self.stops, *call_ends}
        size = self.config.decode_batch_size
        completions, logprobs = [], []
        # A compiled layer would be compiled again for each length of the cache.
        with torch.compiler.set_stance("force_eager"):
            for start in range(0, len(prompt_ids), size):
                progress.count("completions", start, len(prompt_ids))
                part = prompt_ids[start : start + size]
                of_part = self.decode(self.policy, part, stops=stops, **how)
                completions += of_part[0]
                logprobs += of_part[1]
        return completions, logprobs

    @contextlib.contextmanager
    def synced(self):
        """Gather the policy's weights, or cast them to its precision, for the rollout in the block.

        Under autocast, each product would cast its inputs at each token, and the cache of keys and
        values would be in fp32 and so twice as large.
        """
        in_fp32 = []
        with gathered(self.policy):  # in the policy's precision
            if self.settings.half and not is_sharded(self.policy):
                in_fp32 = [(parameter, parameter.data) for parameter in self.policy.parameters()]
            try:
                for parameter, weight in in_fp32:
                    parameter.data = weight.to(self.settings.dtype)
                yield
            finally:
                for parameter, weight in in_fp32:
                    parameter.data = weight

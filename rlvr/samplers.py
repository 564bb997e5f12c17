"""Completions by `transformers.generate`, and the choice between it and vLLM."""

import contextlib
import copy
import importlib.util
from collections.abc import Sequence

from rlvr import world
from rlvr.devices import computes_in_bf16
from rlvr.errors import UserError
from rlvr.images import prompt_images
from rlvr.logprobs import product
from rlvr.sharding import is_sharded, unshard
from rlvr.tasks.prompts import end_of_turn
from rlvr.turns import find_call_ends

import torch
import transformers


class Recorder(transformers.LogitsProcessor):
    """Keeps the log-probs of the tokens that `generate` draws.

    Which token was drawn in a step is known in the next one.
    """

    def __init__(self, temperature: float):
        self.temperature = temperature
        self.last = None  # [n, V], log-probs of the step before
        self.logprobs = []  # [n] a step

    def __call__(self, ids, logits):
        """ids [n, S] so far, logits [n, V] of the next token -> the logits, unchanged."""
        if self.last is not None:
            self.logprobs.append(self.last.gather(1, ids[:, -1:])[:, 0])  # [n]
        self.last = (logits.float() / self.temperature).log_softmax(-1)
        if self.last.isnan().any():
            raise UserError(
                "the policy's logits have become NaN or infinite: lower --learning_rate, or raise "
                "a very low temperature"
            )
        return logits


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


@contextlib.contextmanager
def without_generation_config(policy):
    """Within it no setting comes from the checkpoint.

    `generate` fills in from there what it is not given: min_p, no_repeat_ngram_size, num_beams ...
    The log-probs of the loss know nothing of them.
    """
    own, policy.generation_config = policy.generation_config, transformers.GenerationConfig()
    try:
        yield
    finally:
        policy.generation_config = own


@contextlib.contextmanager
def fp32_logits(policy):
    """Within it the output head gives logits in fp32 even in bf16, as in the loss."""
    head = policy.get_output_embeddings()
    weight = head.weight
    if weight.dtype == torch.bfloat16 and not weight.is_cuda:
        weight = weight.float()  # once, since a CPU's `product` would do so at each token

    def forward(hidden):  # [n, S, H] -> [n, S, V]
        states = hidden.flatten(0, 1).to(weight.dtype)
        logits = product(states, weight.T).unflatten(0, hidden.shape[:2])
        return logits if head.bias is None else logits + head.bias

    head.forward = forward
    try:
        yield
    finally:
        del head.forward


class GenerateSampler:
    """Completions by `transformers.generate` on the policy's own weights."""

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
        self.cap = self.default_cap() if given_cap is None else given_cap
        self.gap = None  # how far its log-probs were from the policy's at the last `sync`, in nats

    def default_cap(self) -> float:
        """The largest importance weight, 0 for none.

        In fp32 these log-probs are the trainer's. In bf16 both are rounded, each by kernels of its
        own.
        """
        return 2.0 if computes_in_bf16(self.policy) else 0.0

    @torch.no_grad()
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

        Log-probs are those before top-p. Temperature 0 takes the likeliest token each time, with
        the log-probs of temperature 1. A completion stops at one of `call_ends`, too. `images` are
        those of each prompt, and empty where no prompt has any.
        """
        device = self.policy.device
        stops = {*self.stops, *call_ends}
        drawing = dict(do_sample=True, temperature=temperature, top_p=top_p, top_k=0)
        settings = transformers.GenerationConfig(
            **(drawing if temperature else dict(do_sample=False)),
            max_new_tokens=max_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=[*stops],
        )
        self.writer.eval()
        completions, logprobs = [], []
        for start in range(0, len(prompt_ids), self.config.rollout_batch_size):
            part = slice(start, start + self.config.rollout_batch_size)
            rows = prompt_ids[part]
            batch = self.tokenizer.pad(
                {"input_ids": rows}, padding_side="left", return_tensors="pt"
            ).to(device)
            recorder = Recorder(temperature or 1.0)
            with (
                without_generation_config(self.writer),
                fp32_logits(self.writer),
                # A compiled layer would be compiled anew for the cache of each token.
                torch.compiler.set_stance("force_eager"),
            ):
                ids = self.writer.generate(  # [n, P + T]
                    **batch,
                    **prompt_images(self.policy, batch["input_ids"], images[part]),
                    generation_config=settings,
                    logits_processor=[recorder],
                    synced_gpus=False,
                )
            recorder(ids, recorder.last)  # records the last token; its scores are not used
            recorded = torch.stack(recorder.logprobs, 1).tolist()  # [n, T]
            prompt_length = batch["input_ids"].shape[1]
            for tokens, logps in zip(ids[:, prompt_length:].tolist(), recorded, strict=True):
                ends = [i + 1 for i, token in enumerate(tokens) if token in stops]
                length = ends[0] if ends else len(tokens)
                completions.append(tokens[:length])
                logprobs.append(logps[:length])
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


def make_sampler(policy, tokenizer, config) -> GenerateSampler:
    """What --engine asks for, with a hint where vLLM would be faster."""
    gpu = policy.device.type == "cuda"
    installed = importlib.util.find_spec("vllm") is not None
    if gpu and not installed and world.RANK == 0:
        print("rollouts by transformers; they are faster after: pip install vllm==0.32.0")
    if config.uses_vllm(gpu):
        from rlvr.vllm_sampler import VllmSampler  # vLLM need not be installed

        return VllmSampler(policy, tokenizer, config)
    return GenerateSampler(policy, tokenizer, config)

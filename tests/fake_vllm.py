"""Stands for the package vllm: an engine that notes what it is asked for.

It does not look at images or seeds.
"""

from types import SimpleNamespace

import torch
import transformers

from common import decode


class SamplingParams(SimpleNamespace):
    """The settings of one completion."""


def write(model, prompt: list[int], settings: SamplingParams):
    """One completion as vLLM hands it back."""
    stops, most = settings.stop_token_ids, settings.max_tokens
    with torch.random.fork_rng([]):  # an engine has a generator of its own
        (ids,), (logprobs,) = decode(model, [prompt], stops, most, settings.temperature)
    output = SimpleNamespace(token_ids=(*ids,), logprobs=SimpleNamespace(logprobs=logprobs))
    return SimpleNamespace(outputs=[output], prompt_token_ids=prompt)


class LLM:
    """An engine. `calls` are the names of what was called, `asked` are (prompt, settings)."""

    def __init__(self, path, **settings):
        self.settings, self.calls, self.asked = settings, [], []
        torch.manual_seed(0)  # as vLLM does
        shape = transformers.AutoConfig.from_pretrained(path)
        kind = transformers.AutoModelForCausalLM
        if hasattr(shape, "vision_config"):
            kind = transformers.AutoModelForImageTextToText
        self.model = kind.from_pretrained(path, dtype=torch.float32)
        # what a build for CPUs does to a tied head after a push
        packing = SimpleNamespace(
            process_weights_after_loading=lambda head: self.calls.append("pack_head")
        )
        self.model.lm_head.quant_method = packing
        if hasattr(shape, "vision_config"):  # where vLLM has the head then
            self.model.language_model = SimpleNamespace(lm_head=self.model.lm_head)
        self.llm_engine = SimpleNamespace(
            engine_core=SimpleNamespace(shutdown=lambda: self.calls.append("shutdown")),
            reset_encoder_cache=lambda: self.calls.append("reset_encoder_cache"),
        )

    @torch.no_grad()
    def generate(self, prompts, settings, use_tqdm):
        """Completions of the prompts, each by its settings."""
        self.calls.append("generate")
        asked = [
            (prompt["prompt_token_ids"], setting)
            for prompt, setting in zip(prompts, settings, strict=True)
        ]
        self.asked += asked
        return [write(self.model, *each) for each in asked]

    @torch.no_grad()
    def collective_rpc(self, method, kwargs):
        """Take new weights."""
        self.calls.append(method)
        own = dict(self.model.named_parameters())
        for name, value in kwargs["weights_iterator"]:
            own[name].copy_(value)

    def apply_model(self, function):
        """What the function gives for the engine's model, of its one worker."""
        return [function(self.model)]

    def reset_prefix_cache(self):
        """Forget keys and values of the old weights."""
        self.calls.append("reset_prefix_cache")

"""Stands for the package vllm: an engine in plain PyTorch that notes what it is asked for.

It does not look at images.
"""

from types import SimpleNamespace

import torch
import transformers


class SamplingParams(SimpleNamespace):
    """The settings of one completion."""


def write(model, prompt: list[int], settings: SamplingParams):
    """One completion, token by token, as vLLM hands it back."""
    generator = torch.Generator()
    if settings.seed is not None:
        generator.manual_seed(settings.seed)
    ids, logprobs = [*prompt], []
    for _ in range(settings.max_tokens):
        logp = model(torch.tensor([ids])).logits[0, -1]
        logp = (logp / (settings.temperature or 1.0)).log_softmax(-1)
        token = logp.argmax()
        if settings.temperature:
            token = torch.multinomial(logp.exp(), 1, generator=generator)[0]
        ids.append(token.item())
        logprobs.append(logp[token].item())
        if ids[-1] in settings.stop_token_ids:
            break
    output = SimpleNamespace(
        token_ids=tuple(ids[len(prompt) :]), logprobs=SimpleNamespace(logprobs=logprobs)
    )
    return SimpleNamespace(outputs=[output], prompt_token_ids=prompt)


class LLM:
    """An engine. `calls` are the names of what was called, `asked` are (prompt, settings)."""

    def __init__(self, path, **settings):
        self.settings, self.calls, self.asked = settings, [], []
        shape = transformers.AutoConfig.from_pretrained(path)
        kind = transformers.AutoModelForCausalLM
        if hasattr(shape, "vision_config"):
            kind = transformers.AutoModelForImageTextToText
        self.model = kind.from_pretrained(path, dtype=torch.float32)
        # what a build for CPUs does to a tied head after a push
        packing = SimpleNamespace(process_weights_after_loading=lambda head: None)
        self.model.lm_head.quant_method = packing
        if hasattr(shape, "vision_config"):  # where vLLM has the head then
            self.model.language_model = SimpleNamespace(lm_head=self.model.lm_head)
        self.llm_engine = SimpleNamespace(
            engine_core=SimpleNamespace(shutdown=lambda: None),
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

"""Stands for the package vllm: an engine in plain PyTorch that notes what it is asked for."""

from types import SimpleNamespace

import torch
import transformers


class SamplingParams(SimpleNamespace):
    """The settings of one completion."""


def write(model, prompt: list[int], settings: SamplingParams, seen=None):
    """One completion, token by token, as vLLM hands it back. `seen` is what images add."""
    generator = torch.Generator()
    if settings.seed is not None:
        generator.manual_seed(settings.seed)
    ids, logprobs = [*prompt], []
    for _ in range(settings.max_tokens):
        shown = {}
        if seen:
            is_image = torch.arange(len(ids)) < len(prompt)
            is_image &= torch.tensor(ids) == model.config.image_token_id
            shown = dict(seen, mm_token_type_ids=is_image[None].int())
        logp = model(torch.tensor([ids]), **shown).logits[0, -1]
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
            self.processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(path)
        self.model = kind.from_pretrained(path, dtype=torch.float32)
        # what a build for CPUs does to a tied head after a push
        packing = SimpleNamespace(process_weights_after_loading=lambda head: None)
        self.model.lm_head.quant_method = packing
        if hasattr(shape, "vision_config"):  # where vLLM has the head then
            self.model.language_model = SimpleNamespace(lm_head=self.model.lm_head)
        engine_core = SimpleNamespace(shutdown=lambda: None)
        self.embeddings = {}  # of images that were seen, by their pixels
        self.llm_engine = SimpleNamespace(
            engine_core=engine_core, reset_encoder_cache=self.embeddings.clear
        )

    @torch.no_grad()
    def generate(self, prompts, settings, use_tqdm):
        """Completions of the prompts, each by its settings."""
        self.calls.append("generate")
        self.asked += [
            (prompt["prompt_token_ids"], setting)
            for prompt, setting in zip(prompts, settings, strict=True)
        ]
        found = []
        for prompt, setting in zip(prompts, settings, strict=True):
            ids, seen = prompt["prompt_token_ids"], None
            if "multi_modal_data" in prompt:
                ids, seen = self.look(ids, prompt["multi_modal_data"]["image"])
            found.append(write(self.model, ids, setting, seen))
        return found

    def look(self, prompt, images):
        """The prompt, with as many tokens as each image has for its one, and what images add."""
        if self.settings.get("skip_tokenizer_init"):
            raise ValueError("You cannot pass text prompts when `skip_tokenizer_init=True`")
        size = self.settings["mm_processor_kwargs"]["size"]
        grids, embedded, waiting = [], [], []
        for image in images:
            pixels = self.processor([image], size=size, return_tensors="pt")
            key = image.tobytes()
            if key not in self.embeddings:
                self.embeddings[key] = self.model.model.get_image_features(**pixels)
            (features,) = self.embeddings[key].pooler_output
            grids.append(pixels["image_grid_thw"])
            embedded.append(features)
            waiting.append(len(features))
        image_token, ids = self.model.config.image_token_id, []
        for token in prompt:
            ids += [token] * (waiting.pop(0) if token == image_token else 1)
        assert not waiting, "more images than image tokens"
        outputs = SimpleNamespace(pooler_output=embedded)
        return ids, dict(image_grid_thw=torch.cat(grids), mm_encoder_outputs=dict(image=outputs))

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

    def wake_up(self):
        """Take memory again."""
        self.calls.append("wake_up")

    def sleep(self, level):
        """Give memory back; level 2 forgets the weights."""
        self.calls.append(f"sleep {level}")
        if level == 2:
            for parameter in self.model.parameters():
                parameter.data.zero_()

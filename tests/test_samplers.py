"""Completions by the policy itself: where they stop, what they are drawn from, log-probs."""

import copy
from types import SimpleNamespace

import rlvr.rollout.samplers
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.rollout.samplers import GenerateSampler

import pytest
import torch
import transformers
from samples import PROMPTS
from test_prompts import CHATML


def sampler_of(policy, tokenizer, **flags):
    return GenerateSampler(policy, tokenizer, Config(**flags))


def encoded(tokenizer, times=1):
    return [tokenizer.encode(prompt) for prompt in PROMPTS] * times


def test_no_setting_of_a_checkpoints_generation_config_acts(sharp):
    """Neither greedily nor by chance. The loss would take one policy for another."""
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]

    def completions():
        sampler = sampler_of(policy, tokenizer)
        torch.manual_seed(0)
        return [sampler.generate(encoded(tokenizer), heat, 1.0, 12) for heat in (0.0, 1.0)]

    plain = completions()
    policy.generation_config = transformers.GenerationConfig(
        **dict(eos_token_id=1, pad_token_id=0, do_sample=True, temperature=0.7, top_p=0.8),
        **dict(top_k=20, repetition_penalty=1.05, min_new_tokens=12, num_beams=3),
    )
    assert completions() == plain


@pytest.mark.parametrize(
    "checkpoint, template, of_tokenizer, stops",
    [
        (1, None, "<eos>", [1]),
        ([1, 5], None, "<eos>", [1, 5]),
        (0, None, "<eos>", [0]),  # a number like any other
        (None, None, "<eos>", [1]),  # the tokenizer's
        (1, CHATML, "<eos>", [1, "<|im_end|>"]),  # base models: 1 ends a document, and not a turn
        ([1, 5], CHATML, "<eos>", [1, 5, "<|im_end|>"]),
        ("<|im_end|>", CHATML, "<eos>", ["<|im_end|>"]),  # instruct models
        (None, CHATML, None, ["<|im_end|>"]),
        (None, None, None, None),  # none would ever end
    ],
)
def test_stop_tokens(tiny, checkpoint, template, of_tokenizer, stops):
    policy, tokenizer = copy.deepcopy(tiny)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template, tokenizer.eos_token = template, of_tokenizer
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    own = end if checkpoint == "<|im_end|>" else checkpoint
    policy.generation_config = transformers.GenerationConfig(eos_token_id=own)
    if stops is None:
        with pytest.raises(UserError, match="no end-of-text token"):
            sampler_of(policy, tokenizer)
        return
    expected = [end if token == "<|im_end|>" else token for token in stops]
    assert sampler_of(policy, tokenizer).stops == expected


@pytest.mark.parametrize(
    "device, given, cap",
    [
        ("cpu", None, 0.0),  # there these log-probs are the trainer's
        ("cpu", 0.0, 0.0),
        ("cpu", 3.0, 3.0),
        ("cuda", None, 2.0),  # both round to bf16, in kernels of their own
        ("cuda", 0.0, 0.0),
        ("cuda", 3.0, 3.0),
    ],
)
def test_the_cap_of_the_importance_weights(tiny, device, given, cap):
    policy = SimpleNamespace(
        device=torch.device(device), generation_config=tiny[0].generation_config
    )
    policy = tiny[0] if device == "cpu" else policy
    assert sampler_of(policy, tiny[1], vllm_importance_sampling_cap=given).cap == cap


def test_make_sampler_without_a_gpu(tiny, monkeypatch):
    """`auto` takes transformers there, even where vLLM is installed."""
    monkeypatch.setattr(rlvr.rollout.samplers.importlib.util, "find_spec", lambda name: name)
    assert type(rlvr.rollout.samplers.make_sampler(*tiny, Config(), None)) is GenerateSampler

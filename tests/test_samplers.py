"""Completions by transformers.generate: where they stop, what they are drawn from, log-probs."""

import contextlib
import copy
import json
from types import SimpleNamespace

import rlvr.policy.models
import rlvr.rollout.samplers
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.policy.saving import save_folder
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


def test_top_p_and_the_whole_vocabulary_reach_generate(sharp):
    """Evaluation may cut the tail. By itself `generate` keeps the 50 likeliest tokens.

    400 draws from 400 tokens that are nearly as likely are some 250 of them.
    """
    sampler = sampler_of(*sharp, rollout_batch_size=8)
    prompts = [sharp[1].encode(PROMPTS[0])] * 8
    torch.manual_seed(0)
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1e-6, 8)[0]))) == 1
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1.0, 8)[0]))) > 1
    shape = copy.deepcopy(sharp[0].config)
    shape.vocab_size = 400
    sampler = sampler_of(transformers.Qwen2ForCausalLM(shape).eval(), sharp[1])
    completions, _ = sampler.generate([[8, 9]] * 400, 1.0, 1.0, 1)
    assert len({completion[0] for completion in completions}) > 150


def test_greedy_completions(sharp):
    """The likeliest token each time, alone and beside longer prompts.

    Their log-probs are those of temperature 1.
    """
    policy, tokenizer = sharp
    prompts = encoded(tokenizer)
    first, logprobs = sampler_of(policy, tokenizer).generate(prompts, 0.0, 1.0, 12)
    assert len(set(map(tuple, first))) > 1
    for flags, temperature, top_p in ((1, 0.0, 0.5), (1, 1e-4, 1.0), (7, 1e-4, 1.0)):
        sampler = sampler_of(policy, tokenizer, rollout_batch_size=flags)
        assert sampler.generate(prompts, temperature, top_p, 12)[0] == first
    for prompt, completion, logps in zip(prompts, first, logprobs, strict=True):
        for i, token in enumerate(completion):
            logits = policy(torch.tensor([prompt + completion[:i]])).logits[0, -1]
            assert logits.argmax().item() == token
            assert logps[i] == pytest.approx(logits.log_softmax(-1)[token].item(), abs=1e-4)


# ----------------------------------------------------------- what a checkpoint brings along

USUAL = dict(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
SETTINGS = USUAL | dict(
    min_p=0.7,
    no_repeat_ngram_size=2,
    suppress_tokens=[5, 7, 9, 11, 13, 15, 17],
    bad_words_ids=[[4], [6], [8], [10], [12], [14], [16]],
    begin_suppress_tokens=[*range(3, 20)],
    min_new_tokens=12,
    forced_eos_token_id=20,
    num_beams=3,
    typical_p=0.1,
    epsilon_cutoff=0.5,
    exponential_decay_length_penalty=[1, 5.0],
    sequence_bias=[[[9], 50.0]],
    encoder_repetition_penalty=5.0,
    max_time=1e-9,
    stop_strings=["1"],
)


@pytest.fixture
def load(sharp, tmp_path):
    """load(setting=value, ...) -> a sampler of a checkpoint with this generation_config."""

    def load_sampler(**settings):
        folder = tmp_path / "policy"
        if not folder.exists():
            save_folder(folder, *sharp)
        own = dict(eos_token_id=1, pad_token_id=0, do_sample=True, **settings)
        (folder / "generation_config.json").write_text(json.dumps(own))
        config = Config(model=str(folder), max_steps=0)
        policy, tokenizer = rlvr.policy.models.load_policy(config, torch.device("cpu"))
        return GenerateSampler(policy, tokenizer, config)

    return load_sampler


def greedy_and_sampled(sampler):
    """Greedy completions of some prompts, and sampled ones, always by the same random numbers."""
    prompts = [sampler.tokenizer.encode(prompt) for prompt in PROMPTS[:4]]
    greedy = sampler.generate(prompts, 0.0, 1.0, 12)
    torch.manual_seed(0)
    return greedy, sampler.generate(prompts, 1.0, 1.0, 12)


def test_no_setting_of_the_checkpoint_acts(load):
    """Neither on a rollout nor on an evaluation. The loss would take one policy for another."""
    plain = greedy_and_sampled(load())
    sampler = load(**SETTINGS)
    own = sampler.policy.generation_config
    for name, value in SETTINGS.items():
        assert getattr(own, name) == value
    assert greedy_and_sampled(sampler) == plain
    assert sampler.policy.generation_config is own  # which checkpoints keep


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_each_of_these_settings_would_act(load, monkeypatch, name):
    plain = greedy_and_sampled(load())
    monkeypatch.setattr(rlvr.rollout.samplers, "without_generation_config", contextlib.nullcontext)
    try:
        acted = greedy_and_sampled(load(**{name: SETTINGS[name]})) != plain
    except (RuntimeError, TypeError, ValueError):
        acted = True  # it cannot be, or breaks what is made of it
    assert acted or name in USUAL  # GenerateSampler gives those itself, but for a penalty


def test_a_policy_of_nan_is_told_in_words(load):
    """And what was set aside for the rollout comes back."""
    sampler = load(**USUAL)
    own, head = sampler.policy.generation_config, sampler.policy.get_output_embeddings()
    head.weight.data.fill_(torch.nan)
    with pytest.raises(UserError, match="NaN.*--learning_rate"):
        sampler.generate([[8, 9]], 1.0, 1.0, 4)
    assert sampler.policy.generation_config is own
    assert "forward" not in vars(head)


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


def test_a_completion_ends_with_its_turn(tiny):
    """A base model that ends its turn as the template does goes no further."""
    policy, tokenizer = copy.deepcopy(tiny)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = CHATML
    policy.resize_token_embeddings(len(tokenizer))
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    with torch.no_grad():  # a policy that writes nothing else
        policy.get_output_embeddings().weight.zero_()
        policy.get_output_embeddings().weight[end] = policy.get_input_embeddings().weight[end]
    sampler = sampler_of(policy, tokenizer)
    torch.manual_seed(0)
    completions, _ = sampler.generate([[8, 9]] * 40, 1.0, 1.0, 30)
    ended = [completion for completion in completions if end in completion]
    assert ended
    assert all(completion.index(end) == len(completion) - 1 for completion in ended)


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

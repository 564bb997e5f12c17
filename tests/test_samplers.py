"""Completions by transformers.generate: where they stop, what they are drawn from, log-probs."""

import contextlib
import copy
import json
from types import SimpleNamespace

import rlvr.models
import rlvr.samplers
from rlvr.checkpoints import save_folder
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.metrics import sampler_mismatch
from rlvr.records import Sample
from rlvr.rollouts import sampled_logprobs
from rlvr.samplers import GenerateSampler, bf16_twin

import pytest
import torch
import transformers
from runs import first_fast
from samples import PROMPTS
from test_prompts import CHATML

from common import token_logprobs


def test_completions_stop(sharp):
    """A completion ends with its first EOS, or has as many tokens as it may have."""
    policy, tokenizer = sharp
    torch.manual_seed(0)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS] * 6
    sampler = GenerateSampler(policy, tokenizer, Config(rollout_batch_size=16))
    completions, _ = sampler.generate(prompts, 1.0, 1.0, 20)
    assert len(completions) == len(prompts)
    for completion in completions:
        assert completion[-1] == tokenizer.eos_token_id or len(completion) == 20
        assert tokenizer.eos_token_id not in completion[:-1]
    lengths = {len(completion) for completion in completions}
    assert 20 in lengths  # both ends did occur
    assert len(lengths) > 3


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampler_and_trainer_agree_on_the_logprobs(sharp, monkeypatch, temperature):
    """The scores that generate draws from, at the tokens it drew, are the trainer's log-probs.

    Left padding, several batches, and the settings that a checkpoint brings along (those of
    Qwen2.5) change nothing.
    """
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]
    settings = dict(temperature=0.3, top_p=0.5, top_k=3, repetition_penalty=1.5)
    for name, value in settings.items():
        setattr(policy.generation_config, name, value)
    scores, generate = [], policy.generate

    def generate_with_scores(generation_config, **kwargs):
        generation_config.output_scores = True
        generation_config.return_dict_in_generate = True
        output = generate(generation_config=generation_config, **kwargs)
        scores.extend(torch.stack(output.scores, 1))  # a [T, V] a row
        return output.sequences

    monkeypatch.setattr(policy, "generate", generate_with_scores)
    torch.manual_seed(0)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS] * 2
    sampler = GenerateSampler(policy, tokenizer, Config(rollout_batch_size=5))
    completions, recorded = sampler.generate(prompts, temperature, 1.0, 16)
    samples = [
        Sample(prompt, completion, logprobs=logps)
        for prompt, completion, logps in zip(prompts, completions, recorded, strict=True)
    ]
    logprobs, _ = token_logprobs(policy, samples, range(len(samples)), temperature)
    assert len(scores) == len(samples)
    for row, sample in enumerate(samples):
        count = len(sample.completion_ids)
        drawn = scores[row].log_softmax(-1)[range(count), sample.completion_ids]
        torch.testing.assert_close(logprobs[row, :count].detach(), drawn, rtol=0, atol=1e-4)
    sampled = sampled_logprobs(samples, "cpu")
    torch.testing.assert_close(sampled, logprobs.detach(), rtol=0, atol=1e-4)
    mismatch = sampler_mismatch(samples, logprobs.detach(), sampled)
    assert mismatch["mismatch"] < 1e-4
    assert mismatch["mismatch_max_ratio"] < 1.001


def test_left_padding_does_not_change_the_completions(sharp):
    """At a temperature of almost 0 a prompt is continued alike, alone and beside longer ones."""
    policy, tokenizer = sharp
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]

    def completions(batch_size):
        sampler = GenerateSampler(policy, tokenizer, Config(rollout_batch_size=batch_size))
        return sampler.generate(prompts, 1e-4, 1.0, 12)[0]

    alone, together = completions(1), completions(7)
    assert alone == together
    assert len(set(map(tuple, alone))) > 1


def test_top_p_reaches_generate(sharp):
    """Evaluation may cut the tail: with next to nothing left of it, all completions are alike."""
    sampler = GenerateSampler(*sharp, Config(rollout_batch_size=8))
    prompts = [sharp[1].encode(PROMPTS[0])] * 8
    torch.manual_seed(0)
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1e-6, 8)[0]))) == 1
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1.0, 8)[0]))) > 1


def test_rollouts_draw_from_the_whole_vocabulary(tiny):
    """Where it is not told, `generate` keeps the 50 likeliest; the tiny policy has 26 tokens."""
    shape = copy.deepcopy(tiny[0].config)
    shape.vocab_size = 400
    torch.manual_seed(0)
    policy = transformers.Qwen2ForCausalLM(shape).eval()
    sampler = GenerateSampler(policy, tiny[1], Config(rollout_batch_size=400))
    completions, _ = sampler.generate([[8, 9]] * 400, 1.0, 1.0, 1)
    # 400 draws from 400 tokens that are nearly as likely: some 250 of them, and never just 50
    assert len({completion[0] for completion in completions}) > 150


def test_greedy_completions(sharp):
    """Temperature 0 takes the likeliest token each time, with the log-probs of temperature 1."""
    policy, tokenizer = sharp
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    sampler = GenerateSampler(policy, tokenizer, Config())
    first, logprobs = sampler.generate(prompts, 0.0, 1.0, 12)
    second, _ = sampler.generate(prompts, 0.0, 0.5, 12)
    assert first == second
    samples = [
        Sample(prompt, completion) for prompt, completion in zip(prompts, first, strict=True)
    ]
    expected, _ = token_logprobs(policy, samples, range(len(samples)))
    for row, (sample, logps) in enumerate(zip(samples, logprobs, strict=True)):
        assert logps == pytest.approx(expected[row, : len(logps)].tolist(), abs=1e-4)
        for i, token in enumerate(sample.completion_ids):
            ids = torch.tensor([sample.prompt_ids + sample.completion_ids[:i]])
            assert policy(ids).logits[0, -1].argmax().item() == token


# ----------------------------------------------------------- what a checkpoint brings along

# Each changes greedy or sampled completions where it acts.
SETTINGS = [
    dict(min_p=0.7),
    dict(no_repeat_ngram_size=2),
    dict(suppress_tokens=[5, 7, 9, 11, 13, 15, 17]),
    dict(bad_words_ids=[[4], [6], [8], [10], [12], [14], [16]]),
    dict(begin_suppress_tokens=[*range(3, 20)]),
    dict(min_new_tokens=12),
    dict(forced_eos_token_id=20),
    dict(num_beams=3),
    dict(typical_p=0.1),
    dict(epsilon_cutoff=0.5),
    dict(exponential_decay_length_penalty=[1, 5.0]),
    dict(sequence_bias=[[[9], 50.0]]),
    dict(encoder_repetition_penalty=5.0),
    dict(max_time=1e-9),
    dict(stop_strings=["1"]),
]
USUAL = dict(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)


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
        policy, tokenizer = rlvr.models.load_policy(config, torch.device("cpu"))
        return GenerateSampler(policy, tokenizer, config)

    return load_sampler


def greedy_and_sampled(sampler):
    """Greedy completions of some prompts, and sampled ones, always by the same random numbers."""
    prompts = [sampler.tokenizer.encode(prompt) for prompt in PROMPTS[:4]]
    greedy = sampler.generate(prompts, 0.0, 1.0, 12)
    torch.manual_seed(0)
    return greedy, sampler.generate(prompts, 1.0, 1.0, 12)


@pytest.mark.parametrize("settings", first_fast(SETTINGS), ids=str)
def test_no_setting_of_the_checkpoint_acts(load, monkeypatch, settings):
    """Neither on a rollout nor on an evaluation. The loss would take one policy for another."""
    plain = greedy_and_sampled(load())
    sampler = load(**settings)
    own = sampler.policy.generation_config
    for name, value in settings.items():
        assert getattr(own, name) == value
    assert greedy_and_sampled(sampler) == plain
    assert sampler.policy.generation_config is own  # which checkpoints keep
    monkeypatch.setattr(rlvr.samplers, "without_generation_config", contextlib.nullcontext)
    try:
        acted = greedy_and_sampled(sampler) != plain
    except (RuntimeError, TypeError, ValueError):
        acted = True  # it cannot be, or breaks what is made of it
    assert acted


def test_all_settings_of_the_checkpoint_together(load):
    plain = greedy_and_sampled(load())
    together = {name: value for settings in SETTINGS for name, value in settings.items()}
    assert greedy_and_sampled(load(**together, **USUAL)) == plain


@pytest.mark.slow
def test_greedy_is_greedy_where_the_checkpoint_samples(load):
    """Instruct models ship do_sample, temperature 0.6 or 0.7, top_p and top_k."""
    sampler = load(**USUAL)
    prompt = sampler.tokenizer.encode(PROMPTS[0])
    completions, _ = sampler.generate([prompt] * 8, 0.0, 1.0, 12)
    assert len(set(map(tuple, completions))) == 1
    assert completions == load().generate([prompt] * 8, 0.0, 1.0, 12)[0]


def test_the_checkpoints_settings_come_back_after_an_error(load):
    sampler = load(**USUAL)
    own = sampler.policy.generation_config
    sampler.policy.get_output_embeddings().weight.data.fill_(torch.nan)
    with pytest.raises(UserError):
        sampler.generate([[8, 9]], 1.0, 1.0, 4)
    assert sampler.policy.generation_config is own
    assert "forward" not in vars(sampler.policy.get_output_embeddings())


@pytest.mark.parametrize(
    "checkpoint, template, stops",
    [
        (1, None, [1]),
        ([1, 5], None, [1, 5]),
        (0, None, [0]),  # a number like any other
        (None, None, [1]),  # the tokenizer's
        (1, CHATML, [1, "<|im_end|>"]),  # base models: 1 ends a document, and not a turn
        ([1, 5], CHATML, [1, 5, "<|im_end|>"]),
        ("<|im_end|>", CHATML, ["<|im_end|>"]),  # instruct models
    ],
)
def test_stop_tokens(tiny, checkpoint, template, stops):
    policy, tokenizer = copy.deepcopy(tiny)
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = template
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    expected = [end if token == "<|im_end|>" else token for token in stops]
    own = end if checkpoint == "<|im_end|>" else checkpoint
    policy.generation_config = transformers.GenerationConfig(eos_token_id=own)
    assert GenerateSampler(policy, tokenizer, Config()).stops == expected


def test_a_model_without_an_end_of_text_token(tiny):
    """Its template's token ends a completion; without that none would ever end."""
    policy, tokenizer = copy.deepcopy(tiny)
    policy.generation_config = transformers.GenerationConfig(eos_token_id=None)
    tokenizer.eos_token = None
    with pytest.raises(UserError, match="no end-of-text token"):
        GenerateSampler(policy, tokenizer, Config())
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = CHATML
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert GenerateSampler(policy, tokenizer, Config()).stops == [end]


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
    sampler = GenerateSampler(policy, tokenizer, Config())
    torch.manual_seed(0)
    completions, _ = sampler.generate([[8, 9]] * 40, 1.0, 1.0, 30)
    ended = [completion for completion in completions if end in completion]
    assert ended
    assert all(completion.index(end) == len(completion) - 1 for completion in ended)


# --------------------------------------------------------------------------------------- in bf16


def test_logits_are_in_fp32_where_the_policy_is_in_bf16(sharp):
    """As in the loss. Were they rounded to bf16, the sampler's probabilities would be off."""
    twin = bf16_twin(sharp[0])
    ids = torch.tensor([sharp[1].encode(PROMPTS[0])])
    with torch.no_grad():
        hidden = twin.base_model(ids).last_hidden_state
        rounded = twin(ids).logits
        with rlvr.samplers.fp32_logits(twin):
            logits = twin(ids).logits
        assert torch.equal(twin(ids).logits, rounded)  # as it was before
    exact = hidden.double() @ twin.get_output_embeddings().weight.double().T
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), exact, rtol=0, atol=1e-4)
    assert (rounded - exact).abs().max() > 1e-3


def test_a_head_with_a_bias_keeps_it(sharp):
    policy = copy.deepcopy(sharp[0])
    policy.lm_head.bias = torch.nn.Parameter(torch.randn(policy.config.vocab_size))
    ids = torch.tensor([sharp[1].encode(PROMPTS[0])])
    expected = policy(ids).logits
    with rlvr.samplers.fp32_logits(policy):
        torch.testing.assert_close(policy(ids).logits, expected)


def test_completions_of_a_policy_in_bf16(sharp):
    """The log-probs that are kept are those of logits in fp32."""
    twin, tokenizer = bf16_twin(sharp[0]), sharp[1]
    prompt = tokenizer.encode(PROMPTS[0])
    sampler = GenerateSampler(twin, tokenizer, Config())
    (completion,), (logprobs,) = sampler.generate([prompt], 1.0, 1.0, 1)
    with torch.no_grad():
        hidden = twin.base_model(torch.tensor([prompt])).last_hidden_state[0, -1]
    logits = hidden.double() @ twin.get_output_embeddings().weight.double().T
    expected = logits.log_softmax(-1)[completion[0]].item()
    assert logprobs == pytest.approx([expected], abs=1e-4)


def test_a_policy_of_nan_is_told_in_words(sharp):
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]
    policy.get_output_embeddings().weight.data.fill_(torch.nan)
    sampler = GenerateSampler(policy, tokenizer, Config())
    with pytest.raises(UserError, match="NaN.*--learning_rate"):
        sampler.generate([[8, 9]], 1.0, 1.0, 4)


@pytest.mark.parametrize("given, cap", [(None, 0.0), (0.0, 0.0), (3.0, 3.0)])
def test_the_cap_of_the_importance_weights(tiny, given, cap):
    """There is none on a CPU by default, since these log-probs are the trainer's."""
    assert GenerateSampler(*tiny, Config(vllm_importance_sampling_cap=given)).cap == cap


@pytest.mark.parametrize("given, cap", [(None, 2.0), (0.0, 0.0), (3.0, 3.0)])
def test_the_cap_of_the_importance_weights_on_a_gpu(tiny, given, cap):
    """There `generate` and the trainer round to bf16 in kernels of their own."""
    policy = SimpleNamespace(
        device=torch.device("cuda"), generation_config=tiny[0].generation_config
    )
    config = Config(vllm_importance_sampling_cap=given)
    assert GenerateSampler(policy, tiny[1], config).cap == cap


def test_make_sampler_without_a_gpu(tiny, monkeypatch):
    """`auto` takes transformers there, even where vLLM is installed."""
    monkeypatch.setattr(rlvr.samplers.importlib.util, "find_spec", lambda name: name)
    assert type(rlvr.samplers.make_sampler(*tiny, Config())) is GenerateSampler

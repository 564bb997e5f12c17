"""The policy, the reference policy and the tokenizer, as they are loaded; code from the hub."""

import contextlib
import copy
import json
import sys
from unittest.mock import Mock

import rlvr.policy.models
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.policy.models import is_near
from rlvr.policy.reader import Reader
from rlvr.tasks.problems import Sample
from rlvr.training.checkpoints import save_folder

import pytest
import torch
import transformers
from samples import some_samples

from common import decode, token_logprobs


def load(folder, **flags):
    """The policy and the tokenizer of a folder, without a reference."""
    config = Config(model=str(folder), max_steps=0, **flags)
    policy, reference, tokenizer = rlvr.policy.models.load_policies(config)
    assert reference is None
    return policy, tokenizer


def test_saved_policy_loads_as_it_was(sharp, tmp_path):
    """It has fp32 weights whatever the checkpoint's dtype, and the same tokens."""
    policy, tokenizer = copy.deepcopy(sharp[0]).bfloat16(), sharp[1]
    save_folder(tmp_path / "policy", policy, tokenizer)
    loaded, loaded_tokenizer = load(tmp_path / "policy")
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert some_samples(tokenizer) == some_samples(loaded_tokenizer)
    assert loaded_tokenizer.pad_token == tokenizer.pad_token
    torch.testing.assert_close(loaded.state_dict(), policy.float().state_dict(), rtol=0, atol=0)


SMALL = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
SMALL |= dict(intermediate_size=64, num_key_value_heads=2, eos_token_id=1, pad_token_id=0)


def folder_of(shape, tiny, tmp_path):
    """A folder with a model of this configuration and the tiny policy's tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = transformers.AutoModelForCausalLM.from_config(shape)
    if isinstance(shape, transformers.PhiConfig):
        policy.lm_head.bias.data.fill_(0.5)
    save_folder(tmp_path / "policy", policy, tiny[1])
    return tmp_path / "policy"


SWITCH = dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=16)
SWITCH |= dict(short_factor=[1.0] * 8, long_factor=[4.0] * 8)  # as Phi-3.5 has at 4,096 tokens
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
HEAD = "a scale, a cap or a bias is not supported"
CACHE = "its layers keep no cache of keys and values"


@pytest.mark.parametrize(
    "family, settings, message",
    [
        # the policy that samples would not be the one that is trained
        ("Granite", dict(logits_scaling=8.0, initializer_range=0.3), HEAD),
        ("Phi", {}, HEAD),
        ("Llama", dict(rms_norm_eps=-1.0), "its logits are NaN"),
        # linear attention, beside the usual one
        ("FalconH1", dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8), CACHE),
        # rotary factors that change with the length
        ("Llama", dict(max_position_embeddings=64, rope_parameters=DYNAMIC), "beyond 64 tokens"),
        ("Llama4Text", {}, "its hidden states are not to be had without its logits"),
    ],
)
def test_a_model_that_cannot_be_trained_right_is_refused(tiny, tmp_path, family, settings, message):
    shape = getattr(transformers, f"{family}Config")(**SMALL, **settings)
    folder = folder_of(shape, tiny, tmp_path)
    with pytest.raises(UserError, match=message):
        load(folder)


def test_a_run_below_the_switch_of_its_rotary_factors_is_allowed(tiny, tmp_path):
    settings = dict(original_max_position_embeddings=16, rope_parameters=SWITCH)
    folder = folder_of(transformers.Phi3Config(**SMALL, **settings), tiny, tmp_path)
    load(folder, max_prompt_length=10, max_completion_length=6)
    with pytest.raises(UserError, match="may have 17 here"):
        load(folder, max_prompt_length=10, max_completion_length=7)


def test_the_cache_is_tried_at_the_length_of_the_run(tiny, tmp_path, monkeypatch):
    """A policy whose cache forgets what it has read beyond 20 tokens is refused for longer runs."""
    folder = folder_of(transformers.LlamaConfig(**SMALL), tiny, tmp_path)
    read = Reader.read

    def forgetful(self, tokens):
        self.mask[:, :1] *= tokens.shape[1] < 20
        return read(self, tokens)

    monkeypatch.setattr(Reader, "read", forgetful)
    load(folder, max_prompt_length=10, max_completion_length=10)
    with pytest.raises(UserError, match=CACHE):
        load(folder, max_prompt_length=20, max_completion_length=10)


def test_nothing_drops_out(tiny, tmp_path):
    """GPT-2's configuration asks for it; checkpointing computes its layers in training mode.

    It does so in the backward pass alone, and `decode` has its cache. Nor does the text
    configuration of a model for images. For a configuration of GPT-2's kind there is no estimate of
    the memory, which ends no run.
    """
    of_text = dict(attention_dropout=0.1, vocab_size=64)
    shape = transformers.Qwen2VLConfig(text_config=of_text, attention_dropout=0.2)
    assert rlvr.policy.models.without_dropout(shape).get_text_config().attention_dropout == 0
    shape = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2)
    assert shape.resid_pdrop == 0.1
    policy, _ = load(folder_of(shape, tiny, tmp_path), gradient_checkpointing=True)
    samples = [Sample([8, 9, 10], [11, 12, 13])]
    passes = Mock(return_value=None)
    policy.transformer.h[0].mlp.register_forward_pre_hook(passes)
    first, second = (token_logprobs(policy, samples, [0])[0] for _ in range(2))
    assert policy.training and passes.call_count == 2
    assert torch.equal(first, second)
    first.sum().backward()
    assert passes.call_count == 3
    assert len(decode(policy, [[8, 9]], {1}, 4)[0]) == 1 and not policy.training


@pytest.mark.parametrize("do_sample", [False, True])
def test_a_generation_config_that_contradicts_itself_can_be_saved(tiny, tmp_path, do_sample):
    """By a temperature without sampling. A run would find that out after its first 100 steps."""
    save_folder(tmp_path / "policy", *tiny)
    tokens = dict(eos_token_id=[1, 5], pad_token_id=0)
    own = json.dumps(dict(tokens, temperature=0.7, do_sample=do_sample))
    (tmp_path / "policy/generation_config.json").write_text(own)
    save_folder(tmp_path / "trained", *load(tmp_path / "policy"))
    saved = json.loads((tmp_path / "trained/generation_config.json").read_text())
    assert saved.items() >= tokens.items()
    assert saved.get("temperature") == (0.7 if do_sample else None)


def test_the_reference_is_the_starting_policy(sharp, tmp_path, monkeypatch):
    """It is loaded for the KL penalty alone, and is frozen."""
    save_folder(tmp_path / "policy", *sharp)
    config = Config(model=str(tmp_path / "policy"), beta=0.1)
    load_weights = Mock(wraps=rlvr.policy.models.load_weights)
    monkeypatch.setattr(rlvr.policy.models, "load_weights", load_weights)
    policy, reference, _ = rlvr.policy.models.load_policies(config)
    assert [call.kwargs for call in load_weights.call_args_list] == [{}, {"frozen": True}]
    with torch.no_grad():
        policy.lm_head.weight.zero_()  # as if it had been trained
    torch.testing.assert_close(reference.state_dict(), sharp[0].state_dict(), rtol=0, atol=0)


def test_equal_up_to_rounding():
    """By the largest number: what is left of two of 100 is off by more than its own size."""
    expected = torch.tensor([100.0, 0.0])
    assert is_near(torch.tensor([100.0, 0.05]), expected)
    assert not is_near(torch.tensor([100.5, 0.0]), expected)


@pytest.mark.parametrize("model_type", ["unheard-of", "qwen2"])
def test_a_models_own_code_does_not_run(tiny, monkeypatch, tmp_path, model_type):
    """Whether or not transformers has a class of its own for the model."""
    folder, marker = tmp_path / "model", tmp_path / "marker"
    save_folder(folder, *tiny)
    own_classes = dict(AutoConfig="modeling_x.XConfig", AutoModelForCausalLM="modeling_x.XModel")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": model_type, "auto_map": own_classes}
    (folder / "config.json").write_text(json.dumps(config))
    code = "from transformers import Qwen2Config as XConfig, Qwen2ForCausalLM as XModel\n"
    (folder / "modeling_x.py").write_text(f"{code}open({str(marker)!r}, 'w')\n")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    refused = pytest.raises(UserError, match="--model")
    with contextlib.nullcontext() if model_type == "qwen2" else refused:
        load(folder)
    assert not marker.exists()

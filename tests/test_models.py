"""The policy, the reference and the tokenizer, as they are loaded; the shipped tiny policies."""

import contextlib
import copy
import json
import sys
from unittest.mock import Mock

import rlvr.policy.models
import rlvr.tasks.prompts
from rlvr.errors import UserError
from rlvr.flags.config import TAUGHT, Config
from rlvr.policy.models import POLICIES, is_near, load_policies, tiny_folder
from rlvr.policy.reader import Reader
from rlvr.rollout.samplers import stop_tokens
from rlvr.tasks.problems import Problem, Sample
from rlvr.training.checkpoints import save_folder

import pytest
import torch
import transformers
from samples import by_the_logits, some_samples

from common import decode, token_logprobs
from studies.papers import make_bases


def load(folder, **flags):
    config = Config(model=str(folder), max_steps=0, **flags)
    policy, reference, tokenizer = rlvr.policy.models.load_policies(config)
    assert reference is None
    return policy, tokenizer


def test_policy_and_reference_are_what_was_saved(sharp, tmp_path, monkeypatch):
    """In fp32 whatever the checkpoint's dtype, with the same tokens. The reference is frozen."""
    saved, tokenizer = copy.deepcopy(sharp[0]).bfloat16(), sharp[1]
    save_folder(tmp_path / "policy", saved, tokenizer)
    shard = Mock()
    monkeypatch.setattr("rlvr.policy.models.shard", shard)
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    config = Config(model=str(tmp_path / "policy"), beta=0.1)
    policy, reference, loaded_tokenizer = rlvr.policy.models.load_policies(config)
    calls = [call.args for call in shard.call_args_list]
    assert calls == [(policy, False, "cpu"), (reference, True, "cpu")]
    assert some_samples(tokenizer) == some_samples(loaded_tokenizer)
    assert loaded_tokenizer.pad_token == tokenizer.pad_token
    for each in (policy, reference):
        torch.testing.assert_close(each.state_dict(), saved.float().state_dict(), rtol=0, atol=0)
        with torch.no_grad():
            each.lm_head.weight.zero_()  # the other one keeps its own


SMALL = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
SMALL |= dict(intermediate_size=64, num_key_value_heads=2, eos_token_id=1, pad_token_id=0)


def folder_of(shape, tiny, tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = transformers.AutoModelForCausalLM.from_config(shape)
    if isinstance(shape, transformers.PhiConfig):
        policy.lm_head.bias.data.fill_(0.5)
    save_folder(tmp_path / "policy", policy, tiny[1])
    return tmp_path / "policy"


SWITCH = dict(rope_type="longrope", rope_theta=1e4, original_max_position_embeddings=64)
SWITCH |= dict(short_factor=[1.0] * 8, long_factor=[4.0] * 8)  # as Phi-3.5 has at 4,096 tokens
DYNAMIC = dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)
OF_KINDS = dict(sliding_attention=dict(rope_type="default", rope_theta=1e4), full_attention=DYNAMIC)
HEAD = "its logits are NaN, or not its hidden states times its head; an output head with a scale, "
HEAD += "a cap or a bias is not supported"
CACHE = "the decoding loop cannot read it token by token: its layers keep no cache of keys and "
CACHE += "values, or count padding as tokens; --engine vllm can draw its completions( .*)?"
ROPE = "its rotary factors change beyond 64 tokens, and prompt and completion may have 65 here: "
ROPE += "lower --max_prompt_length and --max_completion_length"


@pytest.mark.parametrize(
    "family, settings, message",
    [
        # the policy that samples would not be the one that is trained
        ("Granite", dict(logits_scaling=8.0, initializer_range=0.3), HEAD),
        ("Phi", {}, HEAD),
        ("Llama", dict(rms_norm_eps=-1.0), HEAD),
        # linear attention, beside the usual one
        ("FalconH1", dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8), CACHE),
        # rotary factors that change with the length
        ("Llama", dict(max_position_embeddings=64, rope_parameters=DYNAMIC), ROPE),
        ("Gemma3Text", dict(max_position_embeddings=64, rope_parameters=OF_KINDS), ROPE),
        ("Phi3", dict(original_max_position_embeddings=64, rope_parameters=SWITCH), ROPE),
        (
            "Gemma2",
            dict(final_logit_softcapping=30.0),
            "its output head has a soft cap, which is not supported",
        ),
        ("Mamba", {}, CACHE),
        ("TrOCR", {}, CACHE),  # keeps one, but counts positions by itself
        ("Llama4Text", {}, "its hidden states are not to be had without its logits"),
    ],
)
def test_a_model_that_cannot_be_trained_right_is_refused(tiny, tmp_path, family, settings, message):
    shape = getattr(transformers, f"{family}Config")(**SMALL, **settings)
    folder = folder_of(shape, tiny, tmp_path)
    with pytest.raises(UserError, match=f"^--model {folder}: {message}$"):
        load(folder, max_prompt_length=1, max_completion_length=64)
    if message == CACHE:
        load(folder, engine="vllm")  # which has another cache
    if message == ROPE:
        load(folder, max_prompt_length=1, max_completion_length=63)


def test_the_cache_is_tried_at_the_length_of_the_run(tiny, tmp_path, monkeypatch):
    """This one forgets what it has read beyond 20 tokens."""
    folder = folder_of(transformers.LlamaConfig(**SMALL), tiny, tmp_path)
    read = Reader.read

    def forgetful(self, tokens):
        self.mask[:, :3] *= tokens.shape[1] < 20
        return read(self, tokens)

    monkeypatch.setattr(Reader, "read", forgetful)
    load(folder, max_prompt_length=10, max_completion_length=10)
    with pytest.raises(UserError, match=CACHE):
        load(folder, max_prompt_length=20, max_completion_length=10)


def test_nothing_drops_out(tiny, tmp_path):
    """GPT-2 asks for it, and checkpointing computes its layers in training mode."""
    of_text = dict(attention_dropout=0.1, vocab_size=64)
    shape = transformers.Qwen2VLConfig(text_config=of_text, attention_dropout=0.2)
    assert rlvr.policy.models.without_dropout(shape).get_text_config().attention_dropout == 0
    shape = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=16)
    assert shape.resid_pdrop == 0.1
    policy, _ = load(folder_of(shape, tiny, tmp_path), gradient_checkpointing=True)
    samples = [Sample([8, 9, 10], [11, 12, 13])]
    first, second = (token_logprobs(policy, samples, [0])[0] for _ in range(2))
    assert policy.is_gradient_checkpointing and policy.training and torch.equal(first, second)
    assert len(decode(policy, [[8, 9]], stops={1}, max_tokens=4)[0]) == 1 and not policy.training


def test_a_generation_config_that_contradicts_itself_can_be_saved(tiny, tmp_path):
    """By a temperature without sampling. A run would find that out after its first 100 steps."""
    save_folder(tmp_path / "policy", *tiny)
    tokens = dict(eos_token_id=[1, 5], pad_token_id=0)
    own = json.dumps(dict(tokens, temperature=0.7, do_sample=False))
    (tmp_path / "policy/generation_config.json").write_text(own)
    save_folder(tmp_path / "trained", *load(tmp_path / "policy"))
    saved = json.loads((tmp_path / "trained/generation_config.json").read_text())
    assert saved.items() >= tokens.items() and "temperature" not in saved


def test_equal_up_to_rounding():
    """By the largest number: what is left of two of 100 is off by more than its own size."""
    expected = torch.tensor([100.0, 0.0])
    assert is_near(torch.tensor([100.0, 0.05]), expected)
    assert not is_near(torch.tensor([100.5, 0.0]), expected)


@pytest.mark.parametrize("model_type", ["unheard-of", "qwen2_moe", "vit"])
def test_a_models_own_code_does_not_run(tiny, monkeypatch, tmp_path, model_type):
    """Nor does transformers ask. A "vit" has a configuration, but no causal language model."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    folder, marker = tmp_path / "model", tmp_path / "marker"
    save_folder(folder, *tiny)
    own_classes = dict(AutoConfig="modeling_x.XConfig", AutoModelForCausalLM="modeling_x.XModel")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": model_type, "auto_map": own_classes}
    (folder / "config.json").write_text(json.dumps(config))
    code = "from transformers import LlamaConfig as XConfig, LlamaForCausalLM as XModel\n"
    (folder / "modeling_x.py").write_text(f"{code}open({str(marker)!r}, 'w')\n")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    refused = pytest.raises(UserError, match=f"^cannot load --model {folder}: (?!.* network)")
    with contextlib.nullcontext() if model_type == "qwen2_moe" else refused:
        load(folder)
    assert not marker.exists()


def test_a_tokenizer_of_another_model_is_refused(tiny, tmp_path):
    folder = folder_of(transformers.LlamaConfig(**SMALL | dict(vocab_size=25)), tiny, tmp_path)
    with pytest.raises(UserError, match="its tokenizer has ids up to 25, and its embedding 25 row"):
        load(folder)


@pytest.mark.parametrize(
    "owner, name, error, shown",
    [
        (transformers.AutoTokenizer, "from_pretrained", AttributeError("renamed"), AttributeError),
        (transformers.AutoModelForCausalLM, "from_pretrained", ImportError("moved"), ImportError),
        (transformers.AutoModelForCausalLM, "from_pretrained", RuntimeError("a size"), UserError),
        (rlvr.tasks.prompts, "fill_templates", AttributeError("renamed"), AttributeError),
        (Reader, "read", AttributeError("renamed"), UserError),
        (Reader, "read", torch.OutOfMemoryError("all"), torch.OutOfMemoryError),
    ],
)
def test_a_fault_keeps_its_cause(tiny, tmp_path, monkeypatch, owner, name, error, shown):
    """A bug, or a library that has changed, has its traceback; one line ends with the reason."""
    folder = folder_of(transformers.LlamaConfig(**SMALL), tiny, tmp_path)
    monkeypatch.setattr(owner, name, Mock(side_effect=error))
    with pytest.raises(shown, match=str(error)) as raised:
        policy, tokenizer = load(folder)
        tokenizer.chat_template = "{{ messages }}"
        stop_tokens(policy, tokenizer)
    assert raised.value is error or raised.value.__cause__ is error


def test_which_policy_a_run_starts_from():
    """One that was taught its numbers."""
    shipped = {folder.name for folder in POLICIES.iterdir()}
    assert shipped == {*make_bases.RECIPES} - {"novice"}  # which only a study starts from
    for numbers, name in TAUGHT.items():
        assert {*numbers.split(",")} <= {*make_bases.RECIPES[name][0].split(",")}
    names = {"3 tiny": "middle", "4 tiny": "weak", "3,4 tiny": "weak", "2 strong": "strong"}
    for given, name in names.items():
        numbers, model = given.split()
        assert tiny_folder(Config(numbers=numbers, model=model)) == POLICIES / name


def test_each_token_of_a_lesson_counts_the_same(monkeypatch):
    """The first gradient is that of a mean over the tokens of both texts."""
    texts = [("1 2 : 3 ", "1+2"), ("7 8 : 56 ", "<think>7*8=56</think><answer>7*8</answer>")]
    examples = [(Problem(prompt, ""), solution) for prompt, solution in texts]
    found = []

    def look(parameters, _):
        found.extend(parameter.grad.clone() for parameter in parameters)

    monkeypatch.setattr(make_bases, "BATCH_SIZE", 2)
    monkeypatch.setattr(make_bases, "draw_example", lambda *_: examples.pop(0))
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", look)
    with torch.random.fork_rng([]):
        make_bases.teach("2", 1, 0.0)
        torch.manual_seed(0)
        policy, tokenizer = make_bases.build_tiny()
    logprobs = []
    for prompt, text in texts:
        sample = Sample(tokenizer.encode(prompt), tokenizer.encode(f"{text}<eos>"))
        logprobs.append(by_the_logits(policy, sample)[0])
    (-torch.cat(logprobs).mean()).backward()
    for gradient, parameter in zip(found, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


def test_an_untied_head_is_a_matrix_of_its_own(tmp_path):
    """A copy at first, which changes alone and which a folder keeps."""
    config = Config(tie_word_embeddings=False, model="weak")
    own, _, tokenizer = load_policies(config)
    assert torch.equal(own.lm_head.weight, own.model.embed_tokens.weight)
    with torch.no_grad():
        own.lm_head.weight += 1
    save_folder(tmp_path / "policy", own, tokenizer)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert torch.equal(read.lm_head.weight, read.model.embed_tokens.weight + 1)
    assert not read.config.tie_word_embeddings
    with pytest.raises(UserError, match="--engine hf"):  # vLLM would read the shared one
        load_policies(Config(tie_word_embeddings=False, engine="vllm"))

"""What the sampler asks vLLM for and how it checks it, by a stand-in; and vLLM itself, on a CPU.

.ci/more makes an environment for vLLM, and runs `pytest -m vllm` there.
"""

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.rollout.vllm_sampler as samplers
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.policy.models import load_policies
from rlvr.rollout.samplers import Sampler
from rlvr.training.checkpoints import save_folder

import pytest
import torch
import transformers
from runs import ROOT, SMALL, TWO_RANKS, arguments, rows, run_python
from samples import PROMPTS

from common import decode
from studies.papers.make_bases import build_tiny


def write(model, prompt: list[int], settings):
    stops, most = settings.stop_token_ids, settings.max_tokens
    with torch.random.fork_rng([]):  # an engine has a generator of its own
        how = dict(stops=stops, max_tokens=most, temperature=settings.temperature)
        (ids,), (logprobs,) = decode(model, [prompt], **how)
    output = SimpleNamespace(token_ids=(*ids,), logprobs=SimpleNamespace(logprobs=logprobs))
    return SimpleNamespace(outputs=[output])


class LLM:
    """An engine. `calls` are the names of what was called, `asked` are (prompt, settings)."""

    def __init__(self, path, **settings):
        self.settings, self.calls, self.asked = settings, [], []
        torch.manual_seed(0)  # as vLLM does
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        # what a build for CPUs does to a tied head after a push
        packing = self.model.lm_head.quant_method = Mock()
        packing.process_weights_after_loading = lambda head: self.calls.append("pack_head")
        self.llm_engine = Mock()
        self.llm_engine.engine_core.shutdown = lambda: self.calls.append("shutdown")

    @torch.no_grad()
    def generate(self, prompts, settings, use_tqdm):
        self.calls.append("generate")
        ids = [prompt["prompt_token_ids"] for prompt in prompts]
        asked = [*zip(ids, settings, strict=True)]
        self.asked += asked
        return [write(self.model, *each) for each in asked]

    @torch.no_grad()
    def collective_rpc(self, method, kwargs):
        self.calls.append(method)
        own = dict(self.model.named_parameters())
        for name, value in kwargs["weights_iterator"]:
            own[name].copy_(value)

    def apply_model(self, function):
        return [function(self.model)]

    def reset_prefix_cache(self):
        self.calls.append("reset_prefix_cache")


@pytest.fixture
def build(sharp, tmp_path, monkeypatch):
    """build(flag=value, ...) -> a VllmSampler of a saved policy."""
    vllm = SimpleNamespace(LLM=LLM, SamplingParams=SimpleNamespace, __spec__="found")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)

    def make(**flags):
        folder = tmp_path / "policy"
        if not folder.exists():
            save_folder(folder, *sharp)
        config = Config(**dict(model=str(folder), max_steps=0) | flags)
        policy, _, tokenizer = load_policies(config)
        return samplers.VllmSampler(policy, tokenizer, config, decode)

    return make


@pytest.fixture
def prompts(tiny):
    return [tiny[1].encode(prompt) for prompt in PROMPTS[:3]]


def test_each_completion_has_a_seed_of_its_own_from_the_runs_generator(build, prompts):
    """What is greedy draws none, nor does giving the weights: evaluating changes no training."""

    def seeds(temperature=1.0):
        sampler.engine.asked.clear()
        sampler.generate(prompts, temperature=temperature, top_p=1.0, max_tokens=1)
        assert [prompt for prompt, _ in sampler.engine.asked] == prompts
        return [settings.seed for _, settings in sampler.engine.asked]

    torch.manual_seed(5)
    expected = torch.randint(2**62, (6,)).tolist()
    torch.manual_seed(5)
    sampler = build()  # which draws none, either
    assert seeds() + seeds() == expected
    before = torch.get_rng_state()
    assert seeds(0.0) == [None] * 3
    with sampler.synced():
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_settings_of_the_engine(build, prompts, monkeypatch):
    """Its logits are in fp32, as in the loss: rounding one side alone makes them differ more."""
    given = dict(max_prompt_length=2000, vllm_gpu_memory_utilization=0.4)
    sampler = build(**given)
    # importance weights by default, on a CPU, too; and how far off log-probs may be, in nats
    assert (sampler.cap, sampler.tolerance) == (2.0, 1e-3)
    expected = dict(hf_overrides={"head_dtype": "float32"}, dtype=torch.float32)
    expected |= dict(logprobs_mode="processed_logprobs", skip_tokenizer_init=True)
    expected |= dict(distributed_executor_backend="external_launcher")
    expected |= dict(max_model_len=1024)  # the policy's context
    expected |= dict(gpu_memory_utilization=0.4, max_num_seqs=512, max_num_batched_tokens=8192)
    expected |= dict(enforce_eager=True, enable_chunked_prefill=False)
    assert sampler.engine.settings == expected
    names = ("config", "generation_config", "name_or_path", "settings")
    on_gpu = SimpleNamespace(**{name: getattr(sampler.policy, name) for name in names})
    on_gpu.device = torch.device("cuda")
    fork = Mock(return_value=contextlib.nullcontext())
    monkeypatch.setattr(torch.random, "fork_rng", fork)
    there = samplers.VllmSampler(on_gpu, sampler.tokenizer, sampler.config, decode)
    fast = dict(enforce_eager=False, enable_chunked_prefill=True)
    assert there.engine.settings == expected | fast
    assert fork.call_args_list[0].args == ([on_gpu.device],)  # whose generator stays as it is
    given |= dict(max_prompt_length=28, max_completion_length=100)
    assert build(**given).engine.settings == expected | dict(max_model_len=128)
    in_bf16 = build(precision="bf16", model="weak")
    with in_bf16.synced():  # its log-probs may be further off
        assert in_bf16.gap > in_bf16.tolerance / 1000 == 1e-3
    assert in_bf16.engine.settings["dtype"] == torch.bfloat16
    # as in a turn with a tool
    sampler.generate(prompts, temperature=0.7, top_p=0.9, max_tokens=3, call_ends=[7])
    drawn = dict(temperature=0.7, top_p=0.9, max_tokens=3, stop_token_ids=[*sampler.stops, 7])
    drawn |= dict(flat_logprobs=True, logprobs=0, detokenize=False)  # it makes no dict a token
    for _, settings in sampler.engine.asked[-3:]:
        assert vars(settings) == drawn | dict(seed=settings.seed)
    assert sampler.generate([], temperature=1.0, top_p=1.0, max_tokens=4) == ([], [])


def test_the_engine_gets_the_weights_before_each_rollout(build, prompts, monkeypatch):
    """A sharded policy is gathered for that alone. A push that fails ends the run."""
    sampler = build()
    calls = sampler.engine.calls = []

    @contextlib.contextmanager
    def gathered(policy):
        calls.append("gather")
        yield
        calls.append("shard")

    monkeypatch.setattr(samplers, "gathered", gathered)

    def update(size):  # every weight by so much, up or down, as Adam's first step does
        for parameter in sampler.policy.parameters():
            parameter.data += size * (torch.randint(2, parameter.shape) * 2 - 1)

    update(1e-2)
    with sampler.synced():
        expected = "gather reload_weights pack_head reset_prefix_cache generate shard"
        assert calls == expected.split()
    assert sampler.gap < 1e-4
    theirs, _ = sampler.generate(prompts, temperature=0.0, top_p=1.0, max_tokens=8)
    assert theirs == Sampler.generate(sampler, prompts, temperature=0.0, top_p=1.0, max_tokens=8)[0]
    calls.clear()
    sampler.policy.config.tie_word_embeddings = False
    sampler.push()
    assert calls == ["reload_weights"]  # nothing is packed
    monkeypatch.setattr(type(sampler), "push", lambda sampler: None)
    for size in (1e-3, torch.nan):
        update(size)
        with pytest.raises(UserError, match="not loaded the new weights") as error:
            with sampler.synced():
                pass
        assert str(error.value).endswith(f"its log-probs are off by {sampler.gap:.3g} nats")


def test_an_engine_that_fails_is_one_line_and_ends_with_the_run(build, monkeypatch):
    """Also one that fails at its first completion. Too high log-probs are a gap like too low."""
    with contextlib.ExitStack() as at_exit:
        monkeypatch.setattr(samplers, "AT_EXIT", at_exit)
        sampler = build()
    assert sampler.engine.calls == ["generate", "shutdown"]
    monkeypatch.setattr(sampler, "generate", lambda *_, **__: ([[8]], [[9.0]]))
    assert sampler.logprob_gap() > 9
    for error in (ValueError, RuntimeError, AssertionError):
        failing = Mock(side_effect=error("too little memory"))
        monkeypatch.setattr(LLM, "generate", failing)
        with pytest.raises(UserError, match="^cannot use vLLM: too little memory$"):
            build()


# -------------------------------------------------------------- vLLM itself, where it is installed

ON_A_CPU = dict(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
# The entropy bonus sees to it that the weights of an untrained policy change.
TRAINED = dict(engine="vllm", learning_rate=1e-3, entropy_coef=0.01, output_dir="run")


def train(tmp_path, given, launcher=()):
    """Run grpo.py, whose log-probs are the trainer's after each push -> the rows of its metrics."""
    result = run_python(*launcher, ROOT / "grpo.py", *given, folder=tmp_path, **ON_A_CPU)
    assert result.returncode == 0, result.stderr[-3000:]
    assert not [*Path("/dev/shm").glob("*-cpushm_*")]  # with which a later run would not start
    found = rows(tmp_path / "run")
    assert all(row["mismatch_max_ratio"] < 1.001 and row["grad_norm"] > 0 for row in found)
    assert all(0 <= row["sampler_gap"] < 1e-4 for row in found)
    return found


@pytest.mark.vllm
@pytest.mark.parametrize("launcher", [[], TWO_RANKS])
def test_a_run_and_its_third_step_again(tmp_path, launcher):
    policy, tokenizer = build_tiny()  # in a shape that vLLM knows on a CPU: heads of 32
    policy.config.hidden_size = 32 * policy.config.num_attention_heads
    for part in (type(policy)(policy.config), tokenizer):
        part.save_pretrained(tmp_path / "policy")
    small = {**SMALL, **TRAINED, "max_steps": 3}
    made = train(tmp_path, arguments(**small, model="policy"), launcher)
    again = train(tmp_path, ["--resume_from_checkpoint", "run/checkpoint-2"], launcher)
    assert [row["step"] for row in made] == [row["step"] for row in again] == [1, 2, 3]
    assert again[2] == pytest.approx(made[2], rel=1e-3, abs=1e-6)

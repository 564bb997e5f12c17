"""What rlvr/rollout/vllm_sampler.py asks vLLM for, and how it checks it, with a stand-in for vLLM.

tests/test_vllm_sampler.py does it with vLLM itself, where that is installed.
"""

import contextlib
import sys
from unittest.mock import Mock

import rlvr.policy.models
import rlvr.rollout.vllm_sampler as samplers
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.problems import Problem, ProblemStream
from rlvr.tasks.prompts import encode_prompt
from rlvr.training.checkpoints import save_folder

import fake_vllm
import pytest
import torch
import vision
from samples import PROMPTS

import common
from common import sample_groups


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    monkeypatch.delenv("VLLM_LOGGING_LEVEL", raising=False)


@pytest.fixture
def build(sharp, tmp_path):
    """build(flag=value, ...) -> a VllmSampler of a saved policy, or of one that reads images."""

    def make(images=False, **flags):
        folder = tmp_path / ("seeing" if images else "policy")
        if images:
            vision.save_vision_policy(folder, scale=3.0)
        elif not folder.exists():
            save_folder(folder, *sharp)
        config = Config(model=str(folder), max_steps=0, vllm_importance_sampling_cap=None, **flags)
        policy, _, tokenizer = rlvr.policy.models.load_policies(config)
        return samplers.VllmSampler(policy, tokenizer, config, common.decode)

    return make


@pytest.fixture
def seeing(build):
    """A VllmSampler of a policy that reads images."""
    return build(images=True, num_generations=2, max_completion_length=6)


@pytest.fixture
def prompts(tiny):
    return [tiny[1].encode(prompt) for prompt in PROMPTS[:3]]


def test_each_completion_has_a_seed_of_its_own_from_the_runs_generator(build, prompts):
    """So it hangs on --seed and the rank, and goes on in a resumed run, on every engine version.

    What is greedy draws none, nor does giving the weights: evaluating changes no training.
    """

    def seeds(temperature=1.0):
        sampler.engine.asked.clear()
        sampler.generate(prompts, temperature, 1.0, 1)
        assert [prompt for prompt, _ in sampler.engine.asked] == prompts
        return [settings.seed for _, settings in sampler.engine.asked]

    torch.manual_seed(5)
    expected = torch.randint(2**62, (6,)).tolist()
    torch.manual_seed(5)
    sampler = build()  # which draws none, either
    assert seeds() + seeds() == expected
    before = torch.get_rng_state()
    assert seeds(0.0) == [None] * 3
    sampler.sync()
    sampler.sleep()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_ranks_of_one_engine_ask_for_all_of_theirs(build, prompts, monkeypatch, tmp_path):
    """Alike, in the order of the ranks, and each takes its own back.

    Of the memory that they share, each unlinks its own part.
    """
    of_others = [[([7], (), 1)], [([7], (), 2)], [([8, 9], (), 5), ([9], (), 6)]]
    sampler = build(vllm_tensor_parallel_size=2)
    expected = Sampler.generate(sampler, prompts, 0.0, 1.0, 4)
    monkeypatch.setattr(samplers, "gather", lambda mine: [*of_others, *mine])
    monkeypatch.setattr(world, "RANK", 3)
    sampler.engine.asked.clear()
    completions, logprobs = sampler.generate(prompts, 0.0, 1.0, 4)
    asked = [(prompt, settings.seed) for prompt, settings in sampler.engine.asked]
    assert asked == [([8, 9], 5), ([9], 6), *((prompt, None) for prompt in prompts)]
    assert completions == expected[0]
    for got, wanted in zip(logprobs, expected[1], strict=True):
        assert got == pytest.approx(wanted, abs=1e-4)
    parts = [tmp_path / f"vllm_[{ranks}]-cpushm_{i}" for ranks in ("0-1", "2-3") for i in (0, 1)]
    for part in parts:
        part.touch()
    monkeypatch.setattr(samplers, "Path", lambda folder: tmp_path)
    samplers.unlink_shared_memory(2)
    assert [part.exists() for part in parts] == [True, True, True, False]


def test_settings_of_the_engine(build, seeing, prompts):
    """Its logits are in fp32, as in the loss: rounding one side alone makes them differ more."""
    sampler = build(max_prompt_length=2000, vllm_gpu_memory_utilization=0.4)
    assert sampler.cap == 2.0  # importance weights by default, on a CPU, too
    expected = dict(
        hf_overrides={"head_dtype": "float32"},
        dtype=torch.float32,
        logprobs_mode="processed_logprobs",
        distributed_executor_backend="external_launcher",
        max_model_len=1024,  # the policy's context
        gpu_memory_utilization=0.4,
        tensor_parallel_size=1,
    )
    assert sampler.engine.settings.items() >= expected.items()
    assert build(vllm_tensor_parallel_size=2).engine.settings["tensor_parallel_size"] == 2
    assert build(bf16=True).engine.settings["dtype"] == torch.bfloat16
    # 64 tokens an image is what its processor allows, and 32 what --max_prompt_length does
    assert seeing.engine.settings["limit_mm_per_prompt"] == {"video": 0}
    for most, allowed in ((1024, 64), (32, 32)):
        settings = samplers.reading_settings(seeing.policy, Config(max_prompt_length=most))
        size = dict(shortest_edge=vision.SIDE**2, longest_edge=allowed * vision.SIDE**2)
        assert settings["mm_processor_kwargs"] == {"size": size}
    sampler.generate(prompts, 0.7, 0.9, 3, call_ends=[7])  # as in a turn with a tool
    for _, settings in sampler.engine.asked[-3:]:
        assert (settings.temperature, settings.top_p, settings.max_tokens) == (0.7, 0.9, 3)
        assert settings.flat_logprobs and settings.logprobs == 0  # it makes no dict a token
        assert settings.stop_token_ids == [*sampler.stops, 7]
    assert sampler.generate([], 1.0, 1.0, 4) == ([], [])


def test_the_engine_gets_the_weights_before_each_rollout(build, monkeypatch):
    """And forgets what it has cached with the old ones.

    A sharded policy is gathered for that alone: 15 GB of a policy of 7 B are free in the rollout.
    """
    sampler = build()
    calls = sampler.engine.calls = []
    monkeypatch.setattr(samplers, "unshard", lambda policy, wanted: calls.append(wanted))
    sampler.sync()
    assert calls == [True, "reload_weights", "pack_head", "reset_prefix_cache", "generate", False]


def test_a_push_takes_the_weights_over(build, prompts, monkeypatch):
    """One that does not, or that leaves NaN, ends the run."""
    sampler = build()

    def update(size):  # every weight by so much, up or down, as Adam's first step does
        for parameter in sampler.policy.parameters():
            parameter.data += size * (torch.randint(2, parameter.shape) * 2 - 1)

    update(1e-2)
    sampler.sync()
    assert sampler.gap < 1e-4
    theirs, _ = sampler.generate(prompts, 0.0, 1.0, 8)
    assert theirs == Sampler.generate(sampler, prompts, 0.0, 1.0, 8)[0]
    assert not sampler.in_fp32  # there is no bf16 copy beside the engine
    monkeypatch.setattr(type(sampler), "push", lambda sampler: None)
    for size in (1e-2, torch.nan):
        update(size)
        with pytest.raises(UserError, match="not loaded the new weights"):
            sampler.sync()


def test_an_engine_that_fails_is_one_line_and_ends_with_the_run(build, monkeypatch):
    """Also one that fails at its first completion. Too high log-probs are a gap like too low."""
    with contextlib.ExitStack() as at_exit:
        monkeypatch.setattr(samplers, "AT_EXIT", at_exit)
        sampler = build()
    assert sampler.engine.calls == ["generate", "shutdown"]
    monkeypatch.setattr(sampler, "generate", lambda *_: ([[8]], [[9.0]]))
    assert sampler.logprob_gap() > 9
    for error in (ValueError, RuntimeError):
        failing = Mock(side_effect=error("too little\nmemory"))
        monkeypatch.setattr(fake_vllm.LLM, "generate", failing)
        with pytest.raises(UserError, match="^vLLM does not start: too little memory$"):
            build()


def test_the_gap_is_a_metric(build, monkeypatch):
    """The largest of the ranks."""
    sampler = build(prompts_per_step=2, num_generations=2, max_completion_length=4)
    stream = ProblemStream([Problem(prompt, prompt) for prompt in PROMPTS], 0)
    batch = common.roll_out(sampler, stream, sampler.config)
    batch.set_old_logprobs(range(4), batch.sampled_logprobs)
    assert 0 <= sampler.gap < 1e-4
    monkeypatch.setattr(common, "global_max", lambda value: value + 1)
    assert batch.metrics()["sampler_gap"] == sampler.gap + 1


def test_a_request_shows_the_images_in_the_sizes_that_the_policy_reads(seeing):
    """One token an image goes in, since vLLM repeats it. A push drops embeddings of old weights.

    The stand-in gives back the prompt that it was given, and not that with repeated tokens. So may
    another version of the processor, which cuts an image into other patches: that ends the run.
    """
    seeing.sync()
    assert "reset_encoder_cache" in seeing.engine.calls
    asked = [
        ("how many of all?", (vision.squares(1),)),
        ("<image> or <image>?", (vision.UNEVEN, vision.squares(3))),
    ]
    problems = vision.problems(seeing.tokenizer, asked)
    for problem, tokens in zip(problems, ([3], [5, 3]), strict=True):
        ids = encode_prompt(seeing.tokenizer, problem.prompt)
        assert ids.count(vision.IMAGE_TOKEN) == sum(tokens)
        request = seeing.request(ids, problem.images)
        assert request["prompt_token_ids"].count(vision.IMAGE_TOKEN) == len(tokens)
        assert len(request["prompt_token_ids"]) == len(ids) - sum(tokens) + len(tokens)
        shown = request["multi_modal_data"]["image"]
        assert [image.size for image in shown] == [(n * vision.SIDE, vision.SIDE) for n in tokens]
    large = vision.png(vision.as_image(vision.UNEVEN).resize((100, 100)))  # 64 tokens are allowed
    assert seeing.policy.image_reader.resized(large).size == (64, 64)
    with pytest.raises(UserError, match="other tokens than the policy"):
        sample_groups(seeing, problems[:1], 1, 1.0, 6)

"""The flags that all scripts have: which values and combinations can work, and which may change."""

import math
import typing
from dataclasses import fields, replace

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config

import pytest


@pytest.mark.parametrize(
    "flags",
    [
        dict(learning_rate=-1e-4),
        dict(temperature=0.0),
        dict(temperature=-1.0),
        dict(temperature=math.nan),
        dict(temperature=math.inf),
        dict(learning_rate=math.inf),
        dict(beta=-0.1),
        dict(entropy_coef=-1.0),
        dict(epsilon=-0.2),
        dict(epsilon=0.0),
        dict(epsilon_high=-0.1),
        dict(max_steps=-1),
        dict(max_redraws=-1),
        dict(dataset="gsm8k", verifier="number"),
        dict(dataset="gsm8k", answer_column="solution"),
        dict(dataset="math", eval_dataset="math500", answer_lists="alternatives"),
        dict(arithmetic_levels="2"),
        dict(numbers="4", model="gpt2", dataset="gsm8k"),
        dict(base="weak", model="gpt2"),
        dict(sft_steps=400, model="gpt2"),
        dict(sft_steps=400, exchanged_targets=0.5, model="gpt2"),
        dict(tie_word_embeddings=False, model="gpt2"),
        dict(vllm_gpu_memory_utilization=0.5, engine="hf"),
        dict(vllm_enable_sleep_mode=True, engine="hf"),
        dict(max_turns=2),
        dict(max_redraws=1),
        dict(prompts_per_step=0),
        dict(num_generations=1),
        dict(num_generations=0),
        dict(minibatch_size=0),
        dict(minibatch_size=100),
        dict(minibatch_size=1024),
        dict(num_iterations=0),
        dict(microbatch_tokens=0),
        dict(rollout_batch_size=0),
        dict(max_completion_length=0),
        dict(max_turns=0),
        dict(max_grad_norm=0.0),
        dict(top_p=0.0),
        dict(top_p=1.1),
        dict(eval_temperature=0.0),
        dict(eval_samples=0),
        dict(eval_problems=0),
        dict(eval_steps=0),
        dict(save_steps=0),
        dict(seed=-1),
        dict(seed=2**32),
        dict(sft_steps=-1),
        dict(exchanged_targets=-0.1),
        dict(exchanged_targets=1.1),
        dict(base="weak", sft_steps=400),
        dict(base="weak", exchanged_targets=0.5),
        dict(exchanged_targets=0.5),
        dict(numbers=""),
        dict(numbers="5"),
        dict(numbers="3,"),
        dict(numbers="3;4"),
        dict(numbers="33"),
        dict(vllm_importance_sampling_cap=-1.0),
        dict(vllm_gpu_memory_utilization=1.5),
        dict(vllm_tensor_parallel_size=2),
        dict(max_prompt_length=0),
        dict(verify_seconds=0.0),
        dict(verify_seconds=1e12),
        dict(program_seconds=3e9),
        dict(ddp_timeout=1e14),
        dict(num_threads=0),
        dict(num_threads=1025),
        dict(success_threshold=1e38),
        dict(eval_dataset=","),
    ],
    ids=str,
)
def test_check_refuses(flags):
    with pytest.raises(UserError) as error:
        Config(**flags).check()
    assert "\n" not in str(error.value)
    assert any(f"--{name}" in str(error.value) for name in flags)


@pytest.mark.parametrize(
    "flags",
    [
        dict(),
        dict(max_steps=0),
        dict(learning_rate=0.0),
        dict(beta=0.0),
        dict(max_redraws=0, dynamic_sampling=True),
        dict(max_turns=1, tool="calculator"),
        dict(vllm_enable_sleep_mode=True),
        dict(numbers="4", model="gpt2"),
        dict(numbers="4", dataset="gsm8k"),
        dict(sft_steps=0),
        dict(base="weak"),
        dict(base="weak", tie_word_embeddings=False),
        dict(sft_steps=1, exchanged_targets=1.0),
        dict(epsilon_high=0.28),
        dict(numbers="2,3,4"),
        dict(minibatch_size=512),
        dict(num_generations=2, minibatch_size=64),
        dict(top_p=1.0),
        dict(num_threads=1),
        dict(num_threads=1024),
        dict(success_threshold=-0.5),
        dict(eval_problems=0, eval_dataset="gsm8k"),
    ],
    ids=str,
)
def test_check_accepts(flags):
    config = Config(**flags)
    config.check()
    assert all(getattr(config, name) == value for name, value in flags.items())


@pytest.mark.parametrize("flags", [dict(dataset="gsm9k"), dict(eval_dataset="math,none.jsonl")])
def test_check_names_a_data_set_that_is_not_there(flags):
    with pytest.raises(UserError, match="is no file and none of the data sets gsm8k, math"):
        Config(**flags).check()


def test_a_file_may_be_the_data_set(tmp_path):
    file = tmp_path / "sums.jsonl"
    file.touch()
    Config(dataset=str(file)).check()


def test_the_ranks_share_the_batch(monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 3)
    with pytest.raises(UserError, match="3 ranks"):
        Config().check()  # 32 prompts
    with pytest.raises(UserError, match="3 ranks"):
        Config(prompts_per_step=30, num_generations=16, minibatch_size=160).check()
    config = Config(prompts_per_step=30, num_generations=16, minibatch_size=240)
    config.check()
    assert config.prompts_per_step == 30


def test_each_rank_has_a_problem_to_evaluate_on(monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    Config(eval_problems=2).check()
    with pytest.raises(UserError, match="--eval_problems must be at least one a rank"):
        Config(eval_problems=1).check()


def test_engines_share_the_ranks_evenly(monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    Config(vllm_tensor_parallel_size=2).check()
    with pytest.raises(UserError, match="--vllm_tensor_parallel_size must divide the ranks"):
        Config(vllm_tensor_parallel_size=3).check()


@pytest.mark.parametrize("installed", [False, True])
def test_vllm_has_to_be_installed(monkeypatch, installed):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: installed or None)
    if installed:
        Config(engine="vllm").check()
    else:
        with pytest.raises(UserError, match="vLLM is not installed"):
            Config(engine="vllm").check()


# What a type says beside int, float or str: these sets are written down here once more.
ZERO_OR_MORE = {
    "beta",
    "entropy_coef",
    "eval_max_completion_length",
    "eval_problems",
    "exchanged_targets",
    "learning_rate",
    "log_tokens",
    "max_redraws",
    "max_steps",
    "save_total_limit",
    "seed",
    "sft_steps",
    "vllm_importance_sampling_cap",
    "warmup_ratio",
    "weight_decay",
}
ANY_SIGN = {"success_threshold"}
MAY_CHANGE = {
    "cache_dir",
    "compile",
    "ddp_timeout",
    "eval_dataset",
    "eval_max_completion_length",
    "eval_protocol",
    "eval_samples",
    "eval_steps",
    "eval_temperature",
    "fsdp",
    "gradient_checkpointing",
    "log_tokens",
    "max_skipped_updates",
    "max_steps",
    "microbatch_tokens",
    "num_threads",
    "num_train_epochs",
    "output_dir",
    "program_seconds",
    "report_to",
    "resume_from_checkpoint",
    "rollout_batch_size",
    "save_steps",
    "save_total_limit",
    "top_p",
    "trust_remote_code",
    "verify_seconds",
    "vllm_enable_sleep_mode",
    "vllm_gpu_memory_utilization",
    "vllm_tensor_parallel_size",
}
NUMBERS = [
    name
    for name, kind in typing.get_type_hints(Config).items()
    if {int, float} & {kind, *typing.get_args(kind)}
]


@pytest.mark.parametrize("name", NUMBERS)
def test_which_numbers_may_be_zero(name):
    """Countdown has no end: of it, all held-out problems cannot be asked for."""
    others = {"eval_problems": dict(dataset="gsm8k"), "max_redraws": dict(dynamic_sampling=True)}
    config = replace(Config(**others.get(name, {})), **{name: 0})
    if name in ZERO_OR_MORE | ANY_SIGN:
        config.check()
    else:
        with pytest.raises(UserError, match=f"--{name}"):
            config.check()
    for value in (math.nan, -math.inf) if name in ANY_SIGN else (-1,):
        with pytest.raises(UserError, match=f"--{name} must be"):
            replace(config, **{name: value}).check()


def test_what_may_change_in_a_resumed_run():
    names = {field.name for field in fields(Config)}
    assert {name for name in names if Config().may_change(name)} == MAY_CHANGE
    assert ZERO_OR_MORE <= {*NUMBERS}


def test_eval_names():
    """The training set, unless others are named; each once, in their order."""
    assert Config(dataset="gsm8k").eval_names == ["gsm8k"]
    assert Config(eval_dataset="math,,gsm8k,math").eval_names == ["math", "gsm8k"]


def test_the_longest_sequence():
    assert Config(max_prompt_length=10, max_completion_length=7).longest == 17
    config = Config(max_prompt_length=10, max_completion_length=7, eval_max_completion_length=20)
    assert config.longest == 30

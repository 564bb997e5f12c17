"""What is refused before a model is loaded: one row a refusal; and what may change in a run."""

import importlib
import math
from dataclasses import fields
from types import UnionType
from typing import get_args, get_type_hints

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config, Only, check_number, marks_of

import pytest
from runs import SCRIPTS

import fade

# What is typed, and what the line has to say. The flags of all scripts are tried with grpo.py.
REFUSED = [
    # what no flag can be
    ("grpo --bogus", "no such flag: --bogus"),
    ("grpo --max_step 3", "no such flag: --max_step 3; perhaps you meant --max_steps"),
    ("grpo stray", "no such flag: stray"),
    ("grpo --max_steps", "--max_steps: expected one argument"),
    ("grpo --max_steps 1.5", "--max_steps: invalid int value: '1.5'"),
    ("grpo --fsdp no", "--fsdp: takes true or false, got 'no'"),
    ("grpo --no_fsdp=true", "ignored explicit argument 'true'"),
    ("grpo --base best", "invalid choice: 'best' (choose from 'weak', 'middle', 'strong', None)"),
    ("grpo --learning_rate=--", "-- stands for no flag and no value"),
    # what a value can be; the limits of all numbers are tested below
    ("grpo --temperature 0", "--temperature must be above 0, got 0.0"),
    ("grpo --learning_rate=-1", "--learning_rate must be 0 or more, got -1.0"),
    ("grpo --top_p 1.5", "--top_p must be at most 1, got 1.5"),
    ("grpo --num_generations 1", "--num_generations must be 2 or more"),
    ("grpo --numbers 5", "--numbers takes 2, 3, 4, separated by commas"),
    ("grpo --dataset arithmetic --arithmetic_levels 5", "--arithmetic_levels takes 1, 2, 3, 4"),
    ("grpo --chat_template_kwargs []", "--chat_template_kwargs takes a JSON object"),
    ("grpo --dataset gsm9k", "'gsm9k' is no file and none of the data sets gsm8k, math"),
    ("grpo --eval_dataset math,none.jsonl", "'none.jsonl' is no file and none of the data sets"),
    ("grpo --eval_dataset ,", "--eval_dataset names no data set"),
    ("fade --ema_beta 1", "--ema_beta must be below 1"),
    ("fade --alpha_max 0.5", "--alpha_max must be 1 or more"),
    ("fade --weight none", "--weight none is none of fade, log_schedule, power, asym, "),
    # what goes together
    ("grpo --minibatch_size 100", "--minibatch_size must divide the batch of 512 completions"),
    ("grpo --eval_samples 1000000000", "--eval_problems x --eval_samples must be at most"),
    ("grpo --num_iterations 1000000000", "x --num_iterations must be at most"),
    ("grpo --eval_problems 0", "--eval_problems 0 takes all of a data set; countdown has no end"),
    ("grpo --base weak --sft_steps 400", "--base weak is taught already: leave out --sft_steps"),
    ("agrae --mean_reward --dynamic_sampling", "no --dynamic_sampling"),
    ("agrae --method grpo_lead --format_share 0.5", "--method grpo_lead: no --format_share"),
    ("agrae --method w_reinforce --no_scale_rewards", "--method w_reinforce: no --format_share"),
    ("cwgrpo --minibatch_size 8", "--minibatch_size must hold whole groups"),
    ("cwgrpo --importance_sampling_level sequence", "sequence is for --method none"),
    ("fade --alpha_from_entropy --target_entropy 0", "needs a --target_entropy above 0"),
    (
        "fade --weight t2t --weight_args alpha=0.2 --equalize_learning_rate",
        "--equalize_learning_rate: the largest |A| of t2t depends on lengths",
    ),
    ("fade --weight_args alpha=2", "--weight fade takes no --weight_args"),
    ("fade --weight t2t", "--weight t2t --weight_args '': missing a required argument: 'alpha'"),
    ("fade --weight power --weight_args k", "'k' is not of the form name=value"),
    ("fade --weight power --weight_args alpha=nan", "some advantages are no finite numbers"),
    ("fade --weight ha_dw --weight_args scale=0", "all advantages are 0"),
    # what nothing would read, be it typed with its default
    ("grpo --verifier math", "--verifier is for --dataset FILE, not countdown"),
    ("agrae --alpha 1 --method none", "--alpha is for --method agrae, not none"),
    (
        "grpo --dataset math --eval_dataset math500 --prompt_column prompt",
        "--prompt_column is for --dataset FILE, not math, math500",
    ),
    (
        "grpo --dataset own.jsonl --numbers 4",
        "--numbers is for --dataset countdown or --sft_steps N, not FILE, own.jsonl",
    ),
    ("grpo --exchanged_targets 0.5", "--exchanged_targets is for --sft_steps N, not None"),
    ("agrae --max_steps 0 --alpha 1", "--alpha is for training, and --max_steps 0 evaluates only"),
    ("grpo --max_steps 0 --temperature 0.4", "--temperature is for training, and --max_steps 0"),
]


@pytest.fixture
def message(parsed, capsys, tmp_path):
    """message("grpo --bogus") -> the one line that refuses it, without the script's name."""
    (tmp_path / "own.jsonl").touch()

    def refuse(line):
        script, *given = line.split()
        with pytest.raises(SystemExit) as ended:
            parsed(script, *given)
        assert ended.value.code == 2
        out, written = capsys.readouterr()
        assert out == "" and written.count("\n") == 1
        return written.removeprefix(f"{script}.py: error: ")

    return refuse


@pytest.mark.parametrize("line, said", REFUSED)
def test_what_cannot_work_is_refused_in_one_line(message, line, said):
    assert said in message(line)


@pytest.mark.parametrize(
    "ranks, line, said",
    [
        (3, "grpo", "the 3 ranks must divide --prompts_per_step and --minibatch_size"),
        (
            3,
            "grpo --prompts_per_step 30 --num_generations 16 --minibatch_size 160",
            "the 3 ranks must divide",
        ),
        (2, "grpo --eval_problems 1", "--eval_problems must be at least one a rank"),
        (4, "grpo --vllm_tensor_parallel_size 3", "--vllm_tensor_parallel_size must divide the"),
        (2, "cwgrpo --minibatch_size 16", "--minibatch_size must hold whole groups"),
        (4, "grpo --shard_within_nodes", "as many ranks on each node"),
    ],
)
def test_what_several_ranks_cannot_share(message, monkeypatch, ranks, line, said):
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 3)
    assert said in message(line)


@pytest.mark.parametrize(
    "line",
    [
        "grpo --learning_rate 0 --success_threshold=-0.5",
        "grpo --max_steps 0 --model gpt2 --variant gspo --eval_protocol fade --max_turns 8 --tool "
        "calculator --minibatch_size 64 --eval_steps 1",
        "grpo --numbers 4 --dataset gsm8k --eval_dataset countdown",
        "grpo --numbers 2,3,4 --dataset own.jsonl --sft_steps 0 --exchanged_targets 1",
        "grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl",
        "grpo --base weak --tie_word_embeddings false",
        "grpo --eval_problems 0 --eval_samples 10000 --dataset gsm8k",
        "grpo --num_threads None --epsilon_high 0.28 --top_p 1 --minibatch_size 512",
        "grpo --vllm_enable_sleep_mode --engine auto",
        "agrae --control_beta 3 --method negative_dominant",
        "cwgrpo --importance_sampling_level sequence --method none",
    ],
)
def test_what_can_work_is_taken(parsed, tmp_path, line):
    (tmp_path / "own.jsonl").touch()
    parsed(*line.split())


@pytest.mark.parametrize("installed", [False, True])
def test_vllm_has_to_be_installed(monkeypatch, installed):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: installed or None)
    if installed:
        Config(engine="vllm").check()
    else:
        with pytest.raises(UserError, match="vLLM is not installed"):
            Config(engine="vllm").check()


# What a type says beside int, float or str: all of it is written down here once more.
ZERO_OR_MORE = set(
    "beta entropy_coef eval_max_completion_length eval_problems exchanged_targets learning_rate "
    "log_tokens max_redraws max_steps save_total_limit seed sft_steps vllm_importance_sampling_cap "
    "warmup_ratio weight_decay beta_pos beta_neg success_weight format_share format_weight "
    "target_entropy ema_beta".split()
)
AT_MOST = {
    1: "top_p warmup_ratio exchanged_targets vllm_gpu_memory_utilization alpha format_share "
    "clip_cov_fraction",
    1024: "num_threads",
    10**6: "verify_seconds program_seconds ddp_timeout",
    2**32 - 1: "seed",
}
MOST = {name: most for most, names in AT_MOST.items() for name in names.split()}
MAY_CHANGE = set(
    "cache_dir compile ddp_timeout eval_dataset eval_max_completion_length eval_protocol "
    "eval_samples eval_steps eval_temperature fsdp gradient_checkpointing log_tokens "
    "max_skipped_updates max_steps microbatch_tokens num_threads output_dir "
    "program_seconds report_to resume_from_checkpoint rollout_batch_size save_steps "
    "save_total_limit shard_within_nodes top_p trust_remote_code verify_seconds "
    "vllm_enable_sleep_mode "
    "vllm_gpu_memory_utilization vllm_tensor_parallel_size".split()
)
ONLY = {  # with which flag, and which of its values, these flags are read
    "dataset FILE": "prompt_column answer_column image_column verifier",
    "dataset arithmetic": "arithmetic_levels",
    "dataset countdown": "numbers",
    "sft_steps N": "numbers exchanged_targets",
    "model tiny": "base sft_steps exchanged_targets tie_word_embeddings",
    "engine auto vllm": "vllm_gpu_memory_utilization vllm_tensor_parallel_size "
    "vllm_enable_sleep_mode",
    "tool calculator": "max_turns",
    "fsdp True": "shard_within_nodes",
    "dynamic_sampling True": "max_redraws",
    "method agrae": "alpha sample_level group_level released_weight mean_reward",
    "method positive_dominant negative_dominant": "control_beta",
    "method hard_focused easy_focused": "control_gamma",
    "method w_reinforce": "success_weight",
    "method cwgrpo": "means padded_sum detach_weights",
    "method clip_cov": "clip_cov_fraction",
    "weight fade": "target_entropy alpha_max alpha_from_entropy",
    "weight fade ha_dw": "ema_beta",
    "weight fade log_schedule power asym": "batch_mean",
}


def is_allowed(name, value, marks):
    """Whether a flag with these marks may have this number."""
    try:
        check_number(name, value, marks)
    except UserError as error:
        assert f"--{name} must be" in str(error)
        return False
    return True


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_limits_of_every_number(script):
    config_class = importlib.import_module(script).Config
    kinds, marks = get_type_hints(config_class), marks_of(config_class)
    numbers = {
        name
        for name, kind in kinds.items()
        if {int, float} & {kind, *(get_args(kind) if isinstance(kind, UnionType) else ())}
    }
    assert len(numbers) > 35
    for name in numbers:
        assert is_allowed(name, 0, marks[name]) == (name in ZERO_OR_MORE | {"success_threshold"})
        assert is_allowed(name, -1, marks[name]) == (name == "success_threshold")
        most = MOST.get(name, 1e38)
        assert is_allowed(name, most, marks[name]), name
        for value in (1.001 * most, math.nan, math.inf, -math.inf):
            assert not is_allowed(name, value, marks[name]), name


@pytest.mark.parametrize("script", SCRIPTS)
def test_with_what_every_flag_is_read(script):
    found, expected = set(), set()
    marks = marks_of(importlib.import_module(script).Config)
    for name in marks:
        for only in (mark for mark in marks[name] if isinstance(mark, Only)):
            found |= {(name, " ".join([flag, *values])) for flag, values in only.readers.items()}
    for readers, names in ONLY.items():
        expected |= {(name, readers) for name in names.split() if name in marks}
    assert found == expected


def test_what_may_change_in_a_resumed_run():
    assert {field.name for field in fields(Config) if Config().may_change(field.name)} == MAY_CHANGE
    scheduled = [Config(lr_scheduler_type="cosine"), Config(warmup_ratio=0.1)]
    scheduled.append(fade.Config(weight="log_schedule"))
    assert not any(config.may_change("max_steps") for config in scheduled)


def test_eval_names_and_the_longest_sequence():
    """The training set, unless others are named; each once, in their order."""
    assert Config(dataset="gsm8k").eval_names == ["gsm8k"]
    assert Config(eval_dataset="math,,gsm8k,math").eval_names == ["math", "gsm8k"]
    config = Config(max_prompt_length=10, max_completion_length=7)
    assert config.longest == 17
    config.eval_max_completion_length = 20
    assert config.longest == 30

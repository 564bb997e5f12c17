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
    ("grpo --no_max_steps", "no such flag: --no_max_steps"),
    ("grpo stray", "no such flag: stray"),
    ("grpo --max_steps", "--max_steps: expected one argument"),
    ("grpo --max_steps 1.5", "--max_steps: invalid int value: '1.5'"),
    ("grpo --learning_rate fast", "--learning_rate: invalid float value: 'fast'"),
    ("grpo --fsdp no", "--fsdp: takes true or false, got 'no'"),
    ("grpo --no_fsdp=true", "ignored explicit argument 'true'"),
    ("grpo --variant nope", "--variant: invalid choice: 'nope' (choose from 'grpo', 'dr-grpo'"),
    ("grpo --base best", "invalid choice: 'best' (choose from 'weak', 'middle', 'strong', None)"),
    ("grpo --max_steps 3 --num_train_epochs 1", "--max_steps and --num_train_epochs: give one"),
    # what a value can be; which numbers may be 0 or negative is tested below
    ("grpo --temperature 0", "--temperature must be above 0, got 0.0"),
    ("grpo --learning_rate=-1", "--learning_rate must be 0 or more, got -1.0"),
    ("grpo --success_threshold 1e39", "--success_threshold must be at most 1e+38"),
    ("grpo --top_p 1.5", "--top_p must be at most 1, got 1.5"),
    ("grpo --warmup_ratio 1.1", "--warmup_ratio must be at most 1"),
    ("grpo --exchanged_targets 1.1 --sft_steps 1", "--exchanged_targets must be at most 1"),
    ("grpo --vllm_gpu_memory_utilization 1.5", "--vllm_gpu_memory_utilization must be at most 1"),
    ("grpo --num_threads 1025", "--num_threads must be at most 1024"),
    ("grpo --verify_seconds 1e12", "--verify_seconds must be at most 1000000"),
    ("grpo --program_seconds 3e9", "--program_seconds must be at most 1000000"),
    ("grpo --ddp_timeout 1e14", "--ddp_timeout must be at most 1000000"),
    (f"grpo --seed {2**32}", "--seed must be at most 4294967295"),
    ("grpo --learning_rate=--", "-- stands for no flag and no value"),
    ("grpo --num_generations 1", "--num_generations must be 2 or more"),
    ("grpo --numbers 5", "--numbers takes 2, 3, 4, separated by commas"),
    ("grpo --dataset arithmetic --arithmetic_levels 5", "--arithmetic_levels takes 1, 2, 3, 4"),
    ("agrae --mean_reward --dynamic_sampling", "no --dynamic_sampling"),
    ("grpo --chat_template_kwargs []", "--chat_template_kwargs takes a JSON object"),
    ('grpo --chat_template_kwargs {"messages":0}', "messages"),
    ("grpo --dataset gsm9k", "'gsm9k' is no file and none of the data sets gsm8k, math"),
    ("grpo --eval_dataset math,none.jsonl", "'none.jsonl' is no file and none of the data sets"),
    ("grpo --eval_dataset ,", "--eval_dataset names no data set"),
    ("agrae --alpha 1.5", "--alpha must be at most 1, got 1.5"),  # Eq. 13
    ("agrae --format_share 1.1", "--format_share must be at most 1"),
    ("cwgrpo --method clip_cov --clip_cov_fraction 2", "--clip_cov_fraction must be at most 1"),
    ("fade --ema_beta 1", "--ema_beta must be below 1"),
    ("fade --alpha_max 0.5", "--alpha_max must be 1 or more"),
    ("fade --weight none", "--weight none is none of fade, log_schedule, power, asym, "),
    # what goes together
    ("grpo --minibatch_size 100", "--minibatch_size must divide the batch of 512 completions"),
    ("grpo --eval_samples 1000000000", "--eval_problems x --eval_samples must be at most"),
    ("grpo --prompts_per_step 1000000000", "--prompts_per_step x --num_generations"),
    ("grpo --num_iterations 1000000000", "x --num_iterations must be at most"),
    ("grpo --eval_problems 0", "--eval_problems 0 takes all of a data set; countdown has no end"),
    ("grpo --base weak --sft_steps 400", "--base weak is taught already: leave out --sft_steps"),
    (
        "cwgrpo --minibatch_size 8",
        "--minibatch_size must hold whole groups of --num_generations",
    ),
    ("cwgrpo --importance_sampling_level sequence", "sequence is for --method none"),
    ("agrae --method grpo_lead --format_share 0.5", "--method grpo_lead: no --format_share"),
    ("agrae --method w_reinforce --no_scale_rewards", "--method w_reinforce: no --format_share"),
    (
        "fade --alpha_from_entropy --target_entropy 0",
        "--alpha_from_entropy needs a --target_entropy above 0",
    ),
    (
        "fade --weight t2t --weight_args alpha=0.2 --equalize_learning_rate",
        "--equalize_learning_rate: the largest |A| of t2t depends on lengths",
    ),
    ("fade --weight_args alpha=2", "--weight fade takes no --weight_args"),
    ("fade --weight t2t", "--weight t2t --weight_args '': missing a required argument: 'alpha'"),
    ("fade --weight power --weight_args k", "'k' is not of the form name=value"),
    ("fade --weight power --weight_args unknown=1", "unexpected keyword argument 'unknown'"),
    ("fade --weight mix_pass_k --weight_args k=0.5", "k must be a whole number"),
    ("fade --weight power --weight_args alpha=nan", "some advantages are no finite numbers"),
    ("fade --weight scaled_power --weight_args alpha=-0.5", "no finite numbers"),  # complex ones
    ("fade --weight ha_dw --weight_args scale=0", "all advantages are 0"),
    # what nothing would read, be it typed with its default
    ("grpo --prompt_column question", "--prompt_column is for --dataset FILE, not countdown"),
    ("grpo --answer_column gold", "--answer_column is for --dataset FILE, not countdown"),
    ("grpo --image_column x", "--image_column is for --dataset FILE, not countdown"),
    ("grpo --verifier math", "--verifier is for --dataset FILE, not countdown"),
    ("grpo --dataset gsm8k --verifier number", "--verifier is for --dataset FILE, not gsm8k"),
    (
        "grpo --dataset math --eval_dataset math500 --answer_lists parts",
        "--answer_lists is for --dataset FILE, not math, math500",
    ),
    ("grpo --arithmetic_levels 2", "--arithmetic_levels is for --dataset arithmetic"),
    (
        "grpo --dataset own.jsonl --numbers 4",
        "--numbers is for --dataset countdown or --sft_steps N, not FILE, own.jsonl",
    ),
    ("grpo --base weak --model gpt2", "--base is for --model tiny, not gpt2"),
    ("grpo --sft_steps 400 --model gpt2", "--sft_steps is for --model tiny, not gpt2"),
    ("grpo --exchanged_targets 0.5", "--exchanged_targets is for --sft_steps N, not None"),
    (
        "grpo --exchanged_targets 0.5 --base weak",
        "--exchanged_targets is for --sft_steps N, not None",
    ),
    (
        "grpo --no_tie_word_embeddings --model gpt2",
        "--tie_word_embeddings is for --model tiny, not gpt2",
    ),
    (
        "grpo --vllm_gpu_memory_utilization 0.5 --engine hf",
        "--vllm_gpu_memory_utilization is for --engine auto, vllm, not hf",
    ),
    ("grpo --vllm_tensor_parallel_size 1 --engine hf", "--vllm_tensor_parallel_size is for"),
    ("grpo --vllm_enable_sleep_mode --engine hf", "--vllm_enable_sleep_mode is for --engine auto"),
    ("grpo --max_turns 2", "--max_turns is for --tool calculator, not none"),
    ("grpo --shard_within_nodes --no_fsdp", "--shard_within_nodes is for --fsdp True, not False"),
    ("grpo --max_redraws 1", "--max_redraws is for --dynamic_sampling True, not False"),
    ("agrae --alpha 1 --method none", "--alpha is for --method agrae, not none"),
    ("agrae --no_sample_level --method none", "--sample_level is for --method agrae"),
    ("agrae --no_group_level --method grpo_lead", "--group_level is for --method agrae"),
    ("agrae --released_weight --method none", "--released_weight is for --method agrae"),
    ("agrae --mean_reward --method none", "--mean_reward is for --method agrae"),
    ("agrae --control_beta 3", "--control_beta is for --method positive_dominant, negative_domin"),
    ("agrae --control_gamma 0.3", "--control_gamma is for --method hard_focused, easy_focused"),
    ("agrae --success_weight 0.2", "--success_weight is for --method w_reinforce, not agrae"),
    ("cwgrpo --means own --method clip_cov", "--means is for --method cwgrpo, not clip_cov"),
    ("cwgrpo --padded_sum --method none", "--padded_sum is for --method cwgrpo, not none"),
    ("cwgrpo --no_detach_weights --method none", "--detach_weights is for --method cwgrpo"),
    ("cwgrpo --clip_cov_fraction 0.01", "--clip_cov_fraction is for --method clip_cov, not cwgrpo"),
    ("fade --weight power --target_entropy 0.5", "--target_entropy is for --weight fade, not pow"),
    ("fade --weight power --ema_beta 0.5", "--ema_beta is for --weight fade, ha_dw, not power"),
    ("fade --weight asym --alpha_max 2", "--alpha_max is for --weight fade, not asym"),
    (
        "fade --weight log_schedule --alpha_from_entropy",
        "--alpha_from_entropy is for --weight fade",
    ),
    ("grpo --max_steps 0 --learning_rate 1", "--learning_rate is for training, and --max_steps 0"),
    ("grpo --max_steps 0 --temperature 0.4", "--temperature is for training, and --max_steps 0"),
    ("agrae --max_steps 0 --alpha 1", "--alpha is for training, and --max_steps 0 evaluates only"),
    ("cwgrpo --no_detach_weights --max_steps 0", "--detach_weights is for training, and --max"),
    ("fade --weight grpo --batch_mean", "--batch_mean is for --weight fade, log_schedule, power"),
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


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_flag_that_is_not_always_read_has_its_row(script):
    marks = marks_of(importlib.import_module(script).Config)
    marked = {name for name, found in marks.items() if any(isinstance(m, Only) for m in found)}
    assert len(marked) >= 13
    assert all(any(said.startswith(f"--{name} is for") for _, said in REFUSED) for name in marked)


def test_nodes_of_different_sizes_cannot_each_have_all_weights(message, monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 4)
    monkeypatch.setattr(world, "LOCAL_WORLD_SIZE", 3)
    assert "as many ranks on each node" in message("grpo --shard_within_nodes")


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
    ],
)
def test_what_several_ranks_cannot_share(message, monkeypatch, ranks, line, said):
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    assert said in message(line)


@pytest.mark.parametrize(
    "line",
    [
        "grpo --learning_rate 0 --success_threshold=-0.5",
        "grpo --max_steps 0 --model gpt2 --variant gspo --eval_protocol fade --max_turns 8 --tool "
        "calculator --minibatch_size 64 --eval_steps 1",
        "grpo --dynamic_sampling --max_redraws 0",
        "grpo --tool calculator --max_turns 1",
        "grpo --numbers 4 --model gpt2",
        "grpo --numbers 4 --dataset gsm8k --eval_dataset countdown",
        "grpo --numbers 2,3,4 --dataset own.jsonl --sft_steps 0 --exchanged_targets 1",
        "grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl",
        "grpo --base weak --tie_word_embeddings false",
        "grpo --eval_problems 0 --eval_samples 10000 --dataset gsm8k",
        "grpo --num_threads None --epsilon_high 0.28 --top_p 1 --minibatch_size 512",
        "grpo --vllm_enable_sleep_mode --engine auto",
        "agrae --control_beta 3 --method negative_dominant",
        "cwgrpo --importance_sampling_level sequence --method none",
        "fade --weight mix_pass_k --weight_args k=4",
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


# What a type says beside int, float or str: these sets are written down here once more.
ZERO_OR_MORE = set(
    "beta entropy_coef eval_max_completion_length eval_problems exchanged_targets learning_rate "
    "log_tokens max_redraws max_steps save_total_limit seed sft_steps vllm_importance_sampling_cap "
    "warmup_ratio weight_decay beta_pos beta_neg success_weight format_share format_weight "
    "target_entropy ema_beta".split()
)
MAY_CHANGE = set(
    "cache_dir compile ddp_timeout eval_dataset eval_max_completion_length eval_protocol "
    "eval_samples eval_steps eval_temperature fsdp gradient_checkpointing log_tokens "
    "max_skipped_updates max_steps microbatch_tokens num_threads num_train_epochs output_dir "
    "program_seconds report_to resume_from_checkpoint rollout_batch_size save_steps "
    "save_total_limit shard_within_nodes top_p trust_remote_code verify_seconds "
    "vllm_enable_sleep_mode "
    "vllm_gpu_memory_utilization vllm_tensor_parallel_size".split()
)


def is_allowed(name, value, marks):
    """Whether a flag with these marks may have this number."""
    try:
        check_number(name, value, marks)
    except UserError as error:
        assert f"--{name} must be" in str(error)
        return False
    return True


@pytest.mark.parametrize("script", SCRIPTS)
def test_which_numbers_may_be_zero_or_negative(script):
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
        for value in (math.nan, math.inf, -math.inf):
            assert not is_allowed(name, value, marks[name]), name


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

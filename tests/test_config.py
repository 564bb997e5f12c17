"""What is refused before a model is loaded: one line a refusal; and what may change in a run."""

import importlib
import math
import re
from dataclasses import fields
from datetime import timedelta

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config, check_number
from rlvr.machine import ranks
from rlvr.rollout import turns
from rlvr.tasks import problems
from rlvr.training import run
from rlvr.verify.pool import grade

import baselines
import pytest
from runs import SCRIPTS

import common

# The line that refuses these names the first flag. Those of all scripts are tried with grpo.py.
REFUSED = """
grpo --bogus
grpo --max_steps
grpo --fsdp no
grpo --temperature 0
grpo --learning_rate=-1
grpo --top_p 1.5
grpo --num_generations 1
grpo --numbers 3,5 --model weak
grpo --columns a,b,c,d --dataset own.jsonl
grpo --chat_template_kwargs []
grpo --minibatch_size 100
grpo --eval_problems 0
fade --ema_beta 1
fade --alpha_max 0.5
baselines --advantage none
baselines --alpha=-1.5 --advantage scaled_power
baselines --scale 0 --advantage ha_dw
baselines --ema_beta 0.5 --advantage mean
baselines --format_share 0.5 --advantage grpo_lead
baselines --no_scale_rewards --advantage w_reinforce
baselines --clip_cov_fraction 0.5
baselines --negatives_only --advantage maxrl
baselines --equalize_learning_rate --advantage t2t --alpha 0.2
baselines --equalize_learning_rate --advantage rloo
baselines --log_schedule --advantage asym
baselines --log_schedule --advantage power --alpha 2
fade --alpha_from_entropy --target_entropy 0
cwgrpo --minibatch_size 8
cwgrpo --importance_sampling_level sequence
cwgrpo --temperature 0
grpo --verifier math
grpo --columns prompt,answer --dataset math --eval_dataset math500
grpo --numbers 4 --dataset own.jsonl --model weak
grpo --no_tie_word_embeddings --model folder
grpo --vllm_tensor_parallel_size 2 --engine hf
grpo --temperature 0.4 --max_steps 0
agrae --alpha 1 --max_steps 0
"""
TAKEN = """
grpo --learning_rate 0
grpo --eval_problems 1
grpo --numbers 4 --model weak
grpo --max_steps 0 --model gpt2 --variant gspo --tool calculator --eval_steps 1
grpo --numbers 4 --dataset own.jsonl
grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl
grpo --model weak --no_tie_word_embeddings
grpo --eval_problems 0 --eval_samples 10000 --dataset gsm8k
baselines --advantage_beta 3 --advantage negative_dominant
baselines --no_scale_rewards --advantage hard_focused
"""

# Every default. A star: a resumed run may have another value.
DEFAULTS = """
model tiny | tie_word_embeddings True | dataset countdown | numbers 3
columns prompt,answer | verifier math | system_prompt auto | user_suffix none
chat_template_kwargs '' | max_prompt_length 1024 | seed 0 | max_steps* 60
output_dir '' | num_threads* None | log_tokens* 1 | report_to* none
prompts_per_step 32 | num_generations 16 | temperature 1.0 | max_completion_length 48 | tool none
dynamic_sampling False | engine auto | rollout_batch_size* 512 | vllm_gpu_memory_utilization* 0.3
vllm_tensor_parallel_size* 1 | vllm_importance_sampling_cap None
learning_rate 0.0001 | lr_scheduler_type constant | warmup_ratio 0.0 | minibatch_size 256
num_iterations 1 | epsilon 0.2 | epsilon_high None | importance_sampling_level token
aggregation sequence | beta 0.0 | entropy_coef 0.0 | mask_truncated_completions False
eval_dataset* '' | eval_steps* 20 | eval_problems 128 | eval_samples* 16
eval_temperature* 1.0 | eval_max_completion_length* 0 | top_p* 1.0 | microbatch_tokens* 4096
gradient_checkpointing* False | bf16 None | device* auto | compile* False | fsdp* full_shard
save_steps* None | save_total_limit* 0 | resume_from_checkpoint* ''
"""
OWN_DEFAULTS = {
    "grpo": "variant grpo | scale_rewards True | negatives_only False",
    "agrae": """variant agrae | scale_rewards True | alpha 1.0 | sample_level True
        group_level True | format_share 0.0""",
    "asymgrpo": """variant asymgrpo | aggregation token | beta_pos 0.9 | beta_neg 0.4 | flip none
        log_gain False""",
    "fade": """variant fade | aggregation constant | target_entropy None
        ema_beta 0.02 | alpha_max 3.0 | alpha_from_entropy False | batch_mean False
        equalize_learning_rate False""",
    "cwgrpo": """variant cwgrpo | scale_rewards True | means tokens
        padded_sum False | detach_weights True | format_weight 0.0 | format_tags think_answer""",
    "baselines": """variant grpo | scale_rewards True | negatives_only False | advantage grpo
        loss ppo_clip | token none | importance truncated | k None | alpha None | delta None
        alpha_s None | alpha_f None | tau None | gamma None | scale None | advantage_beta None
        success_weight None | ema_beta 0.02 | clip_cov_fraction 0.0002 | overlong_cache 0
        format_share 0.0 | format_weight 0.0 | format_tags think_answer | batch_mean False
        equalize_learning_rate False | log_schedule False | kl_cov_fraction 0.0002
        off_policy_mask_threshold None | top_entropy_quantile 0.2 | use_bias_correction_kl False""",
}


def table(text):
    """Name -> the default in letters, of entries that lines and bars divide."""
    entries = [entry.split() for entry in re.split(r"\||\n", text.strip())]
    return {name: default.strip("'") for name, default in entries}


@pytest.mark.parametrize("script", OWN_DEFAULTS)
def test_every_default_and_what_a_resumed_run_may_change(script):
    config = importlib.import_module(script).Config()
    found = {
        field.name + "*" * config.may_change(field.name): str(field.default)
        for field in fields(config)
    }
    assert found == table(DEFAULTS) | table(OWN_DEFAULTS[script])


def test_numbers_that_are_no_flags():
    assert (common.MAX_REDRAWS, problems.SUCCESS, turns.MAX_TURNS) == (3, 1.0, 8)
    assert (run.MAX_GRAD_NORM, run.MAX_SKIPPED_UPDATES) == (1.0, 10)
    assert ranks.TIMEOUT == timedelta(hours=2)
    assert grade.__defaults__ == (5.0, 20.0)  # seconds of a question, and of all tests of a program


@pytest.fixture
def message(parsed, capsys, tmp_path):
    """message("grpo --bogus") -> the one line that refuses it."""
    (tmp_path / "own.jsonl").touch()

    def refuse(line):
        script, *given = line.split()
        with pytest.raises(SystemExit) as ended:
            parsed(script, *given)
        assert ended.value.code == 2
        out, written = capsys.readouterr()
        assert out == "" and written.count("\n") == 1
        return written

    return refuse


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_work_is_refused_in_one_line(message, line):
    flag = line.split()[1].partition("=")[0]
    assert flag.replace("--no_", "--") in message(line)


@pytest.mark.parametrize(
    "line, said",
    [
        ("grpo --bf16 true", "no such flag: true"),
        ("grpo --max_step 3", "no such flag: --max_step 3; perhaps you meant --max_steps"),
        ("grpo --learning_rate -1e-4", "--learning_rate must be at least 0, got -0.0001"),
        ("grpo --seed -inf", "--seed: invalid int value: '-inf'"),
        ("grpo --seed -3", "--seed must be at least 0, got -3"),
        ("grpo --epsilon -.5", "--epsilon must be above 0, got -0.5"),
        ("grpo --numbers 2", "--numbers 2: no shipped policy was taught such problems"),
        ("grpo --model ./nope", "--model ./nope: there is no such folder"),
        ("grpo --model runs/a/b", "--model runs/a/b: there is no such folder"),
        ("grpo --resume_from_checkpoint latest", "grpo.py has no run in runs/"),
        (
            "grpo --dataset gsm9k --eval_dataset math",
            "'gsm9k' is neither a file nor one of the data sets gsm8k, math",
        ),
        ("grpo --eval_dataset math,none.jsonl", "'none.jsonl' is neither a file"),
        ("baselines --advantage mix_pass_k", "--advantage mix_pass_k needs --k"),
        ("baselines --k 4", "--k is not for --advantage grpo"),
        ("baselines --advantage mix_pass_k --k 20", "number from 1 to G = 16, got 20"),
        ("baselines --advantage power_norm --gamma 99", "some advantages are no finite numbers"),
        ("baselines --advantage asym_power --alpha_s 9999 --alpha_f 9999", "all advantages are 0"),
        (
            "baselines --advantage positive_dominant --gamma 2",
            "--gamma is for --advantage power_norm or",
        ),
        ("baselines --advantage ha_dw --ema_beta 1.5", "--ema_beta must be at most 1"),
        ("baselines --token clip_cov --minibatch_size 8", "must hold whole groups"),
        ("baselines --token high_entropy --minibatch_size 8", "must hold whole groups"),
        ("baselines --loss cispo --variant gspo", "sequence is for --loss ppo_clip"),
        ("baselines --use_bias_correction_kl", "--use_bias_correction_kl needs --beta"),
    ],
)
def test_the_line_says_what_is_wrong(message, line, said):
    assert said in message(line)


@pytest.mark.parametrize(
    "ranks, line",
    [
        (3, "grpo --prompts_per_step 32 --minibatch_size 64"),
        (3, "grpo --minibatch_size 160 --prompts_per_step 30 --num_generations 16"),
        (2, "grpo --eval_problems 1"),
        (4, "grpo --vllm_tensor_parallel_size 3"),
        (2, "cwgrpo --minibatch_size 16"),
        (2, "baselines --minibatch_size 16 --token clip_cov"),
    ],
)
def test_what_several_ranks_cannot_share(message, monkeypatch, ranks, line):
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    assert line.split()[1] in message(line)


@pytest.mark.parametrize("line", TAKEN.strip().splitlines())
def test_what_can_work_is_taken(parsed, tmp_path, line):
    (tmp_path / "own.jsonl").touch()
    parsed(*line.split())


def test_vllm_has_to_be_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: "found")
    Config(engine="vllm").check()
    assert [Config().uses_vllm(gpu) for gpu in (True, False)] == [True, False]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not Config().uses_vllm(gpu=True)
    with pytest.raises(UserError, match="vLLM is not installed"):
        Config(engine="vllm").check()


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_number_is_negative_nan_or_infinite(script):
    for field in fields(importlib.import_module(script).Config):
        for value in (-1.0, math.nan, math.inf, 2**31):
            with pytest.raises(UserError, match=f"--{field.name} must be"):
                check_number(field.name, value, field.metadata)


def test_the_length_of_a_scheduled_run_may_not_change():
    assert Config().may_change("max_steps") and not Config().may_change("seed")
    scheduled = [Config(lr_scheduler_type="cosine"), Config(warmup_ratio=0.1)]
    scheduled.append(baselines.Config(advantage="power", log_schedule=True))
    assert not any(config.may_change("max_steps") for config in scheduled)


def test_eval_names_and_the_longest_sequence():
    """The training set, unless others are named; each once, in their order."""
    assert Config(dataset="gsm8k").eval_names == ["gsm8k"]
    assert Config(eval_dataset="math,gsm8k,math").eval_names == ["math", "gsm8k"]
    config = Config(max_prompt_length=10, max_completion_length=7)
    assert config.longest == 17
    config.eval_max_completion_length = 20
    assert config.longest == 30

"""What is refused before a model is loaded: one line a refusal; and what may change in a run."""

import importlib
import math
from dataclasses import fields

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config, check_number

import pytest
from runs import SCRIPTS

import fade

# The line that refuses these names the first flag. Those of all scripts are tried with grpo.py.
REFUSED = """
grpo --bogus
grpo stray
grpo --max_steps
grpo --max_steps 1.5
grpo --max_steps 3 --num_train_epochs 1
grpo --fsdp no
grpo --no_fsdp=true
grpo --eval_protocol best
grpo --temperature 0
grpo --learning_rate=-1
grpo --top_p 1.5
grpo --num_generations 1
grpo --numbers 5
grpo --columns a,b,c,d --dataset own.jsonl
grpo --chat_template_kwargs []
grpo --minibatch_size 100
grpo --eval_problems 0
grpo --sft_steps 400 --model weak
fade --ema_beta 1
fade --alpha_max 0.5
baselines --advantage none
baselines --advantage t2t
baselines --alpha 2
baselines --k 4 --advantage power
baselines --alpha_s=-1 --alpha_f 1 --advantage asym_power
baselines --advantage asym_power --alpha_s 1
baselines --alpha=-1.5 --advantage scaled_power
baselines --advantage analytic_pass_k --k 20
baselines --scale 0 --advantage ha_dw
baselines --ema_beta 0.5 --advantage mean
baselines --format_share 0.5 --advantage grpo_lead
baselines --scale_rewards false --advantage w_reinforce
baselines --clip_cov_fraction 0.5
baselines --token clip_cov --minibatch_size 8
baselines --negatives_only --advantage maxrl
baselines --equalize_learning_rate --advantage t2t --alpha 0.2
baselines --equalize_learning_rate --advantage rloo
fade --ema_beta 0.5 --log_schedule
fade --alpha_from_entropy --target_entropy 0
agrae --mean_reward --dynamic_sampling
cwgrpo --minibatch_size 8
cwgrpo --importance_sampling_level sequence
grpo --verifier math
grpo --columns prompt,answer --dataset math --eval_dataset math500
grpo --numbers 4 --dataset own.jsonl
grpo --tie_word_embeddings false --model folder
grpo --vllm_enable_sleep_mode --engine hf
grpo --temperature 0.4 --max_steps 0
cwgrpo --means own --no_weigh_tokens
agrae --alpha 1 --max_steps 0
"""
TAKEN = """
grpo --learning_rate 0
grpo --max_steps 0 --model gpt2 --variant gspo --tool calculator --eval_steps 1
grpo --numbers 4 --dataset gsm8k --eval_dataset countdown
grpo --numbers 2,3,4 --dataset own.jsonl --sft_steps 0
grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl
grpo --model weak --tie_word_embeddings false
grpo --eval_problems 0 --eval_samples 10000 --dataset gsm8k
grpo --epsilon_high 0.28 --top_p 1 --minibatch_size 512
grpo --vllm_enable_sleep_mode --engine auto
baselines --advantage_beta 3 --advantage negative_dominant
baselines --no_scale_rewards --advantage hard_focused
baselines --variant dr-grpo --advantage rloo --overlong_cache 4 --format_weight 1
cwgrpo --importance_sampling_level sequence --no_weigh_tokens
"""


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
    assert line.split()[1].partition("=")[0] in message(line)


@pytest.mark.parametrize(
    "line, said",
    [
        ("grpo --max-step 3", "no such flag: --max-step 3; perhaps you meant --max_steps"),
        ("grpo --learning_rate -1e-4", "--learning_rate must be at least 0, got -0.0001"),
        ("grpo --seed -3", "--seed must be at least 0, got -3"),
        ("grpo --epsilon -.5", "--epsilon must be above 0, got -0.5"),
        ("grpo --model ./nope", "--model ./nope: there is no such folder"),
        ("grpo --resume_from_checkpoint latest", "grpo.py has no run in runs/ to resume"),
        ("grpo --dataset gsm9k", "'gsm9k' is no file and none of the data sets gsm8k, math"),
        ("grpo --eval_dataset math,none.jsonl", "'none.jsonl' is no file"),
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
    ],
)
def test_what_several_ranks_cannot_share(message, monkeypatch, ranks, line):
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    assert line.split()[1] in message(line)


@pytest.mark.parametrize("line", TAKEN.strip().splitlines())
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


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_number_is_negative_nan_or_infinite(script):
    for field in fields(importlib.import_module(script).Config):
        for value in (-1.0, math.nan, math.inf, 2**31):
            with pytest.raises(UserError, match=f"--{field.name} must be"):
                check_number(field.name, value, field.metadata)


def test_the_length_of_a_scheduled_run_may_not_change():
    assert Config().may_change("max_steps") and not Config().may_change("seed")
    scheduled = [Config(lr_scheduler_type="cosine"), Config(warmup_ratio=0.1)]
    scheduled.append(fade.Config(log_schedule=True))
    assert not any(config.may_change("max_steps") for config in scheduled)


def test_eval_names_and_the_longest_sequence():
    """The training set, unless others are named; each once, in their order."""
    assert Config(dataset="gsm8k").eval_names == ["gsm8k"]
    assert Config(eval_dataset="math,gsm8k,math").eval_names == ["math", "gsm8k"]
    config = Config(max_prompt_length=10, max_completion_length=7)
    assert config.longest == 17
    config.eval_max_completion_length = 20
    assert config.longest == 30

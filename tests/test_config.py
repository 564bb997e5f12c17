"""What is refused before a model is loaded: one line a refusal; and what may change in a run."""

import importlib
import math

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config, check_number, marks_of

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
grpo --base best
grpo --temperature 0
grpo --learning_rate=-1
grpo --top_p 1.5
grpo --num_generations 1
grpo --numbers 5
grpo --arithmetic_levels 5 --dataset arithmetic
grpo --chat_template_kwargs []
grpo --minibatch_size 100
grpo --eval_problems 0
grpo --base weak --sft_steps 400
fade --ema_beta 1
fade --alpha_max 0.5
fade --weight none
fade --weight t2t
fade --weight_args alpha=2
fade --weight_args k --weight power
fade --weight_args alpha_s=-1,alpha_f=1 --weight asym_power
fade --weight_args alpha=-1.5 --weight scaled_power
fade --weight_args scale=0 --weight ha_dw
fade --equalize_learning_rate --weight t2t --weight_args alpha=0.2
fade --alpha_from_entropy --target_entropy 0
agrae --mean_reward --dynamic_sampling
agrae --format_share 0.5 --method grpo_lead
agrae --no_scale_rewards --method w_reinforce
cwgrpo --minibatch_size 8
cwgrpo --importance_sampling_level sequence
grpo --verifier math
grpo --prompt_column prompt --dataset math --eval_dataset math500
grpo --numbers 4 --dataset own.jsonl
grpo --exchanged_targets 0.5
grpo --max_redraws 3
grpo --temperature 0.4 --max_steps 0
agrae --alpha 1 --method none
agrae --alpha 1 --max_steps 0
"""
TAKEN = """
grpo --learning_rate 0 --success_threshold=-0.5
grpo --max_steps 0 --model gpt2 --variant gspo --max_turns 8 --tool calculator --eval_steps 1
grpo --numbers 4 --dataset gsm8k --eval_dataset countdown
grpo --numbers 2,3,4 --dataset own.jsonl --sft_steps 0 --exchanged_targets 1
grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl
grpo --base weak --tie_word_embeddings false
grpo --eval_problems 0 --eval_samples 10000 --dataset gsm8k
grpo --epsilon_high 0.28 --top_p 1 --minibatch_size 512
grpo --vllm_enable_sleep_mode --engine auto
agrae --control_beta 3 --method negative_dominant
cwgrpo --importance_sampling_level sequence --method none
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
    for name, marks in marks_of(importlib.import_module(script).Config).items():
        below = [] if name == "success_threshold" else [-1.0]
        for value in (*below, math.nan, math.inf, 2**31):
            with pytest.raises(UserError, match=f"--{name} must be"):
                check_number(name, value, marks)


def test_the_length_of_a_scheduled_run_may_not_change():
    assert Config().may_change("max_steps") and not Config().may_change("seed")
    scheduled = [Config(lr_scheduler_type="cosine"), Config(warmup_ratio=0.1)]
    scheduled.append(fade.Config(weight="log_schedule"))
    assert not any(config.may_change("max_steps") for config in scheduled)


def test_eval_names_and_the_longest_sequence():
    """The training set, unless others are named; each once, in their order."""
    assert Config(dataset="gsm8k").eval_names == ["gsm8k"]
    assert Config(eval_dataset="math,gsm8k,math").eval_names == ["math", "gsm8k"]
    config = Config(max_prompt_length=10, max_completion_length=7)
    assert config.longest == 17
    config.eval_max_completion_length = 20
    assert config.longest == 30

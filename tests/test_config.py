"""The command line: what is refused before a model is loaded, defaults, --help, resumed runs."""

import importlib
import json
import os
import re
import sys
import time
from dataclasses import asdict, fields, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.command_line import ARITHMETIC, LARGE, parse
from rlvr.flags.config import Config, flag
from rlvr.rollout import vllm_sampler
from rlvr.training.checkpoints import save_folder

import pytest
import torch
from local_sets import write
from runs import SCRIPTS, arguments, module_of, refused

import common
import grpo
from studies.baselines import baselines

# Behind :: stands what the line that refuses it says, else the name of the first flag. What all
# scripts share is tried with grpo.py.
REFUSED = """
grpo --compile True :: no such flag: True; a switch takes no value: --NAME
grpo --to calculator :: no such flag: --to calculator; perhaps you meant --tool
grpo --lr 1e-4 :: perhaps you meant --learning_rate
grpo --model midle :: --model midle: did you mean middle? Shipped are
cwgrpo --epsilon 20 :: --epsilon must be at most 1
grpo --beta nan :: --beta must be a number below 2^31, got nan
grpo --seed 2147483648 :: --seed must be a number below 2^31
fade --learning_rate -1e-4 :: --learning_rate must be at least 0, got -0.0001
grpo --reward_noise 0.2,1.5 :: --reward_noise takes two rates from 0 to 1
grpo --numbers 2 :: teach one by python studies/papers/make_bases.py weak --numbers 2 --out
grpo --numbers 3,5 --model weak :: --numbers takes 2, 3, 4, separated
grpo --numbers 4 --dataset own.jsonl --model weak :: is for --dataset countdown or --model tiny
grpo --columns a,b,c,d --dataset own.jsonl :: --columns takes 2 to 3 names
grpo --columns prompt --dataset own.jsonl
grpo --columns prompt,answer --dataset math --eval_dataset math500 :: is for --dataset FILE
grpo --chat_template_kwargs {x :: takes a JSON object, such as {"enable_thinking": false}, got {x
grpo --num_generations 4 :: --minibatch_size 256 must divide the 128 completions of a step
grpo --eval_problems 0 --eval_dataset gsm8k,arithmetic :: all of a data set; arithmetic has no end
grpo --verifier math :: --verifier is for --dataset FILE
grpo --verifier maths --dataset own.jsonl :: no verifier 'maths'; there are countdown, math
grpo --system_prompt thinks :: is no file, and no text of several words; the names are think
grpo --model ./own.jsonl :: --model ./own.jsonl: there is no such folder
grpo --model runs/a/b :: --model runs/a/b: there is no such folder
grpo --resume_from_checkpoint latest :: grpo.py has no run in runs/
grpo --no_tie_word_embeddings --model folder :: --tie_word_embeddings is for --model tiny or weak
grpo --vllm_gpu_memory_utilization 0.5 --engine hf :: is for --engine auto or vllm
grpo --dataset gsm9k --eval_dataset math :: 'gsm9k' is neither a file nor one of the data sets gsm8k
grpo --eval_dataset arc,none :: livecodebench-v6, countdown, arithmetic, arithmetic-2
3 ranks: grpo --prompts_per_step 32 --minibatch_size 64 :: 3 ranks must divide --prompts_per_step
3 ranks: grpo --minibatch_size 160 --prompts_per_step 30 --num_generations 16
2 ranks: grpo --eval_problems 1 :: must be at least one per rank
fade --alpha_from_entropy --target_entropy 0
cwgrpo --minibatch_size 8
2 ranks: cwgrpo --minibatch_size 16
cwgrpo --importance_sampling_level sequence
baselines --advantage mix_pass_k :: --advantage mix_pass_k needs --k
baselines --advantage mix_pass_k --k 20 :: number from 1 to G = 16, got 20
baselines --k 4 :: --k is not for --advantage grpo
baselines --advantage power_norm --gamma 99 :: all advantages are 0, or one is infinite
baselines --teacher strong --advantage maxrl :: --teacher gives each token's advantage
baselines --teacher strong --no_scale_rewards :: nothing reads --scale_rewards
baselines --teacher strong --format_weight 1 :: nothing reads --format_weight
baselines --format_tags think :: --format_tags needs --format_weight
baselines --kl_cov_fraction 0.1
baselines --loss dro --epsilon 0.3 :: --epsilon is for --loss ppo_clip or cispo or dppo or up
baselines --loss up --epsilon_high 0.3 :: --epsilon_high is for --loss ppo_clip or cispo or dppo
baselines --staleness -1 :: --staleness must be at least 0
baselines --format_share 0.5 --advantage grpo_lead
baselines --no_scale_rewards --advantage w_reinforce :: --scale_rewards
baselines --token clip_cov --minibatch_size 8 :: must hold whole groups
2 ranks: baselines --minibatch_size 16 --token clip_cov
baselines --loss cispo --variant gspo :: sequence is for --loss ppo_clip
baselines --use_bias_correction_kl :: --use_bias_correction_kl needs --beta
baselines --equalize_learning_rate --advantage t2t --alpha 0.2
baselines --equalize_learning_rate --advantage grpo_lead
baselines --log_schedule --advantage asym
baselines --log_schedule --advantage power --delta 0.5
"""
TAKEN = """
grpo --eval_problems 2
grpo --numbers 2,3,4 --model weak
grpo --numbers 4 --dataset own.jsonl
grpo --verifier math --dataset gsm8k --eval_dataset own.jsonl
grpo --verifier own.jsonl:score
grpo --verifier own.jsonl:score --dataset own.jsonl --columns prompt
grpo --model weak --no_tie_word_embeddings
baselines --advantage_beta 3 --advantage negative_dominant
baselines --no_scale_rewards --advantage hard_focused
"""

# Every default and limit. A star: a resumed run may have another value.
DEFAULTS = """
model tiny | tie_word_embeddings True | dataset countdown | numbers 3 | columns prompt,answer
verifier math | system_prompt auto | user_suffix none | chat_template_kwargs ''
max_prompt_length 1024 | seed 0 ≥0 | max_steps* 60 ≥0 | output_dir '' | num_threads* None
log_tokens* 1 ≥0 | report_to* none | prompts_per_step 32 | num_generations 16 ≥2
temperature 1.0 | max_completion_length 48 | reward_noise '' | tool none | dynamic_sampling False
engine auto | decode_batch_size* 512 | vllm_gpu_memory_utilization* 0.3 ≤1
vllm_importance_sampling_cap None ≥0 | minibatch_size 256 | learning_rate 0.0001 ≥0
weight_decay 0.0 ≥0 | max_grad_norm 1.0
lr_scheduler_type constant | warmup_ratio 0.0 ≥0 ≤1 | num_iterations 1 | epsilon 0.2 ≤1
epsilon_high None | importance_sampling_level token | aggregation sequence | beta 0.0 ≥0
entropy_coef 0.0 ≥0 | mask_truncated_completions False | eval_dataset* '' | eval_steps* 20
eval_problems 128 ≥0 | eval_samples* 16 | eval_temperature* 1.0 | eval_max_completion_length* 0 ≥0
top_p* 1.0 ≤1 | microbatch_tokens* 4096 | gradient_checkpointing* False | precision auto
device* auto | compile* False | fsdp* full_shard | save_steps* None | save_total_limit* 0 ≥0
resume_from_checkpoint* ''
"""
OWN_DEFAULTS = {
    "grpo": "variant grpo | scale_rewards True | negatives_only False",
    "agrae": """variant agrae | scale_rewards True | alpha 1.0 ≤1 | sample_level True
        group_level True | format_share 0.0 ≥0 ≤1""",
    "asymgrpo": """variant asymgrpo | aggregation token | beta_pos 0.9 ≥0 | beta_neg 0.4 ≥0
        flip none | log_gain False""",
    "fade": """variant fade | aggregation constant | target_entropy None ≥0
        ema_beta 0.02 ≥0 ≤0.999 | alpha_max 3.0 ≥1 | alpha_from_entropy False | batch_mean False
        equalize_learning_rate False""",
    "cwgrpo": """variant cwgrpo | scale_rewards True | means tokens
        padded_sum False | detach_weights True | format_weight 0.0 ≥0 | format_tags think_answer""",
}


def flags_of(config):
    """The fields that are flags: all but `typed`."""
    return [field for field in fields(config) if field.init]


def flags(config):
    return {field.name: getattr(config, field.name) for field in flags_of(config)}


def table(text):
    entries = [entry.split() for entry in re.split(r"\||\n", text.strip())]
    return {name: [default.strip("'"), *limits] for name, default, *limits in entries}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_default_and_limit_and_what_a_resumed_run_may_change(script):
    config = module_of(script).Config()
    found = {}
    for field in flags_of(config):
        limits = {"≥": field.metadata["ge"], "≤": field.metadata["le"]}
        limits = [f"{sign}{limit}" for sign, limit in limits.items() if limit is not None]
        star = "*" * config.may_change(field.name)
        found[field.name + star] = [str(field.default), *limits]
    assert found == table(DEFAULTS) | table(OWN_DEFAULTS[script])


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_work_is_refused_in_one_line(parsed, capsys, monkeypatch, tmp_path, line):
    (tmp_path / "own.jsonl").touch()
    ranks, _, command = line.rpartition(" ranks: ")
    command, _, said = command.partition(" :: ")
    monkeypatch.setattr(world, "WORLD_SIZE", int(ranks or 1))
    monkeypatch.setattr(world, "LOCAL_RANK", int(ranks or 1) - 1)
    sleep = Mock()  # of all but the first rank, so that one line is shown
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(SystemExit) as ended:
        parsed(*command.split())
    assert sleep.called == (world.LOCAL_RANK > 0)
    out, written = capsys.readouterr()
    assert (ended.value.code, out, written.count("\n")) == (2, "", 1)
    assert (said or command.split()[1]) in written


@pytest.mark.parametrize("line", TAKEN.strip().splitlines())
def test_what_can_work_is_taken(parsed, monkeypatch, tmp_path, line):
    (tmp_path / "own.jsonl").touch()
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    parsed(*line.split())


def test_vllm_is_taken_on_a_gpu_where_it_is_installed(monkeypatch, capsys):
    """A run on a GPU without it is told so, unless --engine hf asks for that."""
    for name in ("Sampler", "VllmSampler"):
        monkeypatch.setattr(vllm_sampler, name, lambda *given, name=name: (name, *given))
    for found, kind, engine, name, told in (
        ("found", "cuda", "auto", "VllmSampler", 0),
        ("found", "cpu", "auto", "Sampler", 0),
        (None, "cuda", "auto", "Sampler", 1),
        (None, "cuda", "hf", "Sampler", 0),
        (None, "cpu", "auto", "Sampler", 0),
    ):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=found: found)
        policy = SimpleNamespace(device=torch.device(kind))
        given = policy, "tokenizer", Config(engine=engine), common.decode
        assert vllm_sampler.make_sampler(*given) == (name, *given)
        assert capsys.readouterr().out.count("pip install vllm") == told
    with pytest.raises(UserError, match="vLLM is not installed"):
        Config(engine="vllm").check()


def test_the_length_of_a_scheduled_run_may_not_change():
    scheduled = [Config(lr_scheduler_type="cosine"), Config(warmup_ratio=0.1)]
    scheduled.append(baselines.Config(advantage="power", log_schedule=True))
    assert not any(config.may_change("max_steps") for config in scheduled)


def test_help_shows_the_values_in_force(parsed, capsys):
    """Also beside a mistake, which may be why somebody asks."""
    for line, learning_rate, high in (
        ("--learning_rate", "(0.0001)", "None: epsilon "),
        ("--dataset gsm8k --variant dapo", "(1e-06)", "None: epsilon (0.28)"),
        ("--dataset gsm8k --learning_rate 3e-6", "(3e-06)", "None: epsilon "),
    ):
        with pytest.raises(SystemExit):
            parsed("grpo", "--help", *line.split())
        out = " ".join(capsys.readouterr().out.split())
        assert f"a schedule scales it {learning_rate} --" in out and high in out
        assert "or not [full_shard, no_shard] (full_shard)" in out
        # the script's own flags come first
        assert out.index("--negatives_only") < out.index("--model")


def test_a_field_of_ones_own(capsys):
    own = make_dataclass("Own", [("x", float, flag(0.5, "share of 100%"))], bases=(Config,))
    with pytest.raises(SystemExit):
        parse(own, ["--help"])
    assert "share of 100% (0.5)" in capsys.readouterr().out
    plain = make_dataclass("Plain", [("x", float, 0.5)], bases=(Config,))
    with pytest.raises(UserError, match="Config.x must be made by flag"):
        parse(plain, [])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_preset_sets_its_flags_and_leaves_the_others(parsed, script):
    plain = flags(parsed(script))
    with pytest.raises(SystemExit):
        parsed(script, "--variant", "none")
    for name, preset in importlib.import_module(script).VARIANTS.items():
        assert flags(parsed(script, "--variant", name)) == plain | preset | dict(variant=name)


@pytest.mark.parametrize(
    "line, others",
    [
        # a local model may be as small as the tiny one
        *((line, {}) for line in ("", "--model folder", "--model weak")),
        ("--model Qwen/Qwen2.5-0.5B", LARGE),
        ("--eval_dataset countdown,math500", LARGE),
        ("--model HuggingFaceTB/SmolLM2-135M-Instruct --dataset arithmetic", LARGE | ARITHMETIC),
        ("--dataset gsm8k --eval_dataset countdown --learning_rate 3e-6", LARGE),
    ],
)
def test_which_defaults_count(parsed, tmp_path, line, others):
    (tmp_path / "folder").mkdir()
    small, given = flags(parsed("grpo")), parse(grpo.Config, line.split())
    found = parsed("grpo", *line.split())
    assert (flags(found), found.typed) == (small | others | given, given)


def test_a_resumed_run_keeps_its_flags(parsed, capsys):
    """Those that are given win over the presets, and these over the run's."""
    config = parsed("grpo", "--variant", "dapo", "--epsilon_high", "0.3", "--seed", "3")
    saved = {"script": "grpo.py", **asdict(config)}
    Path("run").mkdir()

    def resumed(line="", of="grpo", **changed):
        found = {name: value for name, value in (saved | changed).items() if value != "absent"}
        Path("run/config.json").write_text(json.dumps(found))
        return parsed(of, "--resume_from_checkpoint", "run", *line.split())

    def refusal(*given, **changed):
        with pytest.raises(SystemExit):
            resumed(*given, **changed)
        written = capsys.readouterr().err
        assert written.count("\n") == 1
        return written

    assert "run is grpo.py's run, and this is agrae.py" in refusal(of="agrae")
    assert "--max_steps 0 evaluates only" in refusal("--max_steps 0")
    assert "--seed 4 (was 3)" in refusal("--seed 4")
    assert "--aggregation sequence (was token)" in refusal("--aggregation sequence")
    assert "--aggregation constant (was token)" in refusal("--variant dr-grpo")
    # a copy of a script has its flags, and perhaps another formula
    assert "run is mine.py's run" in refusal(script="mine.py")
    assert "another version: top_p, top_q, top_r" in refusal(top_p="absent", top_r=1, top_q=1)
    found = resumed("--max_steps 2 --eval_samples 3")
    assert (found.epsilon_high, found.aggregation, found.seed) == (0.3, "token", 3)
    assert (found.max_steps, found.eval_samples) == (2, 3)
    Path("runs").mkdir()
    Path("run").rename("runs/my own")
    found = parsed("grpo", "--resume_from_checkpoint", "latest")
    assert found.resume_from_checkpoint == "runs/my own"  # what is the latest now
    Path("runs/my own/checkpoint-1").mkdir()
    capsys.readouterr()
    model = "runs/my own/checkpoint-1"
    told = f"--model {model}: its run had --numbers 3, unlike this one\n"
    for numbers in ("3", "4"):
        parsed("grpo", "--model", model, "--numbers", numbers)
        assert capsys.readouterr().out == told * (numbers == "4")


UNUSABLE = """--output_dir file
--output_dir model :: holds a run or a model; choose another, or --resume_from_checkpoint model
--model nobody/no-such-model :: ; without a network, leave --model out
--model empty
--report_to wandb
--resume_from_checkpoint broken"""


@pytest.mark.parametrize("line", UNUSABLE.splitlines())
def test_what_is_refused_before_a_model_is_loaded(bare, monkeypatch, line):
    """It leaves no files behind."""
    monkeypatch.setitem(sys.modules, "wandb", None)  # to import it is an ImportError then
    load = Mock()
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", load)
    Path("empty").mkdir()
    for file, text in (("file", b""), ("broken/config.json", b"{"), ("model/config.json", b"{}")):
        write(Path(file), text)
    before = {*Path().rglob("*")}
    given, _, said = line.partition(" :: ")
    assert refused(bare("grpo", *given.split()), "grpo", given.split()[1], said)
    assert {*Path().rglob("*")} == before and not load.called


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_model(bare, tiny, name):
    save_folder(Path("model"), *tiny)
    os.truncate(Path("model", name), 100)
    result = bare("grpo", *arguments(model="model", max_steps=0, output_dir="run"))
    assert refused(result, "grpo", "--model model")

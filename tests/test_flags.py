"""The command line: --help, presets, the flags of a resumed run, models that cannot be loaded."""

import importlib
import json
import os
import re
import sys
from dataclasses import asdict, fields
from pathlib import Path

from rlvr.flags.command_line import ARITHMETIC, LARGE, parse
from rlvr.flags.config import Config
from rlvr.training.checkpoints import save_folder

import pytest
from runs import SCRIPTS, arguments, refused

import grpo


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_explains_every_flag_on_two_screens(parsed, monkeypatch, capsys, script):
    """Its help and its default stand behind it. The script's own flags come first."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parsed(script, "--help")
    out, _ = capsys.readouterr()
    assert out.count("\n") <= 120
    _, *parts = re.split(r"^  --(\w+)", out, flags=re.M)
    texts = [" ".join(text.split()) for text in parts[1::2]]
    explained = dict(zip(parts[::2], texts, strict=True))
    config_class = importlib.import_module(script).Config
    own = [*config_class.__annotations__]
    assert {*parts[: 2 * len(own) : 2]} == {*own}
    assert {*explained} == {field.name for field in fields(config_class)}
    for field in fields(config_class):
        default = f" ({field.default})" if field.default not in (None, "") else ""
        assert len(explained[field.name].replace(default, "")) > 3, field.name
        assert default in explained[field.name]
    assert explained["seed"] == "for data order, sampling and evaluation (0)"
    assert "or not [full_shard, no_shard] (full_shard)" in explained["fsdp"]
    assert len(fields(Config)) <= 60


def test_ways_to_give_a_boolean(parsed):
    for typed, expected in [
        ("--no_dynamic_sampling", False),
        ("--dynamic_sampling --seed 3", True),
        ("--no_dynamic_sampling --dynamic_sampling", True),  # the last one counts
    ]:
        for variant in ("grpo", "dapo"):  # whose own value is false, and true
            config = parsed("grpo", "--variant", variant, *typed.split())
            assert config.dynamic_sampling is expected


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_preset_sets_its_flags_and_leaves_the_others(parsed, script):
    plain = asdict(parsed(script))
    for name, preset in importlib.import_module(script).VARIANTS.items():
        assert asdict(parsed(script, "--variant", name)) == plain | preset | dict(variant=name)


@pytest.mark.parametrize(
    "line, others",
    [
        ("", {}),
        ("--model folder", {}),  # a local model may be as small as the tiny one
        ("--model weak", {}),
        ("--model Qwen/Qwen2.5-0.5B", LARGE),
        ("--dataset gsm8k", LARGE),
        ("--eval_dataset countdown,math500", LARGE),
        ("--model HuggingFaceTB/SmolLM2-135M-Instruct --dataset arithmetic", LARGE | ARITHMETIC),
        ("--dataset gsm8k --learning_rate 3e-6", LARGE),
    ],
)
def test_which_defaults_count(parsed, tmp_path, line, others):
    """A flag that is given wins over them."""
    (tmp_path / "folder").mkdir()
    small, given = asdict(parsed("grpo")), parse(grpo.Config, line.split())
    assert asdict(parsed("grpo", *line.split())) == small | others | given


def test_a_resumed_run_keeps_its_flags(parsed, capsys, monkeypatch):
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
    assert "--output_dir other" in refusal("--output_dir other")
    assert "--top_p" in refusal("--top_p 2")
    # a copy of a script has its flags, and perhaps another formula
    assert "run is mine.py's run" in refusal(script="mine.py")
    assert "another version: top_p, top_q" in refusal(top_p="absent", top_q=1)
    found = resumed("--max_steps 2 --eval_samples 3")
    assert (found.epsilon_high, found.aggregation, found.seed) == (0.3, "token", 3)
    assert (found.max_steps, found.eval_samples) == (2, 3)
    Path("runs").mkdir()
    Path("run").rename("runs/grpo-1")
    found = parsed("grpo", "--resume_from_checkpoint", "latest")
    assert found.resume_from_checkpoint == "runs/grpo-1"  # what is the latest now


@pytest.mark.parametrize(
    "line",
    [
        "--output_dir file",
        "--model nobody/no-such-model",
        "--model empty",
        "--report_to wandb",
        "--resume_from_checkpoint missing",
        "--resume_from_checkpoint missing/checkpoint-1",
        "--resume_from_checkpoint broken",
    ],
)
def test_what_is_refused_before_a_model_is_loaded(no_model, monkeypatch, line):
    monkeypatch.setitem(sys.modules, "wandb", None)  # to import it is an ImportError then
    Path("file").write_text("not a folder")
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/config.json").write_text("{")
    assert refused(no_model("grpo", *line.split()), "grpo", line.split()[1])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_model(bare, tiny, name):
    save_folder(Path("model"), *tiny)
    os.truncate(Path("model", name), 100)
    result = bare("grpo", *arguments(model="model", max_steps=0, output_dir="run"))
    assert refused(result, "grpo", "--model model")

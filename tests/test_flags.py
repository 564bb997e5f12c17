"""The command line: --help, presets, the flags of a resumed run, models that cannot be loaded."""

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

from rlvr.flags.config import Config
from rlvr.flags.presets import ARITHMETIC, LARGE, PROTOCOLS
from rlvr.policy.saving import save_folder

import pytest
from runs import ROOT, SCRIPTS, WITH_PROJECT, arguments, refused, rows, steps


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_explains_every_flag(parsed, monkeypatch, capsys, script):
    """Its help and its default stand behind it. The script's own flags come first."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        parsed(script, "--help")
    assert ended.value.code == 0
    out, _ = capsys.readouterr()
    assert out.count("\n") <= 120
    _, *parts = re.split(r"^  --(\w+) (?:\w+|\[bool\])(?:  |$)", out, flags=re.M)
    names = parts[::2]
    explained = dict(zip(names, (" ".join(text.split()) for text in parts[1::2]), strict=True))
    config_class = importlib.import_module(script).Config
    own = [*config_class.__annotations__]
    assert {*names[: len(own)]} == {*own}
    assert {*names} == {field.name for field in fields(config_class)}
    for field in fields(config_class):
        text, _, rest = explained[field.name].partition(f" ({field.default})")
        assert len(text) > 3 and (rest == "" or ":" in rest), field.name  # the next heading
    assert explained["seed"] == "of data order, sampling and evaluation (0)"


def test_at_most_60_flags_are_common_and_torch_is_not_loaded_for_them():
    assert len(fields(Config)) - 1 <= 60  # --variant is each script's own
    program = "import rlvr.flags, sys; rlvr.flags.parse_flags; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=WITH_PROJECT)
    assert done.returncode == 0


@pytest.mark.parametrize("given, code", [("--help", 0), ("--top_p 2", 2)])
def test_help_and_a_refused_flag_load_no_model_library(given, code):
    """Transformers and torch's compiler take seconds."""
    program = (
        "import atexit, runpy, sys; "
        "atexit.register(lambda: sys.stderr.write(' '.join(sys.modules))); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "grpo.py", *given.split()],
        cwd=ROOT,
        env=WITH_PROJECT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert (done.stdout == "loading torch\n") == (code == 2)  # which it says at once
    loaded = {*done.stderr.split()}
    assert "rlvr.flags.command_line" in loaded
    assert not loaded & {"transformers", "torch._dynamo", "datasets", "sympy", "matplotlib"}


@pytest.mark.parametrize(
    "typed, expected",
    [
        ("--no_dynamic_sampling", False),
        ("--dynamic_sampling=False", False),
        ("--dynamic_sampling --seed 3", True),
        ("--no_dynamic_sampling --dynamic_sampling", True),  # the last one counts
    ],
)
def test_ways_to_give_a_boolean(parsed, typed, expected):
    for variant in ("grpo", "dapo"):  # whose own value is false, and true
        config = parsed("grpo", "--variant", variant, *typed.split())
        assert config.dynamic_sampling is expected


@pytest.mark.parametrize(
    "script, flag, presets",
    [
        *((script, "variant", importlib.import_module(script).VARIANTS) for script in SCRIPTS),
        ("grpo", "eval_protocol", PROTOCOLS),
    ],
)
def test_a_preset_sets_its_flags_and_leaves_the_others(parsed, script, flag, presets):
    plain = asdict(parsed(script))
    for name, preset in presets.items():
        assert asdict(parsed(script, f"--{flag}", name)) == plain | preset | {flag: name}


def test_a_protocol_leaves_nothing_of_another_one():
    """As in a resumed run; and it sets the flags of the evaluation alone."""
    first, *others = (preset.keys() for name, preset in PROTOCOLS.items() if name != "none")
    assert all(other == first for other in others)
    assert all(name == "top_p" or name.startswith("eval_") for name in first)


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
        # a flag that is given wins over a preset, and this over the defaults
        ("--dataset gsm8k --learning_rate 3e-6", LARGE | dict(learning_rate=3e-6)),
        ("--eval_samples 3 --eval_protocol asymgrpo", PROTOCOLS["asymgrpo"] | dict(eval_samples=3)),
    ],
)
def test_which_defaults_and_presets_count(parsed, tmp_path, line, others):
    (tmp_path / "folder").mkdir()
    small = asdict(parsed("grpo"))
    words = line.split()
    texts = ("model", "dataset", "eval_dataset", "eval_protocol", "output_dir")
    given = {name: words[words.index(f"--{name}") + 1] for name in texts if f"--{name}" in words}
    assert asdict(parsed("grpo", *words)) == small | others | given


@pytest.mark.usefixtures("no_evaluation")
def test_a_resumed_run_keeps_its_flags(run, resume):
    """Those that are given win over the presets, and these over the run's."""

    def saved(*names):
        config = json.loads(Path("run/config.json").read_text())
        return [config[name] for name in names]

    run("grpo", variant="dapo", epsilon_high=0.3, max_steps=1, seed=3)
    assert saved("script", "epsilon_high", "aggregation", "seed") == ["grpo.py", 0.3, "token", 3]
    before, metrics = Path("run/config.json").read_text(), rows("run", timed=True)
    assert refused(resume("agrae", "run", max_steps=2), "agrae", "run is grpo.py's run")
    assert refused(resume("grpo", "run", output_dir="other"), "grpo", "goes on in its own folder")
    assert refused(resume("grpo", "run", max_steps=0), "grpo", "--max_steps 0 evaluates only")
    assert refused(resume("grpo", "run", seed=4), "grpo", "--seed 4 (was 3)")
    result = resume("grpo", "run", variant="dr-grpo")
    # before a model is loaded; a checkpoint would refuse it in other words
    assert refused(result, "grpo", "a resumed run keeps", "--aggregation constant (was token)")
    assert refused(resume("grpo", "run", top_p=2), "grpo", "--top_p")
    assert (Path("run/config.json").read_text(), rows("run", timed=True)) == (before, metrics)

    own = dict(output_dir=Path("run").absolute())  # the run's own folder by another path
    result = resume("grpo", "run", max_steps=2, eval_protocol="asymgrpo", eval_samples=3, **own)
    assert result.code == 0, result.err
    assert saved("variant", "epsilon_high", "aggregation", "seed") == ["dapo", 0.3, "token", 3]
    # the protocol's 10 samples give way to the flag
    assert saved("max_steps", "eval_samples", "eval_temperature") == [2, 3, 0.4]
    assert steps("run") == [1, 2]
    # a copy of a script has its flags, and perhaps another formula
    Path("run/config.json").write_text(before.replace("grpo.py", "mine.py"))
    assert refused(resume("grpo", "run", max_steps=3), "grpo", "run is mine.py's run")
    Path("run/config.json").write_text(before.replace("top_p", "top_q"))
    assert refused(resume("grpo", "run", max_steps=3), "grpo", "another version: top_p, top_q")


@pytest.mark.parametrize(
    "line",
    [
        "--output_dir file",
        "--cache_dir file/below",
        "--model nobody/no-such-model",
        "--model empty",
        "--report_to wandb",
        "--report_to tensorboard",
        "--resume_from_checkpoint missing",
        "--resume_from_checkpoint missing/checkpoint-1",
        "--resume_from_checkpoint broken",
    ],
)
def test_what_is_refused_before_a_model_is_loaded(no_model, monkeypatch, line):
    for loaded in [*sys.modules]:
        if loaded.startswith("torch.utils.tensorboard"):
            monkeypatch.delitem(sys.modules, loaded)
    for package in ("wandb", "tensorboard"):  # to import them is an ImportError then
        monkeypatch.setitem(sys.modules, package, None)
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

"""The command line and run folders under generated settings: tests/fuzz_cases.py.

Each case ends in one clear line on stderr and exit code 2, or runs to its end with exit code 0 and
finite numbers. Some 15 cases run by default, 300 more with `-m slow`, and as
many again with `-m longest`.
"""

import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import rlvr.tasks.datasets
from rlvr.verify.verifiers import VERIFIERS

import pytest
import transformers
from fuzz_cases import BASE, DATA, MODELS, damaged, generate
from runs import (
    ENVIRONMENT,
    ROOT,
    SMALL,
    arguments,
    first_fast,
    problems_of,
    real_load_problems,
    refused,
    rows,
    steps,
)
from safetensors.torch import load_file

MOST_SECONDS = 60  # that a case may take
EVERY = 400  # one of so many cases runs by default, and a half of the others is slow


def marks_of(number):
    """What says when a case runs."""
    if number % EVERY == 0:
        return ()
    return pytest.mark.longest if number % 2 else pytest.mark.slow


CASES = [
    pytest.param(case, id=f"{case.script}-{i}", marks=marks_of(i))
    for i, case in enumerate(generate())
]
NEW_CONFIG = {
    "type": dict(model_type="unheard-of"),
    "bert": dict(model_type="bert"),
    "wide": dict(hidden_size=128),
    "text": dict(num_hidden_layers="many"),
    "null": dict(num_attention_heads=None),
    "negative": dict(intermediate_size=-1),
    "vocabulary": dict(vocab_size=5),
}
NEW_BYTES = {"broken": b"{", "list": b"[]", "empty": b""}
FILE_OF = {
    "config": "config.json",
    "weights": "model.safetensors",
    "tokenizer": "tokenizer.json",
    "generation": "generation_config.json",
}


def copy_model(tiny, folder, how):
    """Copy the tiny policy; `how` names the file that is then damaged, and the damage."""
    shutil.copytree(tiny, folder)
    if how == "whole":
        return
    part, _, damage = how.partition("-")
    file = folder / FILE_OF[part]
    if damage == "missing":
        file.unlink()
    elif damage in NEW_CONFIG:
        file.write_text(json.dumps(json.loads(file.read_text()) | NEW_CONFIG[damage]))
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1000])
    elif how == "config-empty":
        file.write_text("{}")
    else:
        file.write_bytes(NEW_BYTES[damage])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where a finished run of each script, and the models, are kept between the cases."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def place(bare, cache_dir, store, tmp_path, monkeypatch):
    """place(script) puts models, data, a file, a folder and a finished run beside the command."""

    def load_problems(config, tokenizer):
        """What `bare` gives, wherever the flags ask for that."""
        plain = (
            config.eval_names == [config.dataset] == ["countdown"]
            and config.max_prompt_length >= 9
            and config.system_prompt in ("auto", "none")
            and not tokenizer.chat_template
        )
        if plain:
            return problems_of(config.numbers, config.eval_problems)
        return real_load_problems(config, tokenizer)

    def put(script):
        if not (store / script).exists():
            given = arguments(**BASE, output_dir="first", cache_dir=cache_dir)
            assert bare(script, *given).code == 0
            Path("first").rename(store / script)
        if not (store / "models").exists():
            (store / "models").mkdir()
            for how in MODELS:
                copy_model(store / script / "checkpoint-1", store / "models" / how, how)
        shutil.copytree(store / script, "run")
        for how in MODELS:
            Path(how).symlink_to(store / "models" / how)
        for name, text in DATA.items():
            Path(name).write_bytes(text.encode(errors="surrogateescape"))
        Path("file").write_text("a file")
        Path("folder").mkdir()

    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", load_problems)
    # The policy solves nothing, so a reward has to set completions of a prompt apart.
    by_length = replace(VERIFIERS["countdown"], verify=lambda text, gold: float(len(text) % 2))
    monkeypatch.setitem(VERIFIERS, "countdown", by_length)
    monkeypatch.setenv("HOME", str(tmp_path))  # where ~ is
    for name in ("vllm", "wandb"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, name, None)
    yield put
    shutil.rmtree(tmp_path)


def assert_numbers_are_finite():
    """Those of the logs and the weights are finite; null stands for a number that is not.

    Loss, KL and gradient may be infinite where the row says that no update was made.
    """
    folders = [file.parent for file in Path().rglob("eval.jsonl")]
    assert folders
    for folder in folders:
        logged = rows(folder, "eval")
        if (folder / "metrics.jsonl").exists():
            logged += rows(folder)
        for row in logged:
            infinite = {
                key for key, value in row.items() if value is None or not math.isfinite(value)
            }
            allowed = {"loss", "kl", "grad_norm"} if row.get("skipped") else set()
            assert infinite <= allowed, row
        for file in folder.glob("checkpoint-*/model.safetensors"):
            assert all(value.isfinite().all() for value in load_file(file).values()), file


def is_progress(line):
    """Whether a line is a bar of the warm-up or of the library that reads data sets."""
    return line.startswith(("teaching the tiny", "Generating", "Downloading"))


@pytest.mark.parametrize("case", CASES)
def test_one_line_or_finite_numbers(bare, place, cache_dir, record_property, case):
    """The message of a failure starts with the command line and, if damaged, the config.json."""
    place(case.script)
    given = list(case.given)
    if not any(part.startswith("--cache_dir") for part in given):
        given = ["--cache_dir", str(cache_dir), *given]
    command = shlex.join(["python", f"{case.script}.py", *given])
    if case.damage is not None:
        config = damaged(Path("run/config.json").read_text(), case.damage)
        Path("run/config.json").write_bytes(config)
        command += f"\nwith run/config.json {config[:3000]!r}"

    def too_slow(*_):
        pytest.fail(f"{command}\nhas not ended after {MOST_SECONDS} s")

    sys.stderr.reconfigure(errors="backslashreplace")  # as Python's own is, unlike that of pytest
    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(MOST_SECONDS)
    try:
        result = bare(case.script, *given)
    except Exception:
        pytest.fail(f"{command}\n{traceback.format_exc()}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    record_property("code", result.code)
    if result.code == 2:
        lines = [line for line in re.split("[\r\n]+", result.err) if line and not is_progress(line)]
        assert len(lines) == 1, f"{command}\n{result.err}"
        assert re.match(rf"{case.script}\.py: error: .*\w", lines[0]), f"{command}\n{result.err}"
        return
    assert result.code == 0, f"{command}\n{result.err}"
    if "usage:" in result.out:
        return
    try:
        assert_numbers_are_finite()
    except AssertionError as error:
        pytest.fail(f"{command}\n{error}")


@pytest.mark.parametrize(
    "flag",
    ["model", "dataset", "eval_dataset", "output_dir", "cache_dir", "resume_from_checkpoint"],
)
def test_a_name_that_no_file_can_have(bare, flag):
    result = bare("grpo", f"--{flag}", 300 * "x", "--sft_steps", "1")  # which the cache is for
    assert refused(result, "grpo", 300 * "x", "File name too long")


# ------------------------------------------------------------------ foreign code, foreign files

MODEL_CODE = """
from pathlib import Path

from transformers import Qwen2Config, Qwen2ForCausalLM

Path({marker!r}).touch()


class XConfig(Qwen2Config):
    model_type = {model_type!r}


class XModel(Qwen2ForCausalLM):
    config_class = XConfig
"""


@pytest.mark.parametrize("model_type", first_fast(["unheard-of", "qwen2"]))
def test_a_model_s_own_code_runs_only_where_it_is_trusted(run, monkeypatch, tmp_path, model_type):
    """Whether or not transformers has a class of its own for the model."""
    assert run("grpo", output_dir="first", max_steps=1, sft_steps=1).code == 0
    Path("first/checkpoint-1").rename("model")
    own_classes = {
        "AutoConfig": "modeling_x.XConfig",
        "AutoModelForCausalLM": "modeling_x.XModel",
    }
    config = json.loads(Path("model/config.json").read_text())
    config |= {"model_type": model_type, "auto_map": own_classes}
    Path("model/config.json").write_text(json.dumps(config))
    marker = tmp_path / "marker"
    code = MODEL_CODE.format(marker=str(marker), model_type=model_type)
    Path("model/modeling_x.py").write_text(code)
    modules = str(tmp_path / "modules")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)
    for i, given in enumerate(({}, {"trust_remote_code": False})):
        result = run("grpo", model="model", output_dir=f"run{i}", max_steps=0, **given)
        if model_type == "qwen2":
            assert result.code == 0
        else:
            assert refused(result, "grpo", "--model model")
        assert not marker.exists()
    result = run("grpo", model="model", output_dir="trusted", max_steps=0, trust_remote_code=True)
    assert marker.exists() and result.code == 0, result.err
    assert steps("trusted", "eval") == [0]


DRIVER = """
import os
import runpy
import sys

CHANGES = "mkdir rename remove rmdir link symlink truncate chmod chown utime".split()
WITH_TWO_PATHS = "rename link symlink".split()
FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def note(event, given):
    name = event.removeprefix("os.")
    changed = ()
    if event == "open" and given[2] & FOR_WRITING:
        changed = given[:1]
    elif event == f"os.{name}" and name in CHANGES:
        changed = given[:2] if name in WITH_TWO_PATHS else given[:1]
    for path in changed:
        if not isinstance(path, int):
            os.write(log, f"{os.path.realpath(os.fsdecode(path))}\\n".encode())


log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
sys.addaudithook(note)
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_a_run_writes_into_its_folder_the_caches_and_the_temporary_folder_alone(tmp_path):
    """An audit hook sees what Python does; what libraries write themselves is there afterwards."""
    for name in ("work", "home", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "driver.py").write_text(DRIVER)
    environment = {
        key: value
        for key, value in ENVIRONMENT.items()
        if not key.startswith(("HF_HOME", "XDG_", "MPL", "TORCHINDUCTOR"))
    }
    environment["HOME"] = str(tmp_path / "home")
    environment["TMPDIR"] = str(tmp_path / "temporary")
    environment["PYTHONPATH"] = str(ROOT)
    log, cache = tmp_path / "log", tmp_path / "cache"
    flags = {**SMALL, "sft_steps": 1, "max_steps": 1, "output_dir": "run", "cache_dir": cache}
    done = subprocess.run(
        [sys.executable, tmp_path / "driver.py", log, ROOT / "grpo.py", *arguments(**flags)],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    run_folder = tmp_path / "work/run"
    allowed = [run_folder, cache, tmp_path / "home/.cache", tmp_path / "temporary"]
    written = [Path(line) for line in log.read_text().splitlines()]
    assert run_folder / "config.json" in written
    assert any(path.is_relative_to(cache) for path in written)
    for top in ("work", "home"):
        written += (tmp_path / top).rglob("*")
    strange = {
        path
        for path in written
        if "__pycache__" not in path.parts
        and not path.is_relative_to("/dev")
        and not any(path.is_relative_to(place) or place.is_relative_to(path) for place in allowed)
    }
    assert not strange

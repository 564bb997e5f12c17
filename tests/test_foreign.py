"""What a run may do to the machine: whose code it runs, and where it writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from runs import ENVIRONMENT, ROOT, SMALL, arguments, first_fast, refused, steps

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

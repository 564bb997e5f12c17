"""What a run may do to the machine: whose code it runs, and where it writes."""

import json
import sys
from pathlib import Path

import pytest
import transformers
from runs import first_fast, refused, steps

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

"""Each flag under drawn values, and models and runs that are damaged: one clear line, or a run.

A drawn case ends in one line on stderr and exit code 2, or runs to its end with exit code 0 and
finite numbers. The cases come from a random stream of a fixed seed. A few run by default.
"""

import importlib
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import rlvr.flags.config
from rlvr.policy.saving import save_folder
from rlvr.verify.verifiers import VERIFIERS

import pytest
from runs import SCRIPTS, SMALL, arguments, assert_finite, refused

BASE = SMALL | dict(
    sft_steps=10,
    max_steps=1,
    eval_samples=2,
    max_completion_length=32,
    learning_rate=1e-3,
    output_dir="run",
)
SHARED = get_type_hints(rlvr.flags.config.Config).keys()
HUGE = "1" + 400 * "0"
TEXTS = ["", " ", "two words", "--", "None", "ü\u2028😀", "1\n2", "%s", "{}", "no/file", "file"]
INTS = ["0", "1", "2", "4", "-1", "+3", "1.5", "1e3", "0x10", "inf", *TEXTS]
FLOATS = [*"0 0.5 1 1e-30 1e30 1e-320 1e300 -1 inf nan 1,5".split(), HUGE, *TEXTS]
BOOLS = ["true", "false", "1", "no", "TRUE", *TEXTS]
OWN = {  # values of the flags that take a text of their own kind
    "numbers": ["2,2", "4", "2,3,4,5", "²"],
    "weight": [*importlib.import_module("fade").POLICY_WEIGHTS, "fade", "log_schedule"],
    "weight_args": "k=4 k=0 k=2.5 k k==4 =4 k=1e400 rewards=1 alpha=1e30 alpha=1,alpha=2 "
    "delta=0 delta=1e-30 beta=1e30 tau=nan gamma=-9 alpha_s=1e30,alpha_f=2".split(),
}


def values_of(name, kind):
    """What to give to a flag, by its name and its type."""
    kind = get_args(kind)[0] if type(None) in get_args(kind) else kind
    if kind is bool:
        return BOOLS if name != "compile" else ["false", *TEXTS]  # true is slow
    if get_origin(kind) is Literal:
        return [*get_args(kind), "unknown", *TEXTS]
    return {int: INTS, float: FLOATS}.get(kind) or [*OWN.get(name, []), *TEXTS]


def generate():
    """(script, flags): two values of each flag, with grpo.py where all scripts have the flag."""
    rng = random.Random(0)
    for script in SCRIPTS:
        for name, kind in get_type_hints(importlib.import_module(script).Config).items():
            if script == "grpo" or name not in SHARED:
                for value in rng.sample(values_of(name, kind), 2):
                    yield script, {name: value}
        for value in rng.sample(OWN["weight_args"], 4 * (script == "fade")):
            yield script, dict(weight=rng.choice(OWN["weight"]), weight_args=value)


CASES = [
    pytest.param(*case, marks=() if i % 50 == 0 else pytest.mark.slow)
    for i, case in enumerate(generate())
]


@pytest.fixture
def by_length(monkeypatch):
    """The policy solves nothing, so a reward has to set completions of a prompt apart."""
    verifier = replace(VERIFIERS["countdown"], verify=lambda text, gold: float(len(text) % 2))
    monkeypatch.setitem(VERIFIERS, "countdown", verifier)
    for name in ("vllm", "wandb"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("by_length")
@pytest.mark.parametrize("script, flags", CASES)
def test_one_line_or_finite_numbers(bare, cache_dir, script, flags):
    Path("file").write_text("a file")
    given = BASE | dict(cache_dir=cache_dir) | flags
    sys.stderr.reconfigure(errors="backslashreplace")  # as Python's own is, unlike that of pytest
    result = bare(script, *(f"--{name}={value}" for name, value in given.items()))
    if result.code == 2:
        lines = re.findall(r"^(?!teaching).+$", result.err, flags=re.M)  # without its bars
        assert len(lines) == 1 and re.match(rf"{script}\.py: error: .*\w", lines[0]), result.err
        return
    assert result.code == 0, result.err
    for log in Path().rglob("metrics.jsonl"):
        assert_finite(log.parent)


DAMAGE = {  # a file of a model's folder, and what it becomes; None if it is missing
    "no config": ("config.json", None),
    "broken config": ("config.json", lambda old: b"{"),
    "list for a config": ("config.json", lambda old: b"[]"),
    "unheard-of type": ("config.json", lambda old: old.replace(b'"qwen2"', b'"unheard-of"')),
    "other shape": ("config.json", lambda old: old.replace(b'_size": 96', b'_size": 128')),
    "text for a number": ("config.json", lambda old: old.replace(b'_layers": 3', b'_layers": "x"')),
    "no weights": ("model.safetensors", None),
    "cut weights": ("model.safetensors", lambda old: old[:-1000]),
    "no tokenizer": ("tokenizer.json", None),
    "broken tokenizer": ("tokenizer.json", lambda old: b"{"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model(bare, tiny, damage):
    save_folder(Path("model"), *tiny)
    name, change = DAMAGE[damage]
    held = Path("model", name).read_bytes()
    Path("model", name).unlink()
    if change:
        Path("model", name).write_bytes(change(held))
        assert Path("model", name).read_bytes() != held
    result = bare("grpo", *arguments(model="model", max_steps=0, output_dir="run"))
    assert refused(result, "grpo", "--model model")


@pytest.mark.parametrize("flag", "model dataset eval_dataset output_dir cache_dir".split())
def test_a_name_that_no_file_can_have(bare, flag):
    result = bare("grpo", f"--{flag}", 300 * "x", *arguments(sft_steps=1)[: 2 * (flag != "model")])
    assert refused(result, "grpo", 300 * "x", "File name too long")

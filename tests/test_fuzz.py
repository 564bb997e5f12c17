"""Every flag of the scripts with generated values, alone and with others: wrong, odd, extreme.

Each case ends in one clear line on stderr and exit code 2, or runs to its end with exit code 0 and
finite numbers. The cases are drawn by a random stream of a fixed seed. A few run by default, a half
of the others with `-m slow`, and the rest with `-m longest`.
"""

import importlib
import math
import random
import re
import shlex
import shutil
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import rlvr.flags.config
import rlvr.tasks.datasets
from rlvr.verify.verifiers import VERIFIERS

import pytest
from runs import SCRIPTS, SMALL, arguments, real_load_problems, rows
from safetensors.torch import load_file

BASE = SMALL | dict(
    sft_steps=10,
    max_steps=1,
    eval_samples=2,
    max_completion_length=32,
    learning_rate=1e-3,
)
SHARED = get_type_hints(rlvr.flags.config.Config).keys()
HUGE = "1" + 400 * "0"
WORDS = ["", " ", "two words", "-", "--", "None", "ü\u2028😀", "1\n2", "%s", "{}", "[1]"]
INTS = ["0", "1", "2", "4", "-1", "+3", "1.5", "1e3", "0x10", "inf", *WORDS]
FLOATS = "0 0.5 1 1e-30 1e30 1e-320 1e300 -1 inf nan 1,5".split() + [HUGE, *WORDS]
BOOLS = ["true", "false", "1", "no", "TRUE", *WORDS]
PATHS = [*"missing missing/below file file/below folder . ~ /dev/null /proc/x".split(), 300 * "x"]
SLOW = ("max_steps", "sft_steps", "max_redraws")  # of these a large value is merely slow
GOOD_DATA = "".join(f'{{"prompt": "{i} 2 : ", "answer": "{i}"}}\n' for i in range(9))
STRINGS = {  # values of the flags that take any text
    "model": ["run/checkpoint-1", "nobody/nothing", *PATHS],
    "dataset": ["good.jsonl", "gsm8k", "countdown,", *PATHS],
    "eval_dataset": ["good.jsonl", "gsm8k", ",", "countdown,countdown", *PATHS],
    "numbers": ["2,2", "4", "2,3,4,5", "²"],
    "arithmetic_levels": ["1,1", "0", ",4"],
    "chat_template_kwargs": ["{", '{"a"}', '{"enable_thinking": false}'],
    "resume_from_checkpoint": ["latest", "run", "run/checkpoint-1", "run/config.json", *PATHS],
    "weight": [*importlib.import_module("fade").POLICY_WEIGHTS, "fade", "log_schedule"],
    "weight_args": "k=4 k=0 k=2.5 k k==4 =4 k=1e400 rewards=1 mix=1 alpha=1e30 alpha=1,alpha=2 "
    "delta=0 delta=1e-30 beta=0 beta=1e30 tau=nan gamma=-9 alpha_s=1e30,alpha_f=2".split(),
}


def values_of(name, kind):
    """What to give to a flag, by its name and its type."""
    kind = get_args(kind)[0] if type(None) in get_args(kind) else kind
    if kind is bool:
        return BOOLS if name != "compile" else ["false", *WORDS]  # true is slow
    if kind in (int, float):
        numbers = INTS if kind is int else FLOATS
        return [value for value in numbers + [HUGE] if value != HUGE or name not in SLOW]
    if get_origin(kind) is Literal:
        return [*get_args(kind), "unknown", *WORDS]
    return [*STRINGS.get(name, PATHS), *WORDS]


def generate():
    """(script, its command line), all cases."""
    rng = random.Random(0)
    for script in SCRIPTS:
        kinds = get_type_hints(importlib.import_module(script).Config)
        own = [name for name in kinds if name not in SHARED]
        one = [[name] for name in kinds] + [[name] for name in own + ["model", "dataset"]] * 3
        several = [rng.sample([*kinds], 2) + rng.sample(own, min(len(own), 2)) for _ in range(25)]
        for names in one + several:
            # of several flags the values are plausible more often, so that something runs
            values = {name: values_of(name, kinds[name])[: 99 // len(names) ** 2] for name in names}
            settings = {name: rng.choice(found) for name, found in values.items()}
            resumed = "resume_from_checkpoint" in settings
            base = dict(max_steps=1) if resumed else BASE
            unread = {"sft_steps", "numbers"} if "model" in settings else set()
            base = {name: value for name, value in base.items() if name not in unread}
            given = [f"--{name}={value}" for name, value in (base | settings).items()]
            yield script, given


CASES = [
    pytest.param(
        *case,
        id=f"{case[0]}-{i}",
        marks=() if i % 200 == 0 else pytest.mark.longest if i % 2 else pytest.mark.slow,
    )
    for i, case in enumerate(generate())
]


@pytest.fixture
def place(bare, cache_dir, tmp_path, tmp_path_factory, monkeypatch):
    """place(script) puts data, a file, a folder and a finished run beside the command."""

    def put(script):
        kept = tmp_path_factory.getbasetemp() / f"finished {script}"
        if not kept.exists():
            given = arguments(**BASE, output_dir="run", cache_dir=cache_dir)
            assert bare(script, *given).code == 0
            Path("run").rename(kept)
        shutil.copytree(kept, "run")
        Path("good.jsonl").write_text(GOOD_DATA)
        Path("file").write_text("a file")
        Path("folder").mkdir()

    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    # The policy solves nothing, so a reward has to set completions of a prompt apart.
    by_length = replace(VERIFIERS["countdown"], verify=lambda text, gold: float(len(text) % 2))
    monkeypatch.setitem(VERIFIERS, "countdown", by_length)
    monkeypatch.setenv("HOME", str(tmp_path))  # where ~ is
    for name in ("vllm", "wandb"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, name, None)
    yield put
    shutil.rmtree(tmp_path)


def assert_numbers_are_finite():
    """Those of the logs and the weights; but loss, KL and gradient where no update was made."""
    folders = {file.parent for file in Path().rglob("eval.jsonl")}
    assert folders
    for folder in folders:
        trained = rows(folder) if (folder / "metrics.jsonl").exists() else []
        for row in rows(folder, "eval") + trained:
            infinite = {key for key, x in row.items() if x is None or not math.isfinite(x)}
            assert infinite <= ({"loss", "kl", "grad_norm"} if row.get("skipped") else set()), row
        for file in folder.glob("checkpoint-*/model.safetensors"):
            assert all(value.isfinite().all() for value in load_file(file).values()), file


@pytest.mark.parametrize("script, given", CASES)
def test_one_line_or_finite_numbers(bare, place, cache_dir, script, given):
    place(script)
    command = shlex.join([f"{script}.py", *given])
    sys.stderr.reconfigure(errors="backslashreplace")  # as Python's own is, unlike that of pytest
    try:
        result = bare(script, f"--cache_dir={cache_dir}", *given)
    except Exception:
        pytest.fail(f"{command}\n{traceback.format_exc()}")
    assert result.code in (0, 2), command
    if result.code == 2:
        # without the bars of the warm-up and of the library that reads data sets
        shown = result.err.replace("\r", "\n")
        lines = re.findall(r"^(?!teaching|Generating|Downloading).+$", shown, flags=re.M)
        assert len(lines) == 1 and re.match(rf"{script}\.py: error: .*\w", lines[0]), command
    elif "usage:" not in result.out:
        assert_numbers_are_finite()

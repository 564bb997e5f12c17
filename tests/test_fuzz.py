"""The command line and run folders under generated settings: wrong, extreme, contradictory; the same at every run.

Each case ends in one clear line on stderr and exit code 2, or runs to its end with exit code 0 and finite numbers.
Some 40 cases run by default, and all of them, more than 500, where the environment variable RLVR_SLOW is 1.
"""
import importlib
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import traceback
import types
from collections import namedtuple
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import transformers
from safetensors.torch import load_file

import common
import tasks
from test_scripts import (ENVIRONMENT, ROOT, SCRIPTS, SMALL, arguments, bare, cache_dir,  # noqa: F401
                          problems_of, real_load_problems, refused, rows, run, steps)

SLOW = os.environ.get("RLVR_SLOW") == "1"
SECONDS = 60  # that a case may take
SHORT = 40  # cases of the short form, one of each so many of the long one
BASE = SMALL | dict(sft_steps=10, max_steps=1, eval_samples=2, max_completion_length=32, eval_max_completion_length=32,
                    learning_rate=1e-3, microbatch_tokens=2048, rollout_batch_size=64, gradient_checkpointing=False,
                    verifier="number")
HUGE = "1" + 400 * "0"
WORDS = ["", " ", "two words", "-", "--", "nan", "None", "ü\u2028😀", "1\n2", "\n", "%s", "{}", "[1]"]
INTS = ["-1", "0", "1", "2", "+3", "1.5", "1e3", "0x10", "inf", *WORDS]
LARGE_INTS = [str(2**31), str(2**63), HUGE]
FLOATS = ["-1", "0", "1", "0.5", "1e-30", "1e30", "1e-320", "1e308", "inf", "-inf", "1,5", *LARGE_INTS, *WORDS]
BOOLS = ["true", "false", "1", "no", "TRUE", "2", *WORDS]
PATHS = ["missing", "missing/below", "file", "file/below", "folder", "folder/", "/dev/null", "/", ".", "../..", "~",
         "~nobody-here/x", "/proc/x", 300 * "x", *WORDS]
# A large value of these is legitimate, and merely slow.
SIZES = {"max_steps", "prompts_per_step", "num_generations", "num_iterations", "sft_steps", "eval_problems",
         "eval_samples", "max_redraws"}
MODELS = ["whole", "config-missing", "config-broken", "config-list", "config-empty", "config-type", "config-bert",
          "config-wide", "config-text", "config-null", "config-negative", "config-vocabulary", "weights-missing",
          "weights-empty", "weights-broken", "weights-cut", "tokenizer-missing", "tokenizer-broken",
          "tokenizer-empty", "generation-broken", "generation-list"]
DATA = {
    "good.jsonl": "".join(json.dumps({"prompt": f"{i} 2 : ", "answer": str(i)}) + "\n" for i in range(9)),
    "empty.jsonl": "", "blank.jsonl": "\n\n", "broken.jsonl": '{"prompt": \n', "list.jsonl": "[1, 2]\n",
    "column.jsonl": '{"question": "1 + 1", "gold": "2"}\n' * 4, "nulls.jsonl": '{"prompt": null, "answer": null}\n' * 4,
    "half.jsonl": '{"prompt": "1", "answer": "2"}\n{"prompt": "1", "an', "number.jsonl": "3\n",
    "nested.jsonl": '{"prompt": {"a": [1]}, "answer": {"b": null}}\n' * 4,
    "one.jsonl": '{"prompt": "1", "answer": "2"}',
    "mixed.jsonl": '{"prompt": "1", "answer": "2"}\n{"prompt": 1, "answer": [2]}\n', "bytes.jsonl": "\udcff\udcfe\0\0",
    "broken.parquet": "no parquet", "empty.parquet": "", "object.json": '{"prompt": "1", "answer": "2"}',
}
STRINGS = {
    "model": [*MODELS, "nobody/nothing", "https://example.org/model", *PATHS],
    "dataset": [*DATA, "gsm8k", ",", "countdown,", *PATHS],
    "eval_dataset": [*DATA, "gsm8k", ",", ",,", "countdown,countdown", "countdown,missing", *PATHS],
    "prompt_column": ["answer", "missing", *WORDS],
    "answer_column": ["prompt", "missing", *WORDS],
    "numbers": ["2,2", "4", "5", "2,", ",2", "2;3", "2,3,4,5", "²", *WORDS],
    "output_dir": PATHS,
    "cache_dir": PATHS,
    "resume_from_checkpoint": ["latest", "run", "run/", "run/checkpoint-1", "run/checkpoint-7", "run/config.json",
                               "whole", "./run/../run", *PATHS],
    "variant": ["unknown", "grpo", "GRPO", *WORDS],
    "weight": [*importlib.import_module("fade").POLICY_WEIGHTS, "unknown", "log_schedule", *WORDS],
    "weight_args": ["k=4", "k=0", "k=5", "k=2.5", "k", "=", "k==4", "=4", ",", "k=1e400", "k=nan", "r=1", "rewards=1",
                    "alpha=2", "alpha=1e30", "alpha=-1e30", "alpha=1,alpha=2", "delta=0", "delta=1e-30", "delta=nan",
                    "beta=1", "beta=0", "beta=1e30", "beta=-1", "tau=0.5", "tau=9", "tau=nan", "gamma=1",
                    "gamma=1e30", "gamma=-9", "alpha_s=1,alpha_f=-1", "alpha_s=1e30,alpha_f=2", "k=²", "mix=1", *WORDS],
}
# What can be given together: each value is plausible by itself, or refused.
TOGETHER = {
    "learning_rate": ["0", "1e-30", "1", "1e30", "1e300"], "temperature": ["1e-30", "1e-3", "0.5", "1e30", "1e300"],
    "beta": ["0", "1e-30", "1", "1e30", "1e300"], "entropy_coef": ["0", "1e-30", "1", "1e30", "1e300"],
    "epsilon": ["1e-30", "0.9", "1e30", "1e300"], "epsilon_high": ["1e-30", "1e30", "1e300"],
    "max_grad_norm": ["1e-30", "1e30", "1e300"], "eval_temperature": ["1e-30", "1e30", "1e300"],
    "top_p": ["1e-30", "0.5", "1", "1.1"], "num_generations": ["1", "2", "3", "4", "8"],
    "prompts_per_step": ["1", "2", "3", "4"], "minibatch_size": ["1", "2", "3", "4", "8", "12", "16", "32", HUGE],
    "num_iterations": ["1", "2"], "max_steps": ["0", "1", "2"], "microbatch_tokens": ["1", "64", HUGE],
    "rollout_batch_size": ["1", "3", HUGE], "max_completion_length": ["1", "2", "1024", "1025", HUGE],
    "eval_max_completion_length": ["1", "2", "1025", "4096", HUGE], "max_prompt_length": ["1", "8", HUGE],
    "aggregation": ["sequence", "token", "constant"], "importance_sampling_level": ["token", "sequence"],
    "mask_truncated_completions": ["true"], "dynamic_sampling": ["true"], "max_redraws": ["0", "1", "2"],
    "gradient_checkpointing": ["true"], "eval_samples": ["1", "3", "16"], "eval_problems": ["0", "1", "4"],
    "vllm_importance_sampling_cap": ["0", "1e-30", "1e30"], "max_skipped_updates": ["1", "2"], "sft_steps": ["0", "1"],
    "system_prompt": ["think", "boxed", "code"], "model": MODELS, "dataset": [*DATA], "verifier": ["number", "choice"],
    "eval_dataset": [*DATA, "countdown"], "eval_protocol": ["000", "003"], "engine": ["hf", "vllm"],
    "save_steps": ["1", HUGE], "eval_steps": ["1", HUGE], "save_total_limit": ["0", "1", HUGE], "fsdp": ["false"],
    "resume_from_checkpoint": ["run", "latest", "folder"], "output_dir": ["run", "folder", "file"],
    "alpha": ["1e-30", "1", "1e30"], "method": ["none", "clip_cov", "hard_focused", "w_reinforce"],
    "format_weight": ["1", "1e30", "1e300"], "beta_pos": ["0", "1", "1e30"], "beta_neg": ["0", "1", "1e30"],
    "flip": ["positive", "negative"], "log_gain": ["true"], "target_entropy": ["0", "1e30", "1e300"],
    "ema_beta": ["0", "0.98", "1"], "alpha_max": ["0.5", "1", "1e30", "1e300"], "equalize_learning_rate": ["true"],
    "weight": STRINGS["weight"], "weight_args": STRINGS["weight_args"], "scale_rewards": ["false"],
    "negatives_only": ["true"], "sample_level": ["false"], "group_level": ["false"],
}
SHAPES = [  # of a command line; %s is a flag of the script, %v one of its values
    ["--%s"], ["--%s="], ["--%s", "--%s"], ["--%s", "%v", "--%s", "%v"], ["--%s", "%v", "stray"], ["-%s", "%v"],
    ["--%sx", "%v"], ["--no_%s", "%v"], ["---%s=%v"], ["--%s", "=", "%v"], ["--", "--%s", "%v"], ["--%s=%v=%v"],
    ["stray\nword"], [""], ["--"], ["-"], ["-x"], ["--=1"], ["--unknown"], ["--unknown\nflag=1"], ["@file"], ["--help"],
    ["-h", "stray"], ["--%s", "%v", "%v"],
]
# A case is a command line beside files of which one may be damaged: the run's config.json by damage_of(damage).
Case = namedtuple("Case", "script given damage", defaults=(None,))


def values_of(flag):
    """What to give to a flag, a field of Config, by its type and its name."""
    name, kind = flag.name, flag.type
    if name in STRINGS:
        return STRINGS[name]
    if get_origin(kind) is Literal:
        return [*get_args(kind), *(word.upper() for word in get_args(kind)), "unknown", *WORDS]
    if get_origin(kind) is types.UnionType:
        return FLOATS
    return {int: INTS + (LARGE_INTS if name not in SIZES else [HUGE + ".0"]), float: FLOATS, bool: BOOLS}[kind]


def line_of(rng, settings):
    """The flags of BASE and of a case, as `--flag value` or `--flag=value`."""
    base = dict(BASE)
    if {"numbers", "cache_dir"} & settings.keys():
        base["sft_steps"] = 1  # each has a policy of its own to warm up
    if "prompt_column" in settings or "answer_column" in settings:
        base["dataset"] = "good.jsonl"
    if settings.get("resume_from_checkpoint"):
        base = {"max_steps": 2}
    given = []
    for name, value in (base | settings).items():
        given += [f"--{name}={value}"] if rng.random() < 0.5 or str(value).startswith("-") else [f"--{name}", value]
    return [str(part) for part in given]


def generate():
    """All cases of the long form, those of a kind side by side."""
    rng, cases = random.Random(0), []
    configs = {script: fields(importlib.import_module(script).Config) for script in SCRIPTS}
    shared = {one.name for one in fields(common.Config)}
    for script, found in configs.items():  # one flag at a time: those that only this script has more often
        for one in found:
            for value in rng.sample(values_of(one), 1 if one.name in shared else 3):
                cases.append(Case(script, line_of(rng, {one.name: value})))
    for name in ("cache_dir", "output_dir", "resume_from_checkpoint"):
        cases += [Case(rng.choice(SCRIPTS), line_of(rng, {name: value})) for value in STRINGS[name]]
    for i in range(75):  # two or three together
        script = SCRIPTS[i % len(SCRIPTS)]
        names = [one.name for one in configs[script] if one.name in TOGETHER]
        own = [name for name in names if name not in shared]
        chosen = rng.sample(names, rng.choice([2, 3])) + rng.sample(own, min(len(own), i % 3))
        cases.append(Case(script, line_of(rng, {name: rng.choice(TOGETHER[name]) for name in chosen})))
    for i in range(len(SHAPES)):
        script = rng.choice(SCRIPTS)
        chosen = rng.choice([one for one in configs[script] if one.name not in SIZES])
        words = [part.replace("%s", chosen.name) for part in SHAPES[i % len(SHAPES)]]
        words = [part.replace("%v", str(rng.choice(values_of(chosen)))) for part in words]
        cases.append(Case(script, line_of(rng, {}) + words))
    for i in range(80):
        cases.append(Case(rng.choice(SCRIPTS), ["--resume_from_checkpoint", "run", "--max_steps", "1"], i))
    for i in range(30):  # an intact run, with other flags
        script = SCRIPTS[i % len(SCRIPTS)]
        chosen = {one.name: rng.choice(values_of(one)) for one in rng.sample(configs[script], rng.choice([1, 2]))}
        cases.append(Case(script, line_of(rng, chosen | {"resume_from_checkpoint": "run"})))
    return cases


def damage_of(text, number):
    """What becomes of the bytes of config.json, by a random stream of its own."""
    rng, saved = random.Random(number), json.loads(text)
    kinds = ["value", "value", "whole", "missing", "value", "extra", "whole", "cut", "byte", "cut"]
    kind, texts = kinds[number % len(kinds)], [
        "", "null", "3", "[]", "[{}]", '"text"', "{}", "NaN", "not JSON", 200_000 * "[", "\0", 200_000 * '{"a":',
        "\ufeff" + text, f"[{text}]", text + text, 5000 * "1"]
    if kind == "whole":
        return texts[number // 5].encode()
    if kind == "cut":
        return text.encode()[:rng.randrange(len(text))]
    if kind == "byte":
        where = rng.randrange(len(text))
        return text.encode()[:where] + bytes([rng.randrange(256)]) + text.encode()[where + 1:]
    if kind == "missing":
        del saved[rng.choice([*saved])]
    elif kind == "extra":
        saved[rng.choice(["", "unknown", "SEED", "--seed", "a\nb", "%s"])] = rng.choice([1, None, [], "x"])
    else:
        name = rng.choice([name for name in saved if name not in {"sft_steps", "eval_problems"}])
        saved[name] = rng.choice([None, [], {}, [1, 2], {"a": {"b": []}}, "", "many", "a\nb", -1, 1.5, True, False,
                                  10**400, 2**63, math.nan, math.inf, "--seed", "\ud800", 0])
    return json.dumps(saved, indent=2).encode()


CASES = generate()
CASES = CASES if SLOW else CASES[::-(-len(CASES) // SHORT)]


def broken(whole, folder, how):
    """A copy of a model, with one of its files damaged."""
    shutil.copytree(whole, folder)
    part, _, damage = how.partition("-")
    file = folder / {"config": "config.json", "weights": "model.safetensors", "tokenizer": "tokenizer.json",
                     "generation": "generation_config.json"}.get(part, "config.json")
    changes = {"type": dict(model_type="unheard-of"), "bert": dict(model_type="bert"), "wide": dict(hidden_size=128),
               "text": dict(num_hidden_layers="many"), "null": dict(num_attention_heads=None),
               "negative": dict(intermediate_size=-1), "vocabulary": dict(vocab_size=5)}
    if damage == "missing":
        file.unlink()
    elif damage in changes:
        file.write_text(json.dumps(json.loads(file.read_text()) | changes[damage]))
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-1000])
    elif damage:
        file.write_bytes(dict(broken=b"{", list=b"[]", empty=b"").get(damage) if part != "config" or damage != "empty"
                         else b"{}")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Where a finished run of each script, and the models, are kept between the cases."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def place(bare, cache_dir, store, tmp_path, monkeypatch):  # noqa: F811
    """place(script) puts models, data, a file, a folder and a finished run of the script beside the command."""
    def load_problems(config, tokenizer):  # as in `bare`, wherever what that gives is what the flags ask for
        plain = (config.eval_names == [config.dataset] == ["countdown"] and config.max_prompt_length >= 9
                 and config.system_prompt in ("auto", "none") and not tokenizer.chat_template)
        return (problems_of(config.numbers, config.eval_problems) if plain else real_load_problems(config, tokenizer))

    def lay(script):
        if not (store / script).exists():
            assert bare(script, *arguments(**BASE, output_dir="first", cache_dir=cache_dir)).code == 0
            Path("first").rename(store / script)
        if not (store / "models").exists():
            tiny = store / script / "checkpoint-1"
            (store / "models").mkdir()
            for how in MODELS:
                broken(tiny, store / "models" / how, how if how != "whole" else "")
        shutil.copytree(store / script, "run")
        for how in MODELS:
            Path(how).symlink_to(store / "models" / how)
        for name, text in DATA.items():
            Path(name).write_bytes(text.encode(errors="surrogateescape"))
        Path("file").write_text("a file")
        Path("folder").mkdir()

    monkeypatch.setattr(common, "load_problems", load_problems)
    # the policy solves nothing: a reward that sets completions of a prompt apart
    monkeypatch.setattr(tasks, "verify_countdown", lambda text, gold: float(len(text) % 2))
    for name in ("vllm", "wandb"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, name, None)
    yield lay
    shutil.rmtree(tmp_path)


def assert_numbers_are_finite():
    """In the logs and the weights; loss, KL and gradient may be infinite where the row says that no update was made."""
    evals = [file.parent for file in Path().rglob("eval.jsonl")]
    assert evals
    for folder in evals:
        for row in rows(folder, "eval") + (rows(folder) if (folder / "metrics.jsonl").exists() else []):
            infinite = {key for key, value in row.items() if not math.isfinite(value)}
            assert infinite <= ({"loss", "kl", "grad_norm"} if row.get("skipped") else set()), row
        for file in folder.glob("checkpoint-*/model.safetensors"):
            assert all(value.isfinite().all() for value in load_file(file).values()), file


@pytest.mark.parametrize("case", CASES, ids=[f"{case.script}-{i}" for i, case in enumerate(CASES)])
def test_one_line_or_finite_numbers(bare, place, cache_dir, record_property, case):  # noqa: F811
    """The message of a failure starts with the command line, and says what was in config.json if that was damaged."""
    place(case.script)
    given = [*case.given]
    if not any(part.startswith("--cache_dir") for part in given):
        given = ["--cache_dir", str(cache_dir), *given]
    command = shlex.join(["python", f"{case.script}.py", *given])
    if case.damage is not None:
        damaged = damage_of(Path("run/config.json").read_text(), case.damage)
        Path("run/config.json").write_bytes(damaged)
        command += f"\nwith run/config.json {damaged[:3000]!r}"
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail(f"{command}\nhas not ended after {SECONDS} s"))
    signal.alarm(SECONDS)
    try:
        result = bare(case.script, *given)
    except Exception:
        pytest.fail(f"{command}\n{traceback.format_exc()}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    record_property("code", result.code)
    if result.code == 2:
        progress = ("warming up", "Generating")  # bars, of the warm-up and of datasets
        lines = [line for line in re.split("[\r\n]+", result.err) if line and not line.startswith(progress)]
        assert len(lines) == 1 and re.match(rf"{case.script}\.py: error: .*\w", lines[0]), f"{command}\n{result.err}"
    else:
        assert result.code == 0, f"{command}\n{result.err}"
        try:
            assert "usage:" in result.out or not assert_numbers_are_finite()
        except AssertionError as error:
            pytest.fail(f"{command}\n{error}")


# ------------------------------------------------------------------------------------------ foreign code, foreign files
@pytest.mark.parametrize("model_type", ["qwen2", "unheard-of"])
def test_a_model_s_own_code_runs_only_where_it_is_trusted(run, monkeypatch, tmp_path, model_type):  # noqa: F811
    """Whether or not transformers has a class of its own for the model."""
    assert run("grpo", output_dir="first", max_steps=1, sft_steps=1).code == 0
    Path("first/checkpoint-1").rename("model")
    config = json.loads(Path("model/config.json").read_text()) | dict(model_type=model_type, auto_map={
        "AutoConfig": "modeling_x.XConfig", "AutoModelForCausalLM": "modeling_x.XModel"})
    Path("model/config.json").write_text(json.dumps(config))
    Path("model/modeling_x.py").write_text(f"""
from pathlib import Path
from transformers import Qwen2Config, Qwen2ForCausalLM
Path({str(tmp_path / "marker")!r}).touch()
class XConfig(Qwen2Config):
    model_type = {model_type!r}
class XModel(Qwen2ForCausalLM):
    config_class = XConfig
""")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, name)
    for given in ({}, dict(trust_remote_code=False)):
        result = run("grpo", model="model", output_dir=f"run{len(given)}", max_steps=0, **given)
        assert model_type == "qwen2" and result.code == 0 or refused(result, "grpo", "--model model")
        assert not Path("marker").exists()
    result = run("grpo", model="model", output_dir="trusted", max_steps=0, trust_remote_code=True)
    assert Path("marker").exists() and result.code == 0, result.err
    assert steps("trusted", "eval") == [0]


def test_a_run_writes_into_its_folder_the_caches_and_the_temporary_folder_alone(tmp_path):
    """By an audit hook, for what Python does, and by what is there afterwards, for what libraries write themselves."""
    for name in ("work", "home", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "driver.py").write_text("""
import os, runpy, sys
CHANGES = "os.mkdir os.rename os.remove os.rmdir os.link os.symlink os.truncate os.chmod os.chown os.utime".split()
def note(event, args):
    if event == "open":
        changed = args[:1] if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) else ()
    else:
        changed = args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:event in CHANGES]
    for path in changed:
        if not isinstance(path, int):
            os.write(log, f"{os.path.realpath(os.fsdecode(path))}\\n".encode())
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
sys.addaudithook(note)
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
""")
    environment = {key: value for key, value in ENVIRONMENT.items()
                   if not key.startswith(("HF_HOME", "XDG_", "MPL", "TORCHINDUCTOR"))}
    environment |= dict(HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path / "temporary"))
    log, cache = tmp_path / "log", tmp_path / "cache"
    given = arguments(**SMALL | dict(sft_steps=1, max_steps=1, output_dir="run"), cache_dir=cache)
    done = subprocess.run([sys.executable, tmp_path / "driver.py", log, ROOT / "grpo.py", *given], text=True,
                          cwd=tmp_path / "work", env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    mine = [tmp_path / "work/run", cache, tmp_path / "home/.cache", tmp_path / "temporary"]
    written = [Path(line) for line in log.read_text().splitlines()]
    assert mine[0] / "config.json" in written and any(path.is_relative_to(mine[1]) for path in written)
    written += [path for top in ("work", "home") for path in (tmp_path / top).rglob("*")]
    strange = {path for path in written if "__pycache__" not in path.parts and not path.is_relative_to("/dev")
               and not any(path.is_relative_to(place) or place.is_relative_to(path) for place in mine)}
    assert not strange

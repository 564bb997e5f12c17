"""Command lines and damaged files for tests/test_fuzz.py: wrong, extreme, contradictory.

They are drawn by a random stream of a fixed seed, so they are the same at every run.
"""

import importlib
import json
import math
import random
import types
from dataclasses import dataclass
from functools import cache
from typing import Literal, Union, get_args, get_origin, get_type_hints

import rlvr.flags.config

from runs import SCRIPTS, SMALL

BASE = {
    **SMALL,
    "sft_steps": 10,
    "max_steps": 1,
    "eval_samples": 2,
    "max_completion_length": 32,
    "eval_max_completion_length": 32,
    "learning_rate": 1e-3,
    "microbatch_tokens": 2048,
    "rollout_batch_size": 64,
    "gradient_checkpointing": False,
}

# ------------------------------------------------------------------------------ values of a flag

HUGE = "1" + 400 * "0"
WORDS = [
    "",
    " ",
    "two words",
    "-",
    "--",
    "nan",
    "None",
    "ü\u2028😀",
    "1\n2",
    "\n",
    "%s",
    "{}",
    "[1]",
]
LARGE_INTS = [str(2**31), str(2**63), HUGE]
INTS = [*"-1 0 1 2 +3 1.5 1e3 0x10 inf".split(), *WORDS]
FLOATS = [*"-1 0 1 0.5 1e-30 1e30 1e-320 1e308 inf -inf 1,5".split(), *LARGE_INTS, *WORDS]
BOOLS = [*"true false 1 no TRUE 2".split(), *WORDS]
PATHS = [
    *"missing missing/below file file/below folder folder/ folder/.. . ~ ~nobody-here/x".split(),
    *"/dev/null /proc/x".split(),
    300 * "x",
    *WORDS,
]
# A large value of these is legitimate, and merely slow.
SIZES = set(
    "max_steps prompts_per_step num_generations num_iterations sft_steps eval_problems "
    "eval_samples max_redraws".split()
)
# copies of the tiny policy: its part that is damaged, and how
MODELS = (
    "whole config-missing config-broken config-list config-empty config-type config-bert "
    "config-wide config-text config-null config-negative config-vocabulary weights-missing "
    "weights-empty weights-broken weights-cut tokenizer-missing tokenizer-broken tokenizer-empty "
    "generation-broken generation-list"
).split()
GOOD_LINES = [json.dumps({"prompt": f"{i} 2 : ", "answer": str(i)}) + "\n" for i in range(9)]
DATA = {  # files, by name
    "good.jsonl": "".join(GOOD_LINES),
    "empty.jsonl": "",
    "blank.jsonl": "\n\n",
    "broken.jsonl": '{"prompt": \n',
    "list.jsonl": "[1, 2]\n",
    "column.jsonl": '{"question": "1 + 1", "gold": "2"}\n' * 4,
    "nulls.jsonl": '{"prompt": null, "answer": null}\n' * 4,
    "half.jsonl": '{"prompt": "1", "answer": "2"}\n{"prompt": "1", "an',
    "number.jsonl": "3\n",
    "nested.jsonl": '{"prompt": {"a": [1]}, "answer": {"b": null}}\n' * 4,
    "one.jsonl": '{"prompt": "1", "answer": "2"}',
    "mixed.jsonl": '{"prompt": "1", "answer": "2"}\n{"prompt": 1, "answer": [2]}\n',
    "bytes.jsonl": "\udcff\udcfe\0\0",
    "broken.parquet": "no parquet",
    "empty.parquet": "",
    "object.json": '{"prompt": "1", "answer": "2"}',
}
STRINGS = {  # values of the flags that take any text
    "model": [*MODELS, "nobody/nothing", "https://example.org/model", *PATHS],
    "dataset": [*DATA, "gsm8k", ",", "countdown,", *PATHS],
    "eval_dataset": [
        *DATA,
        *"gsm8k , ,, countdown,countdown countdown,missing".split(),
        *PATHS,
    ],
    "prompt_column": ["answer", "missing", *WORDS],
    "answer_column": ["prompt", "missing", *WORDS],
    "image_column": ["prompt", "missing", *WORDS],
    "numbers": [*"2,2 4 5 2, ,2 2;3 2,3,4,5 ²".split(), *WORDS],
    "arithmetic_levels": [*"1,1 0 5 4, ,4 1;2".split(), *WORDS],
    "chat_template_kwargs": ["{", '{"a"}', '{"enable_thinking": false}', *WORDS],
    "output_dir": PATHS,
    "cache_dir": PATHS,
    "resume_from_checkpoint": [
        *"latest run run/ run/checkpoint-1 run/checkpoint-7 run/config.json whole".split(),
        "./run/../run",
        *PATHS,
    ],
    "weight": [
        *importlib.import_module("fade").POLICY_WEIGHTS,
        "unknown",
        "log_schedule",
        *WORDS,
    ],
    "weight_args": [
        *"k=4 k=0 k=5 k=2.5 k = k==4 =4 , k=1e400 k=nan k=² r=1 rewards=1 mix=1".split(),
        *"alpha=2 alpha=1e30 alpha=-1e30 alpha=1,alpha=2 delta=0 delta=1e-30 delta=nan".split(),
        *"beta=1 beta=0 beta=1e30 beta=-1 tau=0.5 tau=9 tau=nan gamma=1 gamma=1e30".split(),
        *"gamma=-9 alpha_s=1,alpha_f=-1 alpha_s=1e30,alpha_f=2".split(),
        *WORDS,
    ],
}
# what can be given together: each value is plausible by itself, or refused
TOGETHER = {
    name: values.split()
    for name, values in {
        "learning_rate": "0 1e-30 1 1e30 1e300",
        "temperature": "1e-30 1e-3 0.5 1e30 1e300",
        "beta": "0 1e-30 1 1e30 1e300",
        "entropy_coef": "0 1e-30 1 1e30 1e300",
        "epsilon": "1e-30 0.9 1e30 1e300",
        "epsilon_high": "1e-30 1e30 1e300",
        "max_grad_norm": "1e-30 1e30 1e300",
        "eval_temperature": "1e-30 1e30 1e300",
        "top_p": "1e-30 0.5 1 1.1",
        "num_generations": "1 2 3 4 8",
        "prompts_per_step": "1 2 3 4",
        "minibatch_size": f"1 2 3 4 8 12 16 32 {HUGE}",
        "num_iterations": "1 2",
        "max_steps": "0 1 2",
        "lr_scheduler_type": "linear cosine",
        "warmup_ratio": "0 1e-30 0.5 1 1.1",
        "weight_decay": "0 1e-30 0.1 1 1e30",
        "num_threads": "1 2",
        "microbatch_tokens": f"1 64 {HUGE}",
        "rollout_batch_size": f"1 3 {HUGE}",
        "max_completion_length": f"1 2 1024 1025 {HUGE}",
        "eval_max_completion_length": f"1 2 1025 4096 {HUGE}",
        "max_prompt_length": f"1 8 {HUGE}",
        "aggregation": "sequence token constant",
        "importance_sampling_level": "token sequence",
        "mask_truncated_completions": "true",
        "dynamic_sampling": "true",
        "max_redraws": "0 1 2",
        "gradient_checkpointing": "true",
        "bf16": "true",
        "eval_samples": "1 3 16",
        "eval_problems": "0 1 4",
        "vllm_importance_sampling_cap": "0 1e-30 1e30",
        "max_skipped_updates": "1 2",
        "sft_steps": "0 1",
        "system_prompt": "think boxed code",
        "model": " ".join(MODELS),
        "dataset": " ".join(DATA),
        "verifier": "number choice",
        "eval_dataset": " ".join([*DATA, "countdown"]),
        "eval_protocol": "agrae fade",
        "engine": "hf vllm",
        "save_steps": f"1 {HUGE}",
        "eval_steps": f"1 {HUGE}",
        "save_total_limit": f"0 1 {HUGE}",
        "fsdp": "false",
        "resume_from_checkpoint": "run latest folder",
        "output_dir": "run folder file",
        "alpha": "1e-30 1 1e30",
        "control_beta": "1e-30 1e30",
        "control_gamma": "1e-30 1e30",
        "success_weight": "0 1e30",
        "released_weight": "true",
        "method": "none clip_cov hard_focused w_reinforce grpo_lead",
        "format_share": "0.5 1 1e30",
        "format_weight": "1 1e30 1e300",
        "beta_pos": "0 1 1e30",
        "beta_neg": "0 1 1e30",
        "flip": "positive negative",
        "log_gain": "true",
        "target_entropy": "0 1e30 1e300",
        "ema_beta": "0 0.98 1",
        "alpha_max": "0.5 1 1e30 1e300",
        "equalize_learning_rate": "true",
        "scale_rewards": "false",
        "negatives_only": "true",
        "sample_level": "false",
        "group_level": "false",
    }.items()
}
TOGETHER |= {name: STRINGS[name] for name in ("weight", "weight_args")}

# ----------------------------------------------------------------------------------------- cases

# of a command line; FLAG stands for a flag of the script, HYPHENS for the same, VALUE for its value
SHAPES = [
    ["--FLAG"],
    ["--FLAG="],
    ["--FLAG", "--FLAG"],
    ["--FLAG", "VALUE", "--FLAG", "VALUE"],
    ["--FLAG=VALUE", "--HYPHENS=VALUE"],
    ["--HYPHENS", "VALUE"],
    ["--HYPHENS=VALUE"],
    ["--HYPHENS"],
    ["--FLAG", "VALUE", "stray"],
    ["-FLAG", "VALUE"],
    ["--FLAGx", "VALUE"],
    ["--no_FLAG"],
    ["--no-HYPHENS"],
    ["--no_FLAG", "VALUE"],
    ["--no_FLAG=VALUE"],
    ["--FLAG", "--no_FLAG"],
    ["---FLAG=VALUE"],
    ["--FLAG", "=", "VALUE"],
    ["--", "--FLAG", "VALUE"],
    ["--FLAG", "--"],
    ["--FLAG=--"],
    ["--FLAG=VALUE=VALUE"],
    ["--FLAG", "VALUE", "VALUE"],
    ["stray\nword"],
    [""],
    ["--"],
    ["--", "stray"],
    ["--", "--"],
    ["-"],
    ["-x"],
    ["--=1"],
    ["--unknown"],
    ["--unknown\nflag=1"],
    ["@file"],
    ["-h"],
    ["--help"],
    ["--HELP"],
    ["-h", "stray"],
    ["--FLAG", "-h"],
]


@dataclass(frozen=True)
class Case:
    """A command line, beside files of which the run's config.json may be damaged."""

    script: str
    given: list[str]
    damage: int | None = None  # what `damaged` does to config.json; None if it stays whole


@cache
def kinds_of(script):
    """The type of each flag of a script, without what its field says beside the type."""
    return get_type_hints(importlib.import_module(script).Config)


SHARED = get_type_hints(rlvr.flags.config.Config).keys()


def values_of(script, name):
    """What to give to a flag, by its name and its type."""
    kind = kinds_of(script)[name]
    if name in STRINGS:
        return STRINGS[name]
    if name == "compile":
        return [value for value in BOOLS if value.lower() != "true"]  # which is slow, too
    if get_origin(kind) in (types.UnionType, Union):  # with None
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return [*choices, *(choice.upper() for choice in choices), "unknown", *WORDS]
    if kind is int:
        return [*INTS, HUGE + ".0"] if name in SIZES else [*INTS, *LARGE_INTS]
    return {float: FLOATS, bool: BOOLS}[kind]


def line_of(rng, settings):
    """The flags of BASE and of a case, as `--flag value` or `--flag=value`."""
    base = dict(BASE)
    if {"numbers", "cache_dir"} & settings.keys():
        base["sft_steps"] = 1  # each has a policy of its own to warm up
    if "model" in settings:
        del base["sft_steps"]  # it has been taught
    if {"prompt_column", "answer_column"} & settings.keys():
        base["dataset"] = "good.jsonl"
    if "dataset" in base | settings:
        base["verifier"] = "number"
    if settings.get("resume_from_checkpoint"):
        base = {"max_steps": 2}
    given = []
    for name, value in (base | settings).items():
        if (name, value) == ("sft_steps", "None"):
            value = 10  # None teaches for 400 steps where no policy is shipped
        joined = rng.random() < 0.5 or str(value).startswith("-")
        given += [f"--{name}={value}"] if joined else [f"--{name}", str(value)]
    return given


def generate():
    """All cases, those of a kind side by side."""
    rng = random.Random(0)
    return [
        *one_flag_at_a_time(rng),
        *all_paths(rng),
        *several_flags_together(rng, 75),
        *odd_shapes(rng),
        *damaged_runs(rng, 80),
        *other_flags_for_a_run(rng, 30),
    ]


def one_flag_at_a_time(rng):
    """Flags that only one script has are given more often."""
    for script in SCRIPTS:
        for name in kinds_of(script):
            for value in rng.sample(values_of(script, name), 1 if name in SHARED else 3):
                yield Case(script, line_of(rng, {name: value}))


def all_paths(rng):
    for name in ("cache_dir", "output_dir", "resume_from_checkpoint"):
        for value in STRINGS[name]:
            yield Case(rng.choice(SCRIPTS), line_of(rng, {name: value}))


def several_flags_together(rng, count):
    """Two or three flags, and up to two that only this script has."""
    for i in range(count):
        script = SCRIPTS[i % len(SCRIPTS)]
        names = [name for name in kinds_of(script) if name in TOGETHER]
        own = [name for name in names if name not in SHARED]
        chosen = rng.sample(names, rng.choice([2, 3])) + rng.sample(own, min(len(own), i % 3))
        yield Case(script, line_of(rng, {name: rng.choice(TOGETHER[name]) for name in chosen}))


def odd_shapes(rng):
    """Each shape with a flag that is true or false, and with another one."""
    for shape in SHAPES:
        for wants_bool in (True, False):
            script = rng.choice(SCRIPTS)
            names = [
                name
                for name, kind in kinds_of(script).items()
                if name not in {*SIZES, "compile"} and (kind is bool) == wants_bool
            ]
            name = rng.choice(names)
            words = []
            for part in shape:
                value = str(rng.choice(values_of(script, name)))
                part = part.replace("FLAG", name).replace("HYPHENS", name.replace("_", "-"))
                words.append(part.replace("VALUE", value))
            yield Case(script, line_of(rng, {}) + words)


def damaged_runs(rng, count):
    for i in range(count):
        given = ["--resume_from_checkpoint", "run", "--max_steps", "1"]
        yield Case(rng.choice(SCRIPTS), given, damage=i)


def other_flags_for_a_run(rng, count):
    """An intact run is resumed with one or two other flags."""
    for i in range(count):
        script = SCRIPTS[i % len(SCRIPTS)]
        names = rng.sample(list(kinds_of(script)), rng.choice([1, 2]))
        changes = {name: rng.choice(values_of(script, name)) for name in names}
        yield Case(script, line_of(rng, {**changes, "resume_from_checkpoint": "run"}))


def damaged(text, number):
    """The bytes of a damaged config.json; each number has a random stream of its own."""
    rng = random.Random(number)
    kinds = "value value whole missing value extra whole cut byte cut".split()
    kind = kinds[number % len(kinds)]
    if kind == "whole":
        wholes = [
            "",
            "null",
            "3",
            "[]",
            "[{}]",
            '"text"',
            "{}",
            "NaN",
            "not JSON",
            200_000 * "[",
            "\0",
            200_000 * '{"a":',
            "\ufeff" + text,
            f"[{text}]",
            text + text,
            5000 * "1",
        ]
        return wholes[number // 5].encode()
    where = rng.randrange(len(text))
    if kind == "cut":
        return text.encode()[:where]
    if kind == "byte":
        return text.encode()[:where] + bytes([rng.randrange(256)]) + text.encode()[where + 1 :]
    saved = json.loads(text)
    if kind == "missing":
        del saved[rng.choice([*saved])]
    elif kind == "extra":
        name = rng.choice(["", "unknown", "SEED", "--seed", "a\nb", "%s"])
        saved[name] = rng.choice([1, None, [], "x"])
    else:
        name = rng.choice([name for name in saved if name not in {"sft_steps", "eval_problems"}])
        numbers = [-1, 0, 1.5, 10**400, 2**63, math.nan, math.inf]
        texts = ["", "many", "a\nb", "--seed", "\ud800"]
        nested = [[], {}, [1, 2], {"a": {"b": []}}]
        saved[name] = rng.choice([None, True, False, *numbers, *texts, *nested])
    return json.dumps(saved, indent=2).encode()

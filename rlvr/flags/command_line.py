"""The command line, read by argparse into a script's Config."""

import argparse
import difflib
import inspect
import json
import os
import re
import shlex
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

from rlvr import progress, world
from rlvr.errors import UserError, fail, loading
from rlvr.flags.config import TINY, Config, refuse_unread
from rlvr.tasks.sources import EMBEDDED

C = TypeVar("C", bound=Config)
CHECKPOINT = re.compile("checkpoint-[0-9]+")  # the name of its folder
OF_THE_DATA = (
    *("dataset", "eval_dataset", "numbers", "columns", "verifier", "system_prompt", "user_suffix"),
    *("chat_template_kwargs", "tool", "max_completion_length"),
)
SECTIONS = {  # of --help, by their first flag
    "model": "model and task",
    "seed": "the run",
    "prompts_per_step": "rollout",
    "learning_rate": "loss and update",
    "eval_dataset": "evaluation",
    "microbatch_tokens": "memory and ranks",
    "save_steps": "checkpoints",
}

# The defaults if the policy comes from the hub, or if the data set is not Countdown.
LARGE = dict(
    learning_rate=1e-6,
    max_steps=200,
    num_generations=8,
    minibatch_size=128,
    microbatch_tokens=16384,
    gradient_checkpointing=True,
    decode_batch_size=64,
    max_completion_length=1024,
    eval_samples=4,
)

# On top of LARGE, the defaults for arithmetic: a model of some 100 M parameters learns it on a CPU
# within minutes.
ARITHMETIC = dict(
    learning_rate=1e-5,
    max_steps=24,
    prompts_per_step=8,
    minibatch_size=64,
    max_prompt_length=64,
    max_completion_length=10,
    eval_problems=32,
    eval_samples=8,
    eval_steps=8,
    microbatch_tokens=1024,
    gradient_checkpointing=False,
    decode_batch_size=256,
)


def parse_flags(config_class: type[C], variants: dict[str, dict]) -> C:
    """Return the flags of the command line as a checked config.

    A flag that is given wins over the preset of --variant. The preset wins over the flags of a
    resumed run, and these win over the defaults. A mistake ends the program with one line.
    """
    try:
        return read_flags(config_class, variants, sys.argv[1:])
    except UserError as error:
        if world.LOCAL_RANK:
            time.sleep(30)  # the first rank here says the same, and then torchrun ends this one
        fail(error)


def make_config(config_class: type[C], variants: dict[str, dict], flags: dict) -> C:
    """Return flags that are given from Python as a checked config, like parse_flags.

    A flag that is None counts as not given. UserError for a mistake.
    """
    flags = {name: value for name, value in flags.items() if value is not None}
    if "help" in flags:
        raise UserError("help is for the command line: --help prints all flags")
    for field in fields(config_class):
        value = flags.get(field.name, False)
        if isinstance(field.default, bool) and not isinstance(value, bool):
            raise UserError(f"{field.name}={value!r}: it takes True or False")
    return read_flags(config_class, variants, as_arguments(flags))


def as_arguments(flags: dict) -> list[str]:
    """Return what to type for these flags."""
    arguments = []
    for name, value in flags.items():
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no_{name}")
        else:
            arguments += [f"--{name}", str(value)]
    return arguments


def read_flags(config_class: type[C], variants: dict[str, dict], arguments: list[str]) -> C:
    """Return what parse_flags returns. Raise UserError for a mistake."""
    if {"-h", "--help"} & {*arguments}:
        others = [argument for argument in arguments if argument not in ("-h", "--help")]
        show_help(config_class, variants, others)
    typed = parse(config_class, arguments)
    request = config_class(**typed)
    saved = {}
    if request.resume_from_checkpoint:
        folder, checkpoint = find_run(request.resume_from_checkpoint, request.script)
        typed["resume_from_checkpoint"] = str(checkpoint or folder)  # what "latest" is now
        saved = read_saved_flags(request, folder)
    config = config_class(**defaults_for(request) | saved | variants[request.variant] | typed)
    config.check()
    refuse_unread(config, typed)
    if saved:
        check_resumed(config, saved)
    typed.pop("resume_from_checkpoint", None)
    config.typed = typed
    hint_at_the_run_of(config)
    return config


def hint_at_the_run_of(config: Config) -> None:
    """Print the flags of the data that a checkpoint's run had, where they are others here."""
    model = Path(config.model)
    file = model.parent / "config.json"
    if CHECKPOINT.fullmatch(model.name) and file.exists():
        with loading(file, TypeError):
            of_run = {**json.loads(file.read_text())}
        here = {name: getattr(config, name) for name in OF_THE_DATA}
        others = {x: of_run[x] for x in here if x in of_run and of_run[x] != here[x]}
        if others:
            typed = shlex.join(as_arguments(others))
            progress.write(f"--model {model}: its run had {typed}, unlike this one")


def show_help(config_class: type[Config], variants: dict, arguments: list[str]) -> None:
    """Print all flags, with the values that they have beside these arguments, and exit."""
    try:
        typed = parse(config_class, arguments)
    except UserError:  # the user may ask for help because of a mistake
        typed = {}
    request = config_class(**typed)
    parse(config_class, ["--help"], defaults_for(request) | variants[request.variant] | typed)


def defaults_for(config: Config) -> dict:
    """Return the defaults that differ from those of the tiny policy on Countdown."""
    is_from_hub = config.model not in TINY and not os.path.exists(config.model)
    if {config.dataset, *config.eval_names} == {"countdown"} and not is_from_hub:
        return {}
    return LARGE | (ARITHMETIC if config.dataset in EMBEDDED.keys() - {"countdown"} else {})


def read_saved_flags(config: Config, folder: Path) -> dict:
    """Return the flags of the run in a folder. Raise UserError if they are not this script's."""
    with loading(f"{folder}/config.json", TypeError):  # of JSON that is no object
        saved = {**json.loads((folder / "config.json").read_text())}
    script = config.script.name  # a copy of a script has its flags
    saved.pop("record", None)
    saved.pop("typed", None)
    owner = saved.pop("script", "no script")
    if owner != script:
        raise UserError(f"--resume_from_checkpoint {folder} is {owner}'s run, and this is {script}")
    others = saved.keys() ^ {field.name for field in fields(config) if field.init}
    if others:
        raise UserError(
            f"--resume_from_checkpoint {folder} is of another version: {', '.join(sorted(others))}"
        )
    return saved


def find_run(path, script: Path) -> tuple[Path, Path | None]:
    """Return the run folder that `path` stands for, and the checkpoint if `path` is one.

    `path` is a run folder, one of its checkpoints, or "latest": the script's last training run in
    runs/. UserError if there is no run.
    """
    if path == "latest":
        configs = sorted(Path("runs").glob("*/config.json"), key=os.path.getmtime)
        runs = [config.parent for config in configs if is_training_of(script.name, config)]
        if not runs:
            raise UserError(f"--resume_from_checkpoint latest: {script.name} has no run in runs/")
        path = runs[-1]
    path = Path(path)
    folder, checkpoint = (path.parent, path) if CHECKPOINT.fullmatch(path.name) else (path, None)
    if not (os.path.exists(path) and os.path.exists(folder / "config.json")):
        raise UserError(f"--resume_from_checkpoint {path}: no run there")
    return folder, checkpoint


def is_training_of(script: str, config: Path) -> bool:
    """Return whether a config.json is of a script's run, and not of an evaluation or a model."""
    try:
        saved = json.loads(config.read_text())
        return saved["script"] == script and saved["max_steps"] > 0
    except (OSError, ValueError, TypeError, KeyError):
        return False


def check_resumed(config: Config, saved: dict) -> None:
    """Raise UserError if a flag differs from the run's, and may not."""
    if not config.max_steps:
        raise UserError("--max_steps 0 evaluates only: give the checkpoint as --model instead")
    changed = [
        f"--{name} {getattr(config, name)} (was {value})"
        for name, value in saved.items()
        if getattr(config, name) != value and not config.may_change(name)
    ]
    if changed:
        raise UserError(f"a resumed run keeps its flags but for a few: {', '.join(changed)}")


def parse(config_class: type[Config], arguments: list[str], in_force: dict | None = None) -> dict:
    """Return the flags that are given, with their values. Raise UserError for a mistake.

    --help shows the values in force, where they differ from the fields' defaults.
    """
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--flag value] ...",
        description="A flag's value, given the other flags that are typed, is in parentheses. "
        "--no_flag turns a flag off.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28),
    )
    parser._negative_number_matcher = re.compile(r"-\.?\d|-inf")  # by default not for -1e-4
    kinds, own = get_type_hints(config_class), inspect.get_annotations(config_class)
    section = parser
    for field in fields(config_class):
        if not field.init:  # `typed`
            continue
        if not field.metadata:
            raise UserError(f"Config.{field.name} must be made by flag(default, help)")
        if field.name in SECTIONS:
            section = parser.add_argument_group(SECTIONS[field.name])
        where = parser if field.name in own else section  # a script's own flags come first
        kind, *others = get_args(kinds[field.name]) or [kinds[field.name]]  # float of float | None
        choices = field.metadata["choices"] or [kind, *others] * isinstance(kind, str)
        listed = f" [{', '.join(choices)}]" if choices else ""
        default = (in_force or {}).get(field.name, field.default)
        default = "" if default in (None, "") else f" ({default})"
        text = f"{field.metadata['help']}{listed}{default}".replace("%", "%%")
        if kind is bool:
            where.add_argument(f"--{field.name}", action="store_true", help=text)
            where.add_argument(
                f"--no_{field.name}", dest=field.name, action="store_false", help=argparse.SUPPRESS
            )
        else:
            options: dict = dict(choices=choices) if choices else dict(type=kind)
            where.add_argument(f"--{field.name}", metavar="", help=text, **options)
    try:
        typed, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from None
    if unknown:
        word = unknown[0].lstrip("-")
        kinds.pop("typed")  # which is no flag
        of_initials = [n for n in kinds if "".join(part[0] for part in n.split("_")) == word]
        names = [*kinds, *(f"no_{name}" for name in kinds if kinds[name] is bool)]
        near = of_initials or difflib.get_close_matches(word, names, 1)  # lr is learning_rate
        hint = f"; perhaps you meant --{near[0]}" if near else ""
        if unknown[0].lower() in ("true", "false", "yes", "no", "on", "off", "0", "1"):
            hint = "; a switch takes no value: --NAME turns it on, and --no_NAME off"
        raise UserError(f"no such flag: {' '.join(unknown)}{hint}")
    return vars(typed)

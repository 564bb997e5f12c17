"""The command line, read by argparse into a script's Config."""

import argparse
import difflib
import json
import os
import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

from rlvr import world
from rlvr.errors import UserError, fail
from rlvr.flags.config import TINY, Config, refuse_unread
from rlvr.flags.presets import ARITHMETIC, LARGE, PROTOCOLS
from rlvr.flags.run_folders import find_run
from rlvr.tasks.sources import EMBEDDED

C = TypeVar("C", bound=Config)


def parse_flags(config_class: type[C], variants: dict[str, dict]) -> C:
    """Return the flags of the command line as a checked config.

    A flag that is given wins over the presets of --eval_protocol and --variant, these win over the
    flags of a resumed run, and those over the defaults. A mistake ends the program in one line.
    """
    try:
        return read_flags(config_class, variants, sys.argv[1:])
    except UserError as error:
        if world.LOCAL_RANK:
            time.sleep(30)  # the first rank here says the same, and then torchrun ends this one
        fail(str(error))


def read_flags(config_class: type[C], variants: dict[str, dict], arguments: list[str]) -> C:
    """Return what parse_flags returns. Raise UserError for a mistake."""
    typed = parse(config_class, arguments)
    if {"max_steps", "num_train_epochs"} <= typed.keys():
        raise UserError("--max_steps and --num_train_epochs: give one of the two")
    given = config_class(**typed)
    saved = {}
    if given.resume_from_checkpoint:
        folder, checkpoint = find_run(given.resume_from_checkpoint)
        typed["resume_from_checkpoint"] = str(checkpoint or folder)  # what "latest" is now
        saved = read_saved_flags(given, folder)
    presets = saved | variants[given.variant] | PROTOCOLS[given.eval_protocol]
    config = config_class(**defaults_for(given) | presets | typed)
    if "max_steps" in typed:  # which then wins over the epochs of a resumed run
        config.num_train_epochs = None
    config.check()
    refuse_unread(config, typed)
    if saved:
        check_resumed(config, saved)
    return config


def defaults_for(given: Config) -> dict:
    """Return the defaults that differ from those of the tiny policy on Countdown."""
    is_from_hub = given.model not in TINY and not os.path.exists(given.model)
    if {given.dataset, *given.eval_names} == {"countdown"} and not is_from_hub:
        return {}
    return LARGE | (ARITHMETIC if given.dataset in EMBEDDED.keys() - {"countdown"} else {})


def read_saved_flags(given: Config, folder: Path) -> dict:
    """Return the flags of the run in a folder. Raise UserError if they are not this script's."""
    try:
        saved = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {folder}/config.json: {error}") from error
    script = Path(sys.argv[0]).name  # a copy of a script has its flags
    owner = saved.pop("script", "no script")
    if owner != script:
        raise UserError(f"--resume_from_checkpoint {folder} is {owner}'s run, and this is {script}")
    others = saved.keys() ^ {field.name for field in fields(given)}
    if others:
        raise UserError(
            f"--resume_from_checkpoint {folder} is of another version: {', '.join(sorted(others))}"
        )
    if given.output_dir and Path(given.output_dir).absolute() != folder.absolute():
        raise UserError(
            f"--output_dir {given.output_dir}: a resumed run goes on in its own folder, {folder}"
        )
    return saved


def check_resumed(config: Config, saved: dict) -> None:
    """Raise UserError if a flag that the mathematics depends on differs from the run's."""
    if not config.max_steps:
        raise UserError("--max_steps 0 evaluates only: give the checkpoint as --model instead")
    changed = [
        f"--{name} {getattr(config, name)} (was {value})"
        for name, value in saved.items()
        if getattr(config, name) != value and not config.may_change(name)
    ]
    if changed:
        raise UserError(
            f"a resumed run keeps what its mathematics depends on: {', '.join(changed)}"
        )


def parse(config_class: type[Config], arguments: list[str]) -> dict:
    """Return the flags that are given, with their values. Raise UserError for a mistake."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--flag value] ...",
        description="This script's own flags, then those of all scripts (defaults in parentheses).",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=35),
    )
    parser._negative_number_matcher = re.compile(r"-\.?\d|-inf|-nan")  # by default not for -1e-4
    kinds, own = get_type_hints(config_class), vars(config_class).get("__annotations__", {})
    section = parser
    for field in fields(config_class):
        rules, kind = field.metadata, kinds[field.name]
        if rules["section"]:
            section = parser.add_argument_group(rules["section"])
        where = parser if field.name in own else section  # a script's own flags come first
        options = reader_of(kind, rules["choices"])
        choices = f" [{', '.join(options['choices'])}]" if "choices" in options else ""
        text = f"{rules['help']}{choices} ({field.default})".replace("%", "%%")
        where.add_argument(f"--{field.name}", help=text, **options)
        if kind in (bool, bool | None):
            where.add_argument(
                f"--no_{field.name}", dest=field.name, action="store_false", help=argparse.SUPPRESS
            )
    try:
        typed, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from None
    if unknown:
        near = difflib.get_close_matches(unknown[0].lstrip("-"), kinds, 1)
        hint = f"; perhaps you meant --{near[0]}" if near else ""
        raise UserError(f"no such flag: {' '.join(unknown)}{hint}")
    return vars(typed)


def reader_of(kind, choices: tuple[str, ...]) -> dict:
    """Return what argparse has to know of a flag's type: str, int, float, bool, or a Literal."""
    if kind in (bool, bool | None):
        return dict(type=true_or_false, nargs="?", const=True, metavar="bool")
    parts = get_args(kind)  # of `int | None` or Literal["auto", "hf"]
    choices = choices or tuple(part for part in parts if isinstance(part, str))
    if choices:
        return dict(choices=choices, metavar="str")
    kind = parts[0] if parts else kind
    return dict(type=kind, metavar=kind.__name__)


def true_or_false(text: str) -> bool:
    """Return the value of `--bf16 false`, as in TRL; `--no_bf16` says the same."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"takes true or false, got {text!r}")
    return text.lower() == "true"

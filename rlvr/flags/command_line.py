"""The command line, read by argparse into a script's Config."""

import argparse
import difflib
import inspect
import json
import os
import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from rlvr import world
from rlvr.errors import UserError, fail
from rlvr.flags.presets import ARITHMETIC, LARGE, PROTOCOLS
from rlvr.flags.run_folders import find_run


def parse_flags(config_class: type, variants: dict[str, dict]):
    """The flags of the command line as a checked config.

    A flag that is given wins over the presets of --eval_protocol and --variant, these win over the
    flags of a resumed run, and those over the defaults. What is wrong ends the program in one line.
    """
    try:
        return read_flags(config_class, variants, sys.argv[1:])
    except UserError as error:
        if world.LOCAL_RANK:
            time.sleep(30)  # the first rank here tells the same, and then torchrun ends this one
        fail(str(error))


def read_flags(config_class: type, variants: dict[str, dict], arguments: list[str]):
    """What parse_flags gives; UserError for what is wrong."""
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
    config.typed = frozenset(typed)
    if "max_steps" in typed:  # which then wins over the epochs of a resumed run
        config.num_train_epochs = None
    config.check()
    if saved:
        check_resumed(config, saved)
    return config


def defaults_for(given) -> dict:
    """The defaults that are others than those of the tiny policy on Countdown."""
    is_from_hub = given.model != "tiny" and not os.path.exists(given.model)
    if {given.dataset, *given.eval_names} == {"countdown"} and not is_from_hub:
        return {}
    return LARGE | (ARITHMETIC if given.dataset == "arithmetic" else {})


def read_saved_flags(given, folder: Path) -> dict:
    """The flags of the run in a folder; UserError where they are not this script's."""
    saved = json.loads((folder / "config.json").read_text())
    script = Path(sys.argv[0]).name  # a copy of a script has its flags
    names = {field.name for field in fields(given)}
    if saved.get("script") != script or saved.keys() != {"script", *names}:
        raise UserError(
            f"--resume_from_checkpoint {folder} is no run of {script} with today's flags"
        )
    if given.output_dir and Path(given.output_dir).absolute() != folder.absolute():
        raise UserError(
            f"--output_dir {given.output_dir}: a resumed run goes on in its own folder, {folder}"
        )
    # A resumed run does not hand on that its model's code may be run.
    return {name: saved[name] for name in names - {"trust_remote_code"}}


def check_resumed(config, saved: dict) -> None:
    """UserError where a flag that the mathematics depends on differs from the run's."""
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


def parse(config_class: type, arguments: list[str]) -> dict:
    """The flags that stand there, with their values; UserError for what is wrong."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--flag value] ...",
        description=config_class.__doc__,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=6),
    )
    comments, kinds = comments_of(config_class), get_type_hints(config_class)
    for name, kind in kinds.items():
        text = f"{comments[name]} (default: {getattr(config_class, name)})".replace("%", "%%")
        parser.add_argument(f"--{name}", help=text, **reader_of(kind))
        if kind is bool:
            hidden = dict(action="store_const", const=False, help=argparse.SUPPRESS)
            parser.add_argument(f"--no_{name}", dest=name, **hidden)
    try:
        typed, unknown = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from None
    if unknown:
        near = difflib.get_close_matches(unknown[0].lstrip("-"), kinds, 1)
        hint = f"; perhaps you meant --{near[0]}" if near else ""
        raise UserError(f"no such flag: {' '.join(unknown)}{hint}")
    return vars(typed)


def reader_of(kind) -> dict:
    """What argparse is to know of a flag that is str, int, float, bool, a Literal, or also None."""
    if kind is bool:
        return dict(type=true_or_false, nargs="?", const=True, metavar="true, false")
    if type(None) in get_args(kind):  # of `int | None`, say
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return dict(choices=get_args(kind))
    return dict(type=kind, metavar=kind.__name__)


def true_or_false(text: str) -> bool:
    """The value of `--fsdp false`, as in TRL; `--no_fsdp` is the same."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"takes true or false, got {text!r}")
    return text.lower() == "true"


def comments_of(config_class: type) -> dict[str, str]:
    """Field -> the comment behind it, or in the lines above it."""
    found = {}
    for part in reversed(config_class.__mro__[:-1]):
        above = []
        for line in inspect.getsource(part).splitlines():
            code, _, comment = line.partition("# ")
            field = re.match(r"    (\w+): ", code)
            if field:
                found[field[1]] = comment or " ".join(above)
            above = [*above, comment] if comment and not code.strip() else []
    return found

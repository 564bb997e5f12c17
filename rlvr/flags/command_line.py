"""The command line, read by argparse into a script's Config."""

import argparse
import difflib
import inspect
import json
import re
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

from rlvr import world
from rlvr.errors import UserError, fail, reading
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
    given = parse(config_class(), arguments)
    saved = {}
    if given.resume_from_checkpoint:
        folder, checkpoint = find_run(given.resume_from_checkpoint)
        given.resume_from_checkpoint = str(checkpoint or folder)  # what "latest" is now
        saved = read_saved_flags(given, folder)
    presets = saved | variants[given.variant] | PROTOCOLS[given.eval_protocol]
    # A resumed run does not hand on that its model's code may be run.
    shown = [
        f"--{name}={value}"
        for name, value in presets.items()
        if value is not None and name != "trust_remote_code"
    ]
    typed = names_of(arguments)
    if {"max_steps", "num_train_epochs"} <= typed:
        raise UserError("--max_steps and --num_train_epochs: give one of the two")
    try:
        config = parse(config_class(**defaults_for(given)), shown + arguments)
        config.resume_from_checkpoint = given.resume_from_checkpoint
        config.typed = typed
        if "max_steps" in typed:  # which then wins over the epochs of a resumed run
            config.num_train_epochs = None
        config.check()
    except UserError as error:
        if not saved:
            raise
        source = f"the flags that are not given are those of {folder}/config.json"
        raise UserError(f"{error} ({source})") from None
    if saved:
        check_resumed(config, saved)
    return config


def defaults_for(given) -> dict:
    """The defaults that are others than those of the tiny policy on Countdown."""
    data_sets = {given.dataset, *given.eval_dataset.split(",")} - {"countdown", ""}
    with reading(f"--model {given.model}"):
        from_hub = given.model != "tiny" and not Path(given.model).exists()
    if not data_sets and not from_hub:
        return {}
    return LARGE | (ARITHMETIC if given.dataset == "arithmetic" else {})


def names_of(arguments: list[str]) -> set[str]:
    """The flags that stand on a command line; `--no_flag` is `--flag`."""
    flags = [argument for argument in arguments if argument.startswith("-")]
    found = [flag.partition("=")[0].lstrip("-").replace("-", "_") for flag in flags]
    return {*found, *(name.removeprefix("no_") for name in found)}


def read_saved_flags(given, folder: Path) -> dict:
    """The flags of the run in a folder; UserError where they are not this script's."""
    try:
        saved = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {folder}/config.json: {error}") from error
    names = {"script", *(field.name for field in fields(given))}
    if not isinstance(saved, dict) or saved.keys() != names:
        raise UserError(
            f"--resume_from_checkpoint {folder} is not a run of this script: its flags are others"
        )
    script = saved.pop("script")
    if script != Path(sys.argv[0]).name:  # a copy of a script has its flags
        raise UserError(f"--resume_from_checkpoint {folder} is a run of {script}")
    if given.output_dir and Path(given.output_dir).absolute() != folder.absolute():
        raise UserError(
            f"--output_dir {given.output_dir}: a resumed run goes on in its own folder, {folder}"
        )
    return saved


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
            "a resumed run keeps what its mathematics depends on; differences: "
            + ", ".join(changed)
        )


def parse(config, arguments: list[str]):
    """Set in the config what the arguments give -> the config; UserError for what is wrong."""
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--flag value] ...",
        description=type(config).__doc__,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=6),
    )
    comments, kinds = comments_of(type(config)), get_type_hints(type(config))
    for name, kind in kinds.items():
        text = f"{comments.get(name, '')} (default: {getattr(config, name)})".replace("%", "%%")
        parser.add_argument(f"--{name}", help=text, **reader_of(kind))
        if kind is bool:
            hidden = dict(action="store_const", const=False, help=argparse.SUPPRESS)
            parser.add_argument(f"--no_{name}", dest=name, **hidden)
    underscored = [
        re.sub("^--[^=]+", lambda flag: "--" + flag[0][2:].replace("-", "_"), argument)
        for argument in arguments
    ]
    if any(argument == "--" or argument.endswith("=--") for argument in arguments):
        raise UserError("-- stands for no flag and no value")  # argparse would read it as a list
    try:
        _, unknown = parser.parse_known_args(underscored, config)
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from None
    if unknown:
        words = [word.lstrip("-") for word in unknown]
        near = [name for word in words for name in difflib.get_close_matches(word, kinds, 1)]
        hint = f"; perhaps you meant --{' or --'.join(near)}" if near else ""
        raise UserError(f"no such flag: {' '.join(unknown)}{hint}")
    return config


def reader_of(kind) -> dict:
    """What argparse is to know of a flag that is str, int, float, bool, a Literal, or also None."""
    if kind is bool:
        return dict(type=true_or_false, nargs="?", const=True, metavar="true, false")
    may_be_none = type(None) in get_args(kind)
    inner = get_args(kind)[0] if may_be_none else kind
    choices = [*get_args(inner)]  # of a Literal
    number_or_text = str if choices else inner

    def read(text: str):
        return None if may_be_none and text == "None" else number_or_text(text)

    read.__name__ = number_or_text.__name__  # which argparse shows
    if choices:
        return dict(type=read, choices=choices + [None] * may_be_none)
    return dict(type=read, metavar=read.__name__)


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

"""The command line, read by tyro into a script's Config."""

import contextlib
import io
import json
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

from rlvr.errors import UserError, fail, reading
from rlvr.flags.presets import ARITHMETIC, CHOSEN_BY_MEMORY, LARGE, PROTOCOLS
from rlvr.flags.run_folders import find_run

import tyro


def parse_flags(config_class: type, variants: dict[str, dict]):
    """The flags of the command line as a checked config.

    A flag that is given wins over the presets of --eval_protocol and --variant, these win over the
    flags of a resumed run, and those over the defaults. What is wrong ends the program in one line.
    """
    try:
        given = parse(config_class, config_class(), sys.argv[1:])
        saved = {}
        if given.resume_from_checkpoint:
            folder, checkpoint = find_run(given.resume_from_checkpoint)
            given.resume_from_checkpoint = str(checkpoint or folder)  # what "latest" is now
            saved = read_saved_flags(given, folder)
        defaults = config_class(**defaults_for(given))
        presets = saved | variants[given.variant] | PROTOCOLS[given.eval_protocol]
        # A resumed run does not hand on that its model's code may be run.
        shown = [
            f"--{name}={value}"
            for name, value in presets.items()
            if value is not None and name != "trust_remote_code"
        ]
        typed = names_of(sys.argv[1:])
        if {"max_steps", "num_train_epochs"} <= typed:
            raise UserError("--max_steps and --num_train_epochs: give one of the two")
        with naming(f"{folder}/config.json" if saved else None):
            config = parse(config_class, defaults, shown + sys.argv[1:])
            config.resume_from_checkpoint = given.resume_from_checkpoint
            config.free = CHOSEN_BY_MEMORY - names_of(shown + sys.argv[1:])
            if "max_steps" in typed:  # which then wins over the epochs of a resumed run
                config.num_train_epochs = None
            config.check()
        if saved:
            check_resumed(config, saved)
    except UserError as error:
        fail(str(error))
    return config


@contextlib.contextmanager
def naming(file: str | None):
    """Add to a UserError of the block the file from which flags have come, if there is one."""
    try:
        yield
    except UserError as error:
        source = f" (the flags that are not given are those of {file})" if file else ""
        raise UserError(f"{error}{source}") from None


def defaults_for(given) -> dict:
    """The defaults that are others than those of the tiny policy on Countdown."""
    if not is_large(given):
        return {}
    return LARGE | (ARITHMETIC if given.dataset == "arithmetic" else {})


def is_large(given) -> bool:
    """Whether these flags ask for more than the tiny policy on Countdown."""
    data_sets = {given.dataset, *given.eval_dataset.split(",")} - {"countdown", ""}
    with reading(f"--model {given.model}"):
        from_hub = given.model != "tiny" and not Path(given.model).exists()
    return bool(data_sets) or from_hub


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


def parse(config_class: type, defaults, arguments: list[str]):
    """A config from command-line arguments by tyro; UserError, in one line, for what it refuses."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output):
            return tyro.cli(
                config_class,
                args=with_tyros_booleans(config_class, arguments),
                default=defaults,
                use_underscores=True,
            )
    except SystemExit as ended:
        if ended.code:
            raise UserError(in_one_line(output.getvalue())) from None
        raise  # of --help


def with_tyros_booleans(config_class: type, arguments: list[str]) -> list[str]:
    """`--fsdp false` and `--fsdp=False`, as in TRL, become tyro's `--no_fsdp`.

    UserError for a value that is neither true nor false.
    """
    kinds = get_type_hints(config_class)
    joined, rest = [], [*arguments]
    while rest:
        argument = rest.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        is_bool = argument.startswith("--") and kinds.get(name.replace("-", "_")) is bool
        if is_bool and not equals and rest and not rest[0].startswith("-"):
            equals, value = "=", rest.pop(0)
        if is_bool and equals:
            if value.lower() not in ("true", "false"):
                raise UserError(f"--{name} takes true or false, got {value!r}")
            argument = f"--{name}" if value.lower() == "true" else f"--no_{name}"
        joined.append(argument)
    return joined


def in_one_line(box: str) -> str:
    """What stands in the box that tyro draws around an error, without its pointer to --help.

    Rules divide the box into sections. They are hyphens where stdout is not UTF-8, and all is
    coloured where stdout is a terminal.
    """
    without_colours = re.sub(r"\x1b\[[\d;]*m", "", box)
    sections = [[]]
    for line in without_colours.splitlines()[1:]:  # the first has the title
        text = line.strip("│╭╮╰╯ ")
        if text.strip("─-"):
            sections[-1].append(text)
        elif text:
            sections.append([])
    first, *others = filter(None, sections)
    message = " ".join(first)
    # where a flag may also be None, tyro tells both attempts; the last one matters
    message = re.sub(r"no type matching .* - <class '\w+'>: ", "", message)
    for section in others:
        if section[0].startswith(("Perhaps you meant", "Arguments similar to")):
            names = [line.split()[0] for line in section if line.startswith("--")]
            message += f"; perhaps you meant {' or '.join(names)}"
    return message

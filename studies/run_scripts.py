"""Runs of the scripts in this process, and the compressed file that keeps a line of each run."""

import contextlib
import gzip
import hashlib
import importlib
import json
import shlex
import sys
from pathlib import Path
from types import ModuleType

import rlvr.flags.command_line
import rlvr.training.run
from rlvr.errors import UserError, reading


def launch_quietly(command: str, folder: Path) -> None:
    """Run a script in this process, into `folder`; what it prints goes into a log beside it.

    UserError where the script ends with one.
    """
    rlvr.training.run.Run.finish = finish
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(f"{folder}.log", "w"))
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        try:
            rlvr.training.launch(
                *main_and_config(f"{command} {shlex.quote(f'--output_dir={folder}')}")
            )
        except SystemExit as end:  # what the script says of it is in the log
            raise UserError(
                f"{command} has ended with exit code {end.code}: see {log.name}"
            ) from None


def finish(run) -> None:
    """In place of Run.finish, which draws curves.png for as long as four steps take.

    A run that a signal has stopped is not finished.
    """
    if run.stopped:
        raise KeyboardInterrupt


def main_and_config(command: str):
    """What launch takes for a command: the main of a script, and its flags as a config."""
    script, *flags = shlex.split(command)
    module = load_script(script)
    sys.argv = [module.__file__, *flags]
    return module.main, rlvr.flags.parse_flags(module.Config, module.VARIANTS)


def digest_of(content: bytes) -> str:
    """Eight letters and digits; another content has others."""
    return hashlib.sha256(content).hexdigest()[:8]


def load_script(script: str) -> ModuleType:
    """A script of the project by its name, or any file as <path>@<digest of its content>.

    UserError where the file has another content by now, or cannot be read.
    """
    if "@" not in script:
        return importlib.import_module(script)
    path, _, digest = script.rpartition("@")
    with reading(path):
        source = Path(path).read_bytes()
    if digest_of(source) != digest:
        raise UserError(f"{path} has changed since its runs began: start again")
    folder = str(Path(path).parent)
    if folder not in sys.path:
        sys.path.append(folder)  # what stands beside the file can be imported
    module = ModuleType(script)
    module.__file__ = path
    sys.modules[script] = module  # where dataclasses look for it
    exec(compile(source, path, "exec"), vars(module))
    return module


def read_results(results: Path) -> dict[tuple, dict]:
    """The line of each finished run by its base, name and seed; none where there is no file."""
    if not results.exists():
        return {}
    with gzip.open(results, "rt") as opened:
        lines = [json.loads(line) for line in opened]
    return {(line["base"], line["name"], line["seed"]): line for line in lines}


def add_result(results: Path, line: dict) -> None:
    """Write the results with one line more; a kill leaves the former file or the new one.

    The same lines give the same bytes, whatever the time and the order of adding them.
    """
    found = read_results(results)
    found[line["base"], line["name"], line["seed"]] = line
    text = "".join(json.dumps(found[key]) + "\n" for key in sorted(found))
    results.parent.mkdir(parents=True, exist_ok=True)
    unfinished = results.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(text.encode(), mtime=0))
    unfinished.replace(results)

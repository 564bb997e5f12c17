"""Training runs of a study: running them on all cores, and what is finished already."""

import contextlib
import hashlib
import importlib
import shlex
import shutil
import sys
from pathlib import Path
from types import ModuleType

import rlvr.flags
import rlvr.run
from rlvr.errors import UserError, reading

from processes import in_workers


def missing_runs(jobs: dict[Path, str], folder: Path) -> list[Path]:
    """The runs that have not been made by the same command."""
    made = {file.parent: file.read_text() for file in folder.glob("*/*/command.txt")}
    return [job for job in jobs if made.get(job) != jobs[job]]


def train_all(jobs: dict[Path, str], folder: Path, processes: int) -> None:
    """Make every run that is missing, each by one thread."""
    missing = [(job, jobs[job]) for job in missing_runs(jobs, folder)]
    for _ in in_workers(train, missing, processes):
        pass  # each run stays in its folder


def train(folder: Path, command: str) -> None:
    """One run in this process, as its command line does it.

    The folder appears when the run is finished. UserError where the script ends with one.
    """
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    launch_quietly(command, unfinished)
    for checkpoint in unfinished.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    (unfinished / "command.txt").write_text(command)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


def launch_quietly(command: str, folder: Path) -> None:
    """Run a script in this process, into `folder`; what it prints goes into a log beside it.

    UserError where the script ends with one.
    """
    rlvr.run.Run.finish = finish
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(f"{folder}.log", "w"))
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        try:
            rlvr.run.launch(*main_and_config(f"{command} {shlex.quote(f'--output_dir={folder}')}"))
        except SystemExit as end:  # what the script says of it is in the log
            raise UserError(
                f"{command} has ended with exit code {end.code}: see {log.name}"
            ) from None


def main_and_config(command: str):
    """What `rlvr.run.launch` takes for a command: a script as load_script has it, and flags."""
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


def finish(run) -> None:
    """In place of Run.finish, which draws curves.png for as long as four steps take.

    A run that a signal has stopped is not finished.
    """
    if run.stopped:
        raise KeyboardInterrupt

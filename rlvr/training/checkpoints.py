"""Checkpoints that are either whole or absent.

A checkpoint is a Hugging Face folder with one more file: state.pt, for what resuming needs besides
the weights. It is written under another name and then renamed.
"""

import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING

from rlvr import progress, world
from rlvr.errors import UserError, loading, using
from rlvr.flags import CHECKPOINT
from rlvr.machine import gather, remove, scratch_folder
from rlvr.policy import settings_of
from rlvr.tasks import ProblemStream

import torch
from safetensors import SafetensorError

if TYPE_CHECKING:
    import transformers


@dataclass
class TrainingState:
    """Everything that a checkpoint holds and that resuming restores."""

    policy: "transformers.PreTrainedModel"
    tokenizer: "transformers.PreTrainedTokenizerBase"
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LambdaLR
    stream: ProblemStream
    # what an algorithm remembers between steps: an object whose attributes are plain numbers
    memory: object = None
    verifier: int = 0  # checksum of the file of a user's function


def sums_of(stream: ProblemStream) -> dict[str, int]:
    """Return a checksum of each set of problems, which a resumed run must share."""

    def sum_of(problems) -> int:
        checksum = 0
        for problem in problems:  # one by one: the text of all may be many GB
            checksum = zlib.crc32(repr(problem).encode(), checksum)
        return checksum

    sets = {"training problems": stream.problems}
    sets |= {f"problems of {name} to evaluate on": rows for name, rows in stream.evaluation.items()}
    return {name: sum_of(problems) for name, problems in sets.items()}


def checkpoints_of(folder: Path) -> list[Path]:
    """Return the checkpoints of a run folder, the newest first."""
    folders = [state.parent for state in folder.glob("checkpoint-*/state.pt")]
    folders = [path for path in folders if CHECKPOINT.fullmatch(path.name)]
    return sorted(folders, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was saved."""
    return int(checkpoint.name.split("-")[1])


def newest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a run folder, or None if the run has not saved any yet."""
    saved = checkpoints_of(folder)
    if not saved:
        progress.write(f"{folder} has no checkpoint yet: starting from the beginning")
    return saved[0] if saved else None


def check_memory(memory) -> None:
    """Raise UserError for an attribute of a TrainingState's memory that could not be loaded."""
    for name, value in vars(memory).items() if memory else ():
        torch.save(value, file := io.BytesIO())
        file.seek(0)
        try:
            torch.load(file, weights_only=True)
        except UnpicklingError:
            raise UserError(
                f"a checkpoint cannot hold {name} = {value!r}: take a number of Python's own, by "
                "float(x), or a text, a list, a dict or a tensor"
            ) from None


def save(folder: Path, training: TrainingState, step: int) -> None:
    """Write the checkpoint of a step. All ranks call it, and rank 0 writes."""
    from torch.distributed.checkpoint import state_dict as sharded

    policy, optimizer = training.policy, training.optimizer
    whole = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = sharded.get_model_state_dict(policy, options=whole)
    moments = {}
    if optimizer.state:
        moments = sharded.get_optimizer_state_dict(policy, optimizer, options=whole)
    on_gpu = policy.device.type != "cpu"
    gpu = torch.get_device_module(policy.device).get_rng_state() if on_gpu else None
    random_states = gather([(torch.get_rng_state(), gpu)])
    if world.RANK > 0:
        return
    state = dict(
        step=step,
        optimizer=moments,
        scheduler=training.scheduler.state_dict(),
        rng=random_states,
        loss_scale=settings_of(policy).loss_scale,
        position=training.stream.position,
        state=vars(training.memory) if training.memory else {},
        problems=sums_of(training.stream),
        verifier=training.verifier,
    )
    # Tied weights have one name here. Buffers that are not saved with a model are not in `weights`.
    names = [name for name, _ in (*policy.named_parameters(), *policy.named_buffers())]
    named_once = {name: weights[name] for name in names if name in weights}
    save_folder(folder, policy, training.tokenizer, state, named_once)


def restore(checkpoint: Path, training: TrainingState, config) -> int:
    """Load a checkpoint, and return its step.

    UserError if it is damaged, or if the run began with other problems.
    """
    import transformers
    from torch.distributed.checkpoint import state_dict as sharded

    policy, optimizer = training.policy, training.optimizer
    whole = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
    damages = (RuntimeError, EOFError, UnpicklingError, SafetensorError)
    with loading(checkpoint, *damages, hint="; an earlier checkpoint can be resumed by its name"):
        state = checkpoint / "state.pt"
        saved = torch.load(state, map_location="cpu", weights_only=True, mmap=True)
        weights = transformers.AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=torch.float32, trust_remote_code=False
        )
    sums = sums_of(training.stream)
    changed = [name for name in sums if saved["problems"].get(name, sums[name]) != sums[name]]
    if changed:
        raise UserError(
            f"{checkpoint.parent} began with other {changed[0]}; another --eval_dataset can "
            "change those to train on, since evaluated problems are left out"
        )
    if saved["verifier"] != training.verifier:
        progress.write(f"--verifier {config.verifier} has changed since {checkpoint} was saved")
    sharded.set_model_state_dict(policy, weights.state_dict(), options=whole)
    if saved["optimizer"]:
        sharded.set_optimizer_state_dict(policy, optimizer, saved["optimizer"], options=whole)
    training.scheduler.load_state_dict(saved["scheduler"])
    for group, rate in zip(optimizer.param_groups, training.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate  # even if there are no moments
    if len(saved["rng"]) == world.WORLD_SIZE:
        cpu, gpu = saved["rng"][world.RANK]
        torch.set_rng_state(cpu)
        if gpu is not None and policy.device.type != "cpu":
            torch.get_device_module(policy.device).set_rng_state(gpu)
    else:
        torch.manual_seed(config.seed + world.RANK + world.WORLD_SIZE * saved["step"])
        progress.write("another number of ranks: the run does not continue bit for bit")
    training.stream.position = saved["position"]
    settings_of(policy).loss_scale = saved["loss_scale"]
    if training.memory:
        vars(training.memory).update(saved["state"])
    return saved["step"]


def save_folder(folder: Path, policy, tokenizer, state=None, weights=None) -> None:
    """Write a Hugging Face folder under another name, and rename it once it is whole.

    `weights` are those of a sharded policy, and `state` becomes state.pt. The files follow the
    umask. UserError if the disk or the file system refuses them.
    """
    with using(folder, RuntimeError, SafetensorError), scratch_folder(folder.parent) as scratch:
        new = Path(scratch) / "new"
        policy.save_pretrained(new, state_dict=weights)
        tokenizer.save_pretrained(new)
        if state:
            with open(new / "state.pt", "wb") as opened:  # given a name, torch hides a full disk
                torch.save(state, opened)
        mode = (new / "config.json").stat().st_mode
        for file in new.iterdir():  # has to be on the disk before the rename is
            file.chmod(mode)  # safetensors keeps its files to their owner
            with open(file, "rb+") as opened:
                os.fsync(opened.fileno())
        remove(folder)
        new.rename(folder)

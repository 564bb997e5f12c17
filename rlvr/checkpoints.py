"""Checkpoints that are either whole or not there, and the search for the newest whole one.

A checkpoint is a Hugging Face folder with two more files: state.pt, for what resuming needs beside
the weights, and checksums.json. It is written under another name and then renamed.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError, reading
from rlvr.ranks import gather
from rlvr.sharding import is_sharded

import torch
import transformers
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

WHOLE_ON_RANK_0 = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass
class TrainingState:
    """All that a checkpoint holds, and that resuming restores."""

    policy: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase
    optimizer: torch.optim.Optimizer
    stream: object  # rlvr.tasks.stream.ProblemStream
    extra: dict = field(default_factory=dict)  # what an algorithm remembers between its steps

    def source(self) -> dict:
        """What a run starts from; a resumed run has to start from the same."""
        commit = getattr(self.policy.config, "_commit_hash", "")
        return {
            "starting policy": f"{Path(self.policy.name_or_path).name} {commit}",
            "training problems": zlib.crc32(repr(self.stream.problems).encode()),
        }


def save(folder: Path, training: TrainingState, step: int, skipped: tuple[int, int]) -> None:
    """Write the checkpoint of a step. All ranks call it, and rank 0 writes."""
    policy, optimizer = training.policy, training.optimizer
    weights = get_model_state_dict(policy, options=WHOLE_ON_RANK_0)
    moments = {}
    if optimizer.state:
        moments = get_optimizer_state_dict(policy, optimizer, options=WHOLE_ON_RANK_0)
    gpu = torch.cuda.get_rng_state() if policy.device.type == "cuda" else None
    random_states = gather([(torch.get_rng_state(), gpu)])
    if world.RANK > 0:
        return
    state = dict(
        step=step,
        optimizer=moments,
        rng=random_states,
        position=training.stream.position,
        state=training.extra,
        source=training.source(),
        skipped=skipped,
    )
    named_once = {name: weights[name] for name, _ in policy.named_parameters()}  # tied ones, too
    save_folder(folder, policy, training.tokenizer, state, named_once)


def restore(checkpoint: Path, training: TrainingState, config) -> tuple[int, tuple[int, int]]:
    """Put a checkpoint's content into `training` -> its step, and the counts of skipped updates.

    UserError where the run has begun with another policy or with other problems.
    """
    policy, optimizer = training.policy, training.optimizer
    saved = torch.load(checkpoint / "state.pt", map_location="cpu", weights_only=True, mmap=True)
    if saved["source"] != training.source():
        raise UserError(
            f"{checkpoint.parent} has begun with {saved['source']}, and now there is "
            f"{training.source()}"
        )
    weights = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, trust_remote_code=config.trust_remote_code
    )
    set_model_state_dict(policy, weights.state_dict(), options=WHOLE_ON_RANK_0)
    if saved["optimizer"]:
        restore_optimizer(policy, optimizer, saved["optimizer"])
    if len(saved["rng"]) == world.WORLD_SIZE:
        cpu, gpu = saved["rng"][world.RANK]
        torch.set_rng_state(cpu)
        if gpu is not None and policy.device.type == "cuda":
            torch.cuda.set_rng_state(gpu)
    else:
        torch.manual_seed(config.seed + world.RANK + world.WORLD_SIZE * saved["step"])
        if world.RANK == 0:
            ranks = f"{len(saved['rng'])} before, {world.WORLD_SIZE} now"
            print(f"ranks: {ranks}; this does not go on bit for bit")
    training.stream.position = saved["position"]
    training.extra.update(saved["state"])
    return saved["step"], saved["skipped"]


def restore_optimizer(policy, optimizer, saved: dict) -> None:
    """Give the optimizer the moments that `save` has gathered from all ranks.

    torch's own function has them twice on the device for a moment. That is little where they are a
    rank's share, and may be too much where they are all.
    """
    if is_sharded(policy):
        set_optimizer_state_dict(policy, optimizer, saved, options=WHOLE_ON_RANK_0)
        return
    numbers = {name: i for i, (name, _) in enumerate(policy.named_parameters())}
    moments = {
        numbers[name]: {key: value.to(policy.device, copy=True) for key, value in values.items()}
        for name, values in saved["state"].items()
    }
    groups = [
        {**group, "params": [numbers[name] for name in group["params"]]}
        for group in saved["param_groups"]
    ]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def save_folder(
    folder: Path, policy, tokenizer, state=None, weights=None, keep_whole: bool = False
) -> None:
    """Write a Hugging Face folder under another name, and rename it once it is whole.

    `weights` are those of a policy that is sharded, `state` what becomes state.pt. With keep_whole,
    a whole folder that another process has put there meanwhile stays. The files follow the umask.
    UserError, whatever goes wrong.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as scratch:
            new = Path(scratch) / "new"
            policy.save_pretrained(new, state_dict=weights)
            tokenizer.save_pretrained(new)
            if state:
                torch.save(state, new / "state.pt")
            sums = {file.name: checksum(file) for file in new.iterdir()}
            (new / "checksums.json").write_text(json.dumps(sums))
            for file in new.iterdir():  # has to be on the disk before the rename is
                file.chmod(0o666 & ~current_umask())  # safetensors keeps its files to their owner
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
            if not keep_whole:
                remove(folder)
            try:
                new.rename(folder)
            except OSError:
                if not (keep_whole and is_whole(folder)):
                    raise
    except Exception as error:  # safetensors and torch have their own for a full disk
        raise UserError(f"cannot write {folder}: {error}") from error


def current_umask() -> int:
    """The bits that the files of this process do not have; to read them is to set them twice."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def remove(folder: Path) -> None:
    """Delete a folder, if there is one, so that a kill in between leaves it whole or gone."""
    if folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as scratch:
            folder.rename(Path(scratch) / "old")


def checksum(file: Path) -> str:
    """The file's BLAKE2b digest."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def is_whole(folder: Path) -> bool:
    """Whether all files of a folder are as `save_folder` wrote them."""
    try:
        sums = json.loads((folder / "checksums.json").read_text())
        same = [checksum(folder / name) == value for name, value in sums.items()]
        return bool(same) and all(same)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def find_run(path) -> tuple[Path, list[Path]]:
    """The run folder that `path` stands for, and its checkpoints, the newest first.

    `path` is a run folder, one of its checkpoints, or "latest": this script's last run in runs/.
    UserError where there is no run.
    """
    if path == "latest":
        runs = Path("runs").glob(f"{Path(sys.argv[0]).stem}-*/config.json")
        path = max(runs, key=os.path.getmtime, default=Path("runs/latest/config.json")).parent
    path = Path(path)
    if re.fullmatch(r"checkpoint-\d+", path.name):
        return path.parent, [path]
    with reading(f"--resume_from_checkpoint {path}"):
        found = (path / "config.json").exists()
    if not found:
        raise UserError(f"--resume_from_checkpoint {path}: no run there")
    return path, checkpoints_of(path)


def checkpoints_of(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, the newest first."""
    found = [path for path in folder.glob("checkpoint-*") if path.name[11:].isdigit()]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was saved."""
    return int(checkpoint.name.split("-")[1])


def newest_whole(path: str) -> tuple[Path, Path | None]:
    """The run folder that `path` stands for and, on rank 0, its newest whole checkpoint.

    A damaged checkpoint is named, and the one before it is tried. None where the run has not saved
    one yet. UserError where all are damaged.
    """
    folder, checkpoints = find_run(path)
    if world.RANK > 0:
        return folder, None
    for checkpoint in checkpoints:
        with reading(checkpoint):
            whole = is_whole(checkpoint)
        if whole:
            return folder, checkpoint
        print(f"{checkpoint} is damaged")
    if checkpoints:
        raise UserError(f"--resume_from_checkpoint {path}: no checkpoint there is whole")
    print(f"{folder} has no checkpoint yet; from the start")
    return folder, None

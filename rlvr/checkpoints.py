"""Checkpoints that are either whole or not there.

A checkpoint is a Hugging Face folder with two more files: state.pt, for what resuming needs beside
the weights, and checksums.json. It is written under another name and then renamed.
"""

import hashlib
import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError, loading
from rlvr.images import model_class
from rlvr.ranks import gather
from rlvr.schedules import set_base
from rlvr.scratch import scratch_folder, undo_making_anew
from rlvr.sharding import is_sharded
from rlvr.tasks.pictures import reader_of

import torch
import transformers
from safetensors import SafetensorError
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

# What a state.pt holds.
STATE = "step optimizer scheduler rng position state source skipped flags".split()
WHOLE_ON_RANK_0 = StateDictOptions(full_state_dict=True, cpu_offload=True)


@dataclass
class TrainingState:
    """All that a checkpoint holds, and that resuming restores."""

    policy: transformers.PreTrainedModel
    tokenizer: transformers.PreTrainedTokenizerBase
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LambdaLR
    stream: object  # rlvr.tasks.stream.ProblemStream
    extra: dict = field(default_factory=dict)  # what an algorithm remembers between its steps

    def source(self) -> dict:
        """What a run starts from; a resumed run has to start from the same."""
        commit = getattr(self.policy.config, "_commit_hash", "")
        sum_of_problems = 0
        for problem in self.stream.problems:  # one by one: the text of all may be many GB
            sum_of_problems = zlib.crc32(repr(problem).encode(), sum_of_problems)
            for image in problem.images:
                sum_of_problems = zlib.crc32(image, sum_of_problems)
        return {
            "starting policy": f"{Path(self.policy.name_or_path).name} {commit}",
            "training problems": sum_of_problems,
        }


def save(
    folder: Path, training: TrainingState, step: int, skipped: tuple[int, int], config
) -> None:
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
        scheduler=training.scheduler.state_dict(),
        rng=random_states,
        position=training.stream.position,
        state=training.extra,
        source=training.source(),
        skipped=skipped,
        flags=lasting_flags(config),
    )
    # Tied weights have one name here. Buffers that are not saved with a model are not in `weights`.
    names = [
        name for kind in (policy.named_parameters(), policy.named_buffers()) for name, _ in kind
    ]
    named_once = {name: weights[name] for name in names if name in weights}
    save_folder(folder, policy, training.tokenizer, state, named_once)


def lasting_flags(config) -> dict:
    """The flags that a resumed run has to keep."""
    return {name: value for name, value in asdict(config).items() if not config.may_change(name)}


def read_state(checkpoint: Path, config) -> dict:
    """What `save` has put into state.pt.

    UserError where it is another file, or where the run's config.json has been edited since.
    """
    file = checkpoint / "state.pt"
    with loading(file):
        saved = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    lacking = [name for name in STATE if not isinstance(saved, dict) or name not in saved]
    if lacking:
        raise UserError(f"cannot resume from {file}: it lacks {', '.join(lacking)}")
    now = lasting_flags(config)
    edited = [
        f"--{name} {now.get(name)} (was {value})"
        for name, value in saved["flags"].items()
        if now.get(name) != value
    ]
    if edited:
        raise UserError(
            f"{checkpoint.parent}/config.json has been edited since {checkpoint.name}: "
            + ", ".join(edited)
        )
    return saved


def restore(checkpoint: Path, training: TrainingState, config) -> tuple[int, tuple[int, int]]:
    """Put a checkpoint's content into `training` -> its step, and the counts of skipped updates.

    UserError where the run has begun with another policy, with other problems or other flags.
    """
    policy, optimizer = training.policy, training.optimizer
    saved = read_state(checkpoint, config)
    if saved["source"] != training.source():
        raise UserError(
            f"{checkpoint.parent} has begun with {saved['source']}, and now there is "
            f"{training.source()}; what is evaluated is left out of the training problems, so that "
            "another --eval_dataset can change them"
        )
    with loading(checkpoint):
        weights = model_class(policy.config).from_pretrained(
            checkpoint, dtype=torch.float32, trust_remote_code=config.trust_remote_code
        )
    set_model_state_dict(policy, weights.state_dict(), options=WHOLE_ON_RANK_0)
    if saved["optimizer"]:
        restore_optimizer(policy, optimizer, saved["optimizer"])
    training.scheduler.load_state_dict(saved["scheduler"])
    set_base(training.scheduler, training.scheduler.base_lrs[0])  # also where there are no moments
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
    UserError where the disk or the file system does not take them, or where the folder around it is
    gone: a run folder that is made anew would lack what else belongs to the run.
    """
    try:
        with scratch_folder(folder.parent) as scratch:
            made = scratch.stat()
            new = scratch / "new"
            policy.save_pretrained(new, state_dict=weights)
            save_tokenizer(tokenizer, new)
            if state:
                torch.save(state, new / "state.pt")
            sums = {file.name: checksum(file) for file in new.iterdir()}
            (new / "checksums.json").write_text(json.dumps(sums))
            for file in new.iterdir():  # has to be on the disk before the rename is
                file.chmod(0o666 & ~current_umask())  # safetensors keeps its files to their owner
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
            if not os.path.samestat(scratch.stat(), made):
                undo_making_anew(scratch)
                raise FileNotFoundError("the folder around it has been moved or removed")
            if not keep_whole:
                remove(folder)
            try:
                new.rename(folder)
            except OSError:
                if not (keep_whole and is_whole(folder)):
                    raise
    except (OSError, RuntimeError, SafetensorError) as error:  # torch's own is RuntimeError
        raise UserError(f"cannot write {folder}: {error}") from error


def save_tokenizer(tokenizer, folder: Path) -> None:
    """Write the tokenizer's files, and how images are read; OSError where that is impossible."""
    try:
        tokenizer.save_pretrained(folder)
        if reader_of(tokenizer):
            reader_of(tokenizer).processor.save_pretrained(folder)
    except Exception as error:
        if type(error) is Exception:  # of the tokenizers library, which has no class of its own
            raise OSError(str(error)) from error
        raise


def current_umask() -> int:
    """The bits that the files of this process do not have; to read them is to set them twice."""
    umask = os.umask(0)
    os.umask(umask)
    return umask


def remove(folder: Path) -> None:
    """Delete a folder, if there is one, so that a kill in between leaves it whole or gone."""
    if folder.exists():
        with scratch_folder(folder.parent) as scratch:
            folder.rename(scratch / "old")


def checksum(file: Path) -> str:
    """The file's BLAKE2b digest."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def is_whole(folder: Path) -> bool:
    """Whether all files of a folder are as `save_folder` wrote them."""
    try:
        sums = json.loads((folder / "checksums.json").read_text())
        if not (isinstance(sums, dict) and sums):
            return False
        return all(checksum(folder / name) == value for name, value in sums.items())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return False

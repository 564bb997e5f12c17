"""Checkpoints that are either whole or not there.

A checkpoint is a Hugging Face folder with two more files: state.pt, for what resuming needs beside
the weights, and checksums.json. It is written under another name and then renamed.
"""

import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError, loading
from rlvr.machine import gather
from rlvr.policy import is_sharded, model_class, save_folder

import torch
import transformers
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
    stream: object  # rlvr.tasks.ProblemStream
    # what an algorithm remembers between its steps: the attributes of an object, plain numbers all
    memory: object = None

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
        state=vars(training.memory) if training.memory else {},
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
    for group, rate in zip(optimizer.param_groups, training.scheduler.get_last_lr(), strict=True):
        group["lr"] = rate  # also where there are no moments
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
    if training.memory:
        vars(training.memory).update(saved["state"])
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

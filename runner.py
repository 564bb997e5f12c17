"""The part of common.py that keeps a run whole: ranks, sharding, updates that go wrong, run folder, resuming.

In a run folder a checkpoint is either whole or not there: it is written under another name and renamed, with a checksum
of each of its files. What resuming needs beside the weights is in its state.pt.
"""
import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
import zlib
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
                                                     set_model_state_dict, set_optimizer_state_dict)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from tasks import RANK, WORLD_SIZE, Config, fail, find_run

AT_EXIT = contextlib.ExitStack()  # what has to end before the process group does
BEAT, SILENCE = 5.0, 45.0  # seconds between signs of life of a rank; after which one without is taken for dead
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)  # whole tensors, on rank 0

def leave(number, frame):
    """Ends a run that has nothing to save yet, as before Run.begin; a launcher may send the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)

def launch(main, config: Config):
    """Runs main(config); what the user can mend is one line and exit code 2."""
    signal.signal(signal.SIGTERM, leave)
    try:
        main(config)
    except (ImportError, OSError, FloatingPointError) as error:
        fail(str(error))
    except (torch.OutOfMemoryError, MemoryError) as error:
        fail("out of memory: in a rollout lower --rollout_batch_size or --vllm_gpu_memory_utilization, in an update "
             f"lower --microbatch_tokens or give --gradient_checkpointing true ({error})")
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:  # gloo has no class of its own
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        fail(f"rank {RANK} has lost another one, which has ended or hangs; resume from the last checkpoint ({error})")
    finally:
        AT_EXIT.close()
        if dist.is_initialized():
            dist.destroy_process_group()

def gather(items: list) -> list:
    """The items of all ranks, in rank order."""
    parts = [items] * WORLD_SIZE
    if WORLD_SIZE > 1:
        dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]

def gather_groups(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Each [b, G, T], or [b, G], of this rank -> [W * b, G, T], of all W ranks, 0 beyond a rank's own T.
    Rank r has the rows [r::W], as the prompts of a batch are dealt out.
    """
    if WORLD_SIZE == 1:
        return [*tensors]
    whole = []
    for parts in zip(*gather([[tensor.cpu() for tensor in tensors]])):  # of each rank
        width = max(part.shape[-1] for part in parts)
        parts = [torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
        whole.append(torch.stack(parts, 1).flatten(0, 1).to(tensors[0].device))
    return whole

def global_sum(*values) -> list[float]:
    """Each of the values, numbers or tensors of one, summed over the ranks."""
    return [sum(column) for column in zip(*gather([[float(value) for value in values]]))]

def global_mean(*values: torch.Tensor) -> list[float]:
    """The mean of each tensor, averaged over the ranks, which hold as much each."""
    return [total / WORLD_SIZE for total in global_sum(*(value.mean() for value in values))]

def watch_ranks(ended: threading.Event):
    """Until `ended`, ends this process when another rank is silent, dead on a machine that is gone or stopped: nothing
    else can, while the main thread waits for that rank.
    """
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    heard = [(0, time.monotonic())] * WORLD_SIZE  # how often, and when last, of each rank
    while not ended.wait(BEAT):
        try:
            store.add(f"alive/{RANK}", 1)
            counts = [store.add(f"alive/{rank}", 0) for rank in range(WORLD_SIZE)]
        except dist.DistError:
            counts = [count for count, _ in heard]  # the machine of rank 0 is silent
        heard = [last if count == last[0] else (count, time.monotonic()) for count, last in zip(counts, heard)]
        silent = [rank for rank, (_, when) in enumerate(heard) if time.monotonic() > when + SILENCE]
        if silent:
            sys.stderr.write(f"{Path(sys.argv[0]).name}: error: rank {RANK} has not heard of rank {silent[0]} for "
                             f"{SILENCE:g} s; resume from the last checkpoint\n")
            os._exit(2)

def shard(policy, scores):
    """FSDP2: a rank keeps its share of each layer, gathers a layer when it is used, and gradients are added up.
    `scores(policy, ...)` becomes a method of the policy that may use its weights, as `forward` may.
    """
    gpu = torch.cuda.is_available()
    mesh = dist.device_mesh.init_device_mesh("cuda" if gpu else "cpu", (WORLD_SIZE,))
    precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if gpu else MixedPrecisionPolicy()
    layers = [module for module in policy.modules() if type(module).__name__ in policy._no_split_modules]
    for module in (*layers, policy):
        fully_shard(module, mesh=mesh, mp_policy=precision, reshard_after_forward=True)
        module.set_gradient_divide_factor(1.0)  # sums, not means: token_weights are of the global minibatch
        module.set_force_sum_reduction_for_comms(True)
    policy.scores = types.MethodType(scores, policy)
    register_fsdp_forward_method(policy, "scores")

def unshard(policy, wanted: bool):
    """Gives each rank all of a sharded policy, so that ranks may use it as often as each has to, or takes it back."""
    layers = [module for module in policy.modules() if isinstance(module, FSDPModule)]
    for module in layers:
        module.set_reshard_after_forward(not wanted, recurse=False)
        module.unshard() if wanted else module.reshard()

def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, gathered from all ranks where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

def remove(folder: Path):
    """Deletes a folder, if there is one, so that a kill in between leaves it whole or gone."""
    if folder.exists():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as scratch:
            folder.rename(Path(scratch) / "old")

def checksum(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()

def is_whole(folder: Path) -> bool:
    """Whether all files of a checkpoint are as they were written."""
    try:
        sums = json.loads((folder / "checksums.json").read_text())
        return all(checksum(folder / name) == value for name, value in sums.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False

def newest_whole(path: str) -> tuple[Path, Path | None]:
    """The run folder that `path` stands for (find_run), and on rank 0 its newest whole checkpoint, if there is one."""
    folder, checkpoints = find_run(path)
    if RANK > 0:
        return folder, None
    for checkpoint in checkpoints:
        if is_whole(checkpoint):
            return folder, checkpoint
        print(f"{checkpoint} is damaged")
    if checkpoints:
        fail(f"--resume_from_checkpoint {path}: no checkpoint there is whole")
    print(f"{folder} has no checkpoint yet; from the start")
    return folder, None

def save_beside(folder: Path, policy, tokenizer, state: dict | None = None, weights: dict | None = None):
    """A Hugging Face folder, written under another name and renamed once it is whole; OSError, whatever goes wrong.
    `weights`: those of a policy that is sharded.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".saving-") as scratch:
        new = Path(scratch) / "new"
        try:
            policy.save_pretrained(new, state_dict=weights)
            tokenizer.save_pretrained(new)
            torch.save(state, new / "state.pt") if state else None
            (new / "checksums.json").write_text(json.dumps({file.name: checksum(file) for file in new.iterdir()}))
            for file in new.iterdir():  # onto the disk, before the rename is
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
        except Exception as error:  # of safetensors and torch, which have their own for a full disk
            raise OSError(f"cannot write {folder}: {error}") from error
        remove(folder)
        new.rename(folder)

def write_beside(file: Path, text: str):
    """A file that holds either what it held before or all of the text."""
    new = file.with_name(f".{file.name}")
    new.write_text(text)
    new.replace(file)

class Run:
    """The run folder: config.json metrics.jsonl eval.jsonl samples.jsonl curves.png checkpoint-<step>/."""
    def __init__(self, config: Config):
        gpu = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu")
        torch.cuda.set_device(-1 if self.device.index is None else self.device.index)  # -1 sets none
        if WORLD_SIZE > 1:
            dist.init_process_group("nccl" if gpu else "gloo", timeout=timedelta(seconds=config.ddp_timeout))
        torch.manual_seed(config.seed + RANK)
        self.config, self.stopped, self.writer = config, 0.0, None
        self.skipped, self.skipped_in_a_row = 0, 0  # updates that were NaN or infinite
        self.ended = threading.Event()
        self.started = f"{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
        folder, checkpoint = config.output_dir or f"runs/{Path(sys.argv[0]).stem}-{config.variant}-{self.started}", None
        if config.resume_from_checkpoint:
            folder, checkpoint = newest_whole(config.resume_from_checkpoint)
        elif [*Path(folder).glob("[!.]*.json*")]:
            fail(f"--output_dir {folder} holds a run or a model; choose another, or --resume_from_checkpoint {folder}")
        folder, self.checkpoint = gather([(folder, checkpoint)])[0]  # rank 0 chooses
        self.folder = Path(folder)
        if RANK == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
        if RANK == 0 and config.report_to == "wandb":
            import wandb
            wandb.init(project="rlvr", name=self.folder.name, config=asdict(config), sync_tensorboard=True)
        if RANK == 0 and config.report_to != "none":
            from torch.utils.tensorboard import SummaryWriter
            self.writer = SummaryWriter(self.folder)

    def begin(self, policy, tokenizer, optimizer, stream, state: dict) -> int:
        """Takes what checkpoints hold, restores it when resuming -> the last step done; minds signals from here on."""
        self.parts = policy, tokenizer, optimizer, stream, state
        name, problems = Path(policy.name_or_path).name, repr(stream.problems).encode()
        self.source = {"starting policy": f"{name} {getattr(policy.config, '_commit_hash', '')}",
                       "training problems": zlib.crc32(problems)}
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.on_signal)
        if WORLD_SIZE > 1:
            threading.Thread(target=watch_ranks, args=(self.ended,), daemon=True).start()
        step = self.restore() if self.checkpoint else 0
        if RANK == 0:
            write_beside(self.folder / "config.json", json.dumps(asdict(self.config), indent=2))
            self.forget_after(step if self.checkpoint else -1)
        return step

    def restore(self) -> int:
        """All that end_step has saved -> its step."""
        policy, _, optimizer, stream, state = self.parts
        saved = torch.load(self.checkpoint / "state.pt", map_location="cpu", weights_only=True, mmap=True)
        if saved["source"] != self.source:
            fail(f"{self.folder} has begun with {saved['source']}, and now there is {self.source}")
        weights = transformers.AutoModelForCausalLM.from_pretrained(
            self.checkpoint, dtype=torch.float32, trust_remote_code=self.config.trust_remote_code)
        set_model_state_dict(policy, weights.state_dict(), options=FULL)
        if saved["optimizer"]:
            set_optimizer_state_dict(policy, optimizer, saved["optimizer"], options=FULL)
        if len(saved["rng"]) == WORLD_SIZE:
            cpu, gpu = saved["rng"][RANK]
            torch.set_rng_state(cpu)
            torch.cuda.set_rng_state(gpu) if gpu is not None and self.device.type == "cuda" else None
        else:
            torch.manual_seed(self.config.seed + RANK + WORLD_SIZE * saved["step"])
            if RANK == 0:
                print(f"ranks: {len(saved['rng'])} before, {WORLD_SIZE} now; this does not go on bit for bit")
        stream.position, (self.skipped, self.skipped_in_a_row) = saved["position"], saved["skipped"]
        state.update(saved["state"])
        return saved["step"]

    def forget_after(self, step: int):
        """Drops what a killed run has left half written, and puts aside what came after the step to go on from."""
        for rest in self.folder.glob(".saving-*"):
            shutil.rmtree(rest)
        for later in find_run(self.folder)[1]:
            if int(later.name.split("-")[1]) > step:
                later.rename(self.folder / f"before-{self.started}-{later.name}")
        for file in self.folder.glob("[!.]*.jsonl"):
            rows = (re.fullmatch(r'\{"step": (\d+), .*\}\n', line) for line in file.open())  # None for half a line
            write_beside(file, "".join(row[0] for row in rows if row and int(row[1]) <= step))

    def on_signal(self, number, frame):
        """Asks for an end after this step. A launcher may send a signal twice; Ctrl-C again, later, ends at once."""
        if self.stopped and number == signal.SIGINT and time.monotonic() > self.stopped + 2:
            raise KeyboardInterrupt
        if not self.stopped and RANK == 0:
            print("\nstopping after this step; Ctrl-C to quit at once", file=sys.stderr)
        self.stopped = self.stopped or time.monotonic()

    def log(self, name: str, step: int, metrics: dict[str, float], samples: list = ()):
        """A row in <name>.jsonl, a line on the terminal, and the first two of `samples` in samples.jsonl."""
        if RANK > 0:
            return
        rows = [(name, metrics)] + [("samples", {"text": s.text, "reward": s.reward}) for s in samples[:2]]
        for file_name, row in rows:
            with open(self.folder / f"{file_name}.jsonl", "a") as file:
                file.write(json.dumps({"step": step, **row}) + "\n")
        print(f"{name} {step}/{self.config.max_steps}", *(f"{k} {v:.3g}" for k, v in metrics.items()), sep=" | ")
        for key, value in metrics.items() if self.writer else ():
            self.writer.add_scalar(f"{name}/{key}", value, step)

    def optimizer_step(self, policy, optimizer, loss: torch.Tensor) -> float:
        """One update, the ranks' gradients added up -> the norm before clipping. Without one where the gradient is 0,
        not even by momentum, and where it or a rank's loss is NaN or infinite, --max_skipped_updates times in a row.
        """
        for parameter in policy.parameters() if WORLD_SIZE > 1 and not isinstance(policy, FSDPModule) else ():
            dist.all_reduce(parameter.grad)
        norm = whole(torch.nn.utils.clip_grad_norm_(policy.parameters(), self.config.max_grad_norm)).item()
        finite = math.isfinite(norm + global_sum(loss)[0])
        if finite and norm > 0:
            optimizer.step()
        elif RANK == 0:
            print("no update:", "the gradient is 0, as where all groups are all right or all wrong" if finite else
                  "the loss or the gradient is NaN or infinite")
        optimizer.zero_grad()
        self.skipped += not finite
        self.skipped_in_a_row = 0 if finite else self.skipped_in_a_row + 1
        if self.skipped_in_a_row == self.config.max_skipped_updates:
            fail(f"{self.skipped_in_a_row} updates in a row had a NaN or infinite loss or gradient: look at loss, kl, "
                 f"mismatch and grad_norm in {self.folder}/metrics.jsonl, and try a lower --learning_rate, --beta or "
                 "--entropy_coef")
        return norm

    def end_step(self, step: int) -> bool:
        """Saves checkpoint-<step> when that is due; True when the run is to stop here."""
        stopped = any(gather([self.stopped]))  # a signal from here on counts at the next step, on all ranks
        if stopped or step == self.config.max_steps or step % self.config.save_steps == 0:
            policy, tokenizer, optimizer, stream, state = self.parts
            weights = get_model_state_dict(policy, options=FULL)
            moments = get_optimizer_state_dict(policy, optimizer, options=FULL) if optimizer.state else {}
            gpu = torch.cuda.get_rng_state() if self.device.type == "cuda" else None
            rng, folder = gather([(torch.get_rng_state(), gpu)]), self.folder / f"checkpoint-{step}"
            if RANK == 0:
                weights = {name: weights[name] for name, _ in policy.named_parameters()}  # tied ones once
                save_beside(folder, policy, tokenizer, dict(
                    step=step, optimizer=moments, rng=rng, position=stream.position, state=state, source=self.source,
                    skipped=(self.skipped, self.skipped_in_a_row)), weights)
                print(f"saved {folder}")
                limit = self.config.save_total_limit
                for old in find_run(self.folder)[1][limit:] if limit else ():
                    remove(old)
        return stopped

    def finish(self):
        """Prints the first and the last evaluation side by side and draws curves.png: every metric against the step."""
        self.ended.set()
        if RANK > 0:
            return
        os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser(self.config.cache_dir))
        from matplotlib.figure import Figure  # here, because it is slow to import
        evals, rows = ([json.loads(line) for line in open(self.folder / name)] if (self.folder / name).exists() else []
                       for name in ("eval.jsonl", "metrics.jsonl"))
        shown, width = evals[:1] + evals[1:][-1:], max(map(len, evals[-1])) + 2
        print(f"\n{'step':{width}}", *(f"{row['step']:9}" for row in shown))
        for key in filter(re.compile("pass@|avg@|greedy|answer_|token_|fit_").search, evals[-1]):
            print(f"{key:{width}}", *(f"{row.get(key, math.nan):9.3f}" for row in shown))
        panels = {"held-out pass@k": [(evals, key) for key in evals[0] if "pass@" in key]}
        panels |= {f"{name}{key}": [(source, key)] for name, source in (("held-out ", evals), ("", rows))
                   for key in dict(*source[:1]) if "pass@" not in key and key != "step"}
        rows_of_5 = math.ceil(len(panels) / 5)
        figure = Figure(figsize=(20, 2.6 * rows_of_5))
        spaces = dict(left=0.045, right=0.99, bottom=0.03, top=0.97, wspace=0.32, hspace=0.35)
        axes = figure.subplots(rows_of_5, 5, gridspec_kw=spaces)
        for axis, (title, lines) in itertools.zip_longest(axes.flat, panels.items(), fillvalue=("", ())):
            axis.set(title=title, visible=bool(lines))
            for source, key in lines:
                axis.plot([row["step"] for row in source], [row.get(key) for row in source], ".-", label=key)
        axes.flat[0].legend(fontsize="x-small", ncols=3, loc="lower right")
        figure.savefig(self.folder / "curves.png")
        print(f"\nall in {self.folder}: config.json metrics.jsonl eval.jsonl samples.jsonl curves.png")

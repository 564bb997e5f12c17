"""A run from its first to its last line: its folder, its logs, its updates, its end.

The run folder holds config.json metrics.jsonl eval.jsonl samples.jsonl curves.png and
checkpoint-<step>/.
"""

import contextlib
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from rlvr import checkpoints, locks, world
from rlvr.context import check_context
from rlvr.devices import choose_device
from rlvr.errors import UserError, fail, reading, writing
from rlvr.logs import append_row, drop_rows_after, write_whole
from rlvr.plots import draw_curves, print_first_and_last
from rlvr.ranks import gather, global_sum, start_process_group, watch_ranks
from rlvr.sharding import is_sharded, whole
from rlvr.threads import advise_on_threads

import torch
import torch.distributed as dist

AT_EXIT = contextlib.ExitStack()  # what has to end before the process group does


def launch(main, config) -> None:
    """Run main(config). What the user can mend becomes one line; a bug keeps its traceback."""
    for number in asking_for_an_end():
        if number != signal.SIGINT:  # which raises KeyboardInterrupt
            signal.signal(number, leave)
    try:
        main(config)
    except UserError as error:
        fail(str(error))
    except (torch.OutOfMemoryError, MemoryError) as error:
        fail(
            "out of memory: in a rollout lower --rollout_batch_size or "
            "--vllm_gpu_memory_utilization, in an update lower --microbatch_tokens or give "
            f"--gradient_checkpointing ({error})"
        )
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise  # gloo has no class of its own for a lost connection
        fail(
            f"rank {world.RANK} has lost another one, which has ended or hangs; resume from the "
            f"last checkpoint ({error})"
        )
    finally:
        AT_EXIT.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def asking_for_an_end() -> list[signal.Signals]:
    """The signals that ask a run to end: Ctrl-C, a scheduler's, its warning, a closed terminal.

    Where SIGHUP is ignored, as under nohup, it stays ignored.
    """
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def leave(number, frame):
    """End a run that has nothing to save yet. A launcher may send the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


class Run:
    """What the five scripts do to their run folder, and to the optimizer."""

    def __init__(self, config):
        """Connect the ranks, seed them, and choose the run folder; UserError where it is taken."""
        self.device = choose_device()
        start_process_group(config.ddp_timeout)
        torch.manual_seed(config.seed + world.RANK)
        self.config = config
        self.threads_given = config.num_threads is not None
        if self.threads_given:
            torch.set_num_threads(config.num_threads)
        config.num_threads = torch.get_num_threads()  # config.json tells what a run has used
        self.stopped = 0.0  # when a signal has asked for an end; 0 while none has
        self.skipped = 0  # updates that were NaN or infinite
        self.skipped_in_a_row = 0
        self.unsaved = False  # whether there has been an update since the last checkpoint
        self.ended = threading.Event()
        self.started = f"{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
        self.folder, self.checkpoint = gather([self.choose_folder()])[0]  # rank 0 chooses
        self.writer = None
        if world.RANK == 0:
            self.writer = make_writer(config, self.folder)

    def choose_folder(self) -> tuple[Path, Path | None]:
        """The run folder, and on rank 0 the checkpoint to resume from, if there is one."""
        config = self.config
        if config.resume_from_checkpoint:
            self.own(checkpoints.find_run(config.resume_from_checkpoint)[0])
            return checkpoints.newest_whole(config.resume_from_checkpoint)
        name = f"runs/{Path(sys.argv[0]).stem}-{config.variant}-{self.started}"
        folder = Path(config.output_dir or name)
        with reading(folder):
            taken = [*folder.glob("[!.]*.json*")]
        if taken:
            raise UserError(
                f"--output_dir {folder} holds a run or a model; choose another, or "
                f"--resume_from_checkpoint {folder}"
            )
        if world.RANK == 0:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        self.own(folder)
        return folder, None

    def own(self, folder: Path) -> None:
        """Keep other processes from the run folder until this one ends. Rank 0 does it for all."""
        if world.RANK == 0:
            AT_EXIT.callback(os.close, locks.own(folder))

    def resume(self, training: checkpoints.TrainingState) -> int:
        """Restore a checkpoint when resuming -> the last step done, 0 for a new run.

        From here on a signal asks for an end after the current step. UserError where the problems
        do not fit the policy's context, or the checkpoint not this run.
        """
        problems = training.stream.problems
        check_context(training.policy, training.tokenizer, problems, self.config)
        for number in asking_for_an_end():
            signal.signal(number, self.on_signal)
        if world.WORLD_SIZE > 1:
            threading.Thread(target=watch_ranks, args=(self.ended,), daemon=True).start()
        step = 0
        if self.checkpoint:
            step, (self.skipped, self.skipped_in_a_row) = checkpoints.restore(
                self.checkpoint, training, self.config
            )
        if self.device.type == "cpu" and not self.threads_given and world.WORLD_SIZE == 1:
            advise_on_threads(training.policy)
        if world.RANK == 0:
            config = json.dumps(asdict(self.config), indent=2)
            write_whole(self.folder / "config.json", config)
            self.forget_after(step if self.checkpoint else -1)
        return step

    def forget_after(self, step: int) -> None:
        """Drop what a killed run has half written, and put aside the checkpoints after the step."""
        with writing(self.folder):
            for rest in self.folder.glob(".saving-*"):
                shutil.rmtree(rest)
            for later in checkpoints.checkpoints_of(self.folder):
                if checkpoints.step_of(later) > step:
                    later.rename(self.folder / f"before-{self.started}-{later.name}")
        drop_rows_after(self.folder, step)

    def on_signal(self, number, frame):
        """Ask for an end after this step. Ctrl-C again, two seconds later, ends at once.

        Where there is nothing to save, the end is now: before the first update, and in an
        evaluation alone. Several ranks agree on the end of a step.
        """
        if not self.unsaved and world.WORLD_SIZE == 1:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            leave(number, frame)
        if self.stopped and number == signal.SIGINT and time.monotonic() > self.stopped + 2:
            raise KeyboardInterrupt
        if not self.stopped and world.RANK == 0:
            print("\nstopping after this step; Ctrl-C to quit at once", file=sys.stderr)
        self.stopped = self.stopped or time.monotonic()

    def log(self, name: str, step: int, metrics: dict[str, float], samples: list = ()) -> None:
        """Add a row to <name>.jsonl and print it; two of the samples go into samples.jsonl."""
        if world.RANK > 0:
            return
        append_row(self.folder, name, {"step": step, **metrics})
        for sample in samples[:2]:
            row = {"step": step, "text": sample.text, "reward": sample.reward}
            append_row(self.folder, "samples", row)
        numbers = [f"{key} {value:.3g}" for key, value in metrics.items()]
        print(f"{name} {step}/{self.config.max_steps}", *numbers, sep=" | ")
        if self.writer:
            for key, value in metrics.items():
                self.writer.add_scalar(f"{name}/{key}", value, step)

    def optimizer_step(self, policy, optimizer, loss: torch.Tensor) -> float:
        """Make one update from the gradients of all ranks -> their norm before clipping.

        There is no update where the gradient is 0, not even by momentum, nor where it or the loss
        of a rank is NaN or infinite. UserError after --max_skipped_updates of those in a row.
        """
        if world.WORLD_SIZE > 1 and not is_sharded(policy):
            for parameter in policy.parameters():
                dist.all_reduce(parameter.grad)
        limit = self.config.max_grad_norm
        norm = whole(torch.nn.utils.clip_grad_norm_(policy.parameters(), limit)).item()
        finite = math.isfinite(norm + global_sum(loss)[0])
        self.unsaved = True
        if finite and norm > 0:
            optimizer.step()
        elif world.RANK == 0:
            zero = "the gradient is 0, as where all groups are all right or all wrong"
            print("no update:", zero if finite else "the loss or the gradient is NaN or infinite")
        optimizer.zero_grad()
        self.skipped += not finite
        self.skipped_in_a_row = 0 if finite else self.skipped_in_a_row + 1
        if self.skipped_in_a_row == self.config.max_skipped_updates:
            raise UserError(
                f"{self.skipped_in_a_row} updates in a row had a NaN or infinite loss or gradient: "
                f"look at loss, kl, mismatch and grad_norm in {self.folder}/metrics.jsonl, and try "
                "a lower --learning_rate, --beta or --entropy_coef"
            )
        return norm

    def is_due(self, step: int, every: int) -> bool:
        """Whether what happens every so many steps, and after the last one, is due."""
        return step % every == 0 or step == self.config.max_steps

    def end_step(self, step: int, training: checkpoints.TrainingState) -> bool:
        """Save a checkpoint when that is due; True when the run has been asked to stop here."""
        # a signal from here on counts at the next step, on all ranks
        stopped = any(gather([self.stopped]))
        if stopped or self.is_due(step, self.config.save_steps):
            folder = self.folder / f"checkpoint-{step}"
            checkpoints.save(folder, training, step, (self.skipped, self.skipped_in_a_row))
            self.unsaved = False
            limit = self.config.save_total_limit
            if world.RANK == 0:
                print(f"saved {folder}")
                for old in checkpoints.checkpoints_of(self.folder)[limit:] if limit else ():
                    checkpoints.remove(old)
        return stopped

    def finish(self) -> None:
        """Print the first and the last evaluation side by side, and draw curves.png."""
        self.ended.set()
        if world.RANK == 0:
            print_first_and_last(self.folder)
            with writing(self.folder / "curves.png"):
                draw_curves(self.folder, self.config.cache_dir)
            files = "config.json metrics.jsonl eval.jsonl samples.jsonl curves.png"
            print(f"\nall in {self.folder}: {files}")


def make_writer(config, folder: Path):
    """The TensorBoard writer that --report_to asks for, or None; wandb follows what it writes."""
    if config.report_to == "none":
        return None
    try:
        if config.report_to == "wandb":
            import wandb

            wandb.init(
                project="rlvr", name=folder.name, config=asdict(config), sync_tensorboard=True
            )
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(f"--report_to {config.report_to}: {error}") from error
    return SummaryWriter(folder)

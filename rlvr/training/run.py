"""A run from beginning to end: its folder, its logs, its updates, its end.

The run folder holds config.json metrics.jsonl eval.jsonl samples.jsonl curves.png tokens.jsonl
report.html and checkpoint-<step>/.
"""

import json
import math
import os
import shutil
import signal
import time
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rlvr import machine, progress, show, world
from rlvr.errors import UserError, fail, using
from rlvr.flags import Config, find_run
from rlvr.policy import settings_of
from rlvr.rollout import check_context
from rlvr.training import checkpoints
from rlvr.training.updates import UpdateMetrics
from rlvr.verify.verifiers import find_verifier

import torch

MAX_SKIPPED_UPDATES = 10  # NaN or infinite gradients in a row that end the run


def launch(main, config) -> None:
    """Run main(config). A user's mistake becomes one line; a bug keeps its traceback."""
    machine.handle_signals(machine.leave)
    try:
        main(config)
    except UserError as error:
        fail(error)
    except (torch.OutOfMemoryError, MemoryError) as error:
        fail(
            "out of memory: in a rollout, lower --decode_batch_size or "
            "--vllm_gpu_memory_utilization; in an update, lower --microbatch_tokens or give "
            f"--gradient_checkpointing ({error})"
        )
    finally:
        progress.clear_line()
        machine.end()
    machine.end_one_of_several_ranks()


class Result(NamedTuple):
    """What a run leaves, for a notebook."""

    folder: Path
    steps: list[dict]  # the rows of metrics.jsonl
    evaluations: list[dict]  # the rows of eval.jsonl


class Run:
    """What the five scripts do with their run folder and their optimizer."""

    training: checkpoints.TrainingState  # what a checkpoint holds; set by `start`
    handlers: dict  # those of the signals before `start`
    clock: float  # when the current step began

    def __init__(self, config: Config):
        """Connect the ranks, seed them, and choose the run folder.

        UserError if the folder is taken, or for flags that `configure` or the command line has not
        checked.
        """
        if config.typed is None:
            raise UserError(
                "a Config made by hand or by dataclasses.replace is not checked, and may lack its "
                "presets: use configure(variant=..., ...)"
            )
        config.check()
        machine.AT_EXIT.close()  # what a run that failed has left open in a notebook
        device = machine.choose_device(config.device)
        machine.AT_EXIT.enter_context(machine.process_group(device))
        torch.manual_seed(config.seed + world.RANK)
        self.config = config
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        config.num_threads = torch.get_num_threads()  # config.json records what the run has used
        self.stopped = 0.0  # when a signal asked for an end; 0 if none has
        self.skipped_in_a_row = 0  # updates that were NaN or infinite
        self.updates = UpdateMetrics()  # of the current step
        self.tokens = 0  # of the completions of all steps so far, on rank 0
        self.console = show.Console()
        self.started = f"{time.strftime('%m%d-%H%M%S')}-{os.getpid()}"
        self.folder, self.checkpoint = machine.from_rank_0(self.choose_folder)
        progress.begin("loading the policy and the problems")
        self.writer = show.make_writer(config, self.folder) if world.RANK == 0 else None

    def choose_folder(self) -> tuple[Path, Path | None]:
        """Lock the run folder. Return it, and the checkpoint to resume from if there is one."""
        resumed = self.config.resume_from_checkpoint
        if resumed:
            folder, checkpoint = find_run(resumed, self.config.script)
            machine.own(folder)
            return folder, checkpoint or checkpoints.newest(folder)
        name = f"runs/{self.config.script.stem}-{self.config.variant}-{self.started}"
        folder = Path(self.config.output_dir or name)
        while folder.exists() and not self.config.output_dir:  # another run of this second
            folder = folder.with_name(f"{folder.name}-")
        with using(folder):
            new = [path for path in (folder, *folder.parents) if not path.exists()]
            machine.AT_EXIT.callback(machine.remove_empty, new)
            folder.mkdir(parents=True, exist_ok=True)
            is_taken = (folder / "config.json").exists()
        if is_taken:
            raise UserError(
                f"--output_dir {folder} holds a run or a model; choose another, or "
                f"--resume_from_checkpoint {folder}"
            )
        machine.own(folder)
        return folder, None

    def start(self, policy, tokenizer, optimizer, scheduler, stream, memory=None) -> int:
        """Register what checkpoints hold, and restore it with --resume_from_checkpoint.

        Return the last step that is done, 0 for a new run. From here on, a signal asks for an end
        after the current step. UserError if the problems do not fit into the policy's context, or
        if the checkpoint does not belong to this run.
        """
        state = checkpoints.TrainingState(policy, tokenizer, optimizer, scheduler, stream, memory)
        if reward := find_verifier(self.config.verifier).file:
            state.verifier = zlib.crc32(Path(reward).read_bytes())
        self.training = state
        check_context(policy, tokenizer, stream.problems, self.config)
        self.handlers = machine.handle_signals(self.on_signal)
        step = 0
        if self.checkpoint:
            step = checkpoints.restore(self.checkpoint, state, self.config)
            if step > self.config.max_steps:
                raise UserError(f"--max_steps {self.config.max_steps}: {step} are done already")
            if step == self.config.max_steps:
                progress.write(f"all {step} steps are done; a larger --max_steps would continue")
        if world.RANK == 0:
            self.forget_after(step if self.checkpoint else -1)
            self.write_config(policy.device)
            logged = show.read_rows(self.folder, "metrics")
            self.tokens = logged[-1].get("tokens", 0) if logged else 0
            if step == 0:
                amount = f"{self.config.eval_samples} completions of each"
                for name, problems in stream.evaluation.items():
                    progress.write(f"evaluating {name}: {len(problems)} problems, {amount}")
        self.clock = time.perf_counter()
        return step

    def write_config(self, device) -> None:
        """Write config.json: the script, its flags, and what the run is made with."""
        file, earlier = self.folder / "config.json", []
        if file.exists():
            earlier = json.loads(file.read_text()).get("record", {}).get("commands", [])
        about = dict(script=self.config.script.name, record=machine.record_of(device, earlier))
        show.write_whole(file, json.dumps(about | asdict(self.config), indent=2).encode())

    def forget_after(self, step: int) -> None:
        """Delete what a killed run has half written, and set aside what it saved after a step."""
        for rest in self.folder.glob(".saving-*"):
            shutil.rmtree(rest)
        saved = checkpoints.checkpoints_of(self.folder)
        later = [checkpoint for checkpoint in saved if checkpoints.step_of(checkpoint) > step]
        if later:
            aside = self.folder / f"before-{self.started}"
            aside.mkdir()
            for name in ("config.json", *map("{}.jsonl".format, show.LOGS)):
                if (self.folder / name).exists():
                    shutil.copy(self.folder / name, aside)
            for checkpoint in later:
                checkpoint.rename(aside / checkpoint.name)
        show.drop_rows_after(self.folder, step)

    def on_signal(self, number, frame):
        """Ask for an end after this step. Another Ctrl-C, two seconds later, ends at once.

        Several ranks must stop together. torchrun passes a Ctrl-C on to ranks that have seen it.
        """
        caller = frame
        while caller and not any(value is self for value in caller.f_locals.values()):
            caller = caller.f_back
        is_over = caller is None  # the run has failed, in a notebook that goes on
        if is_over or number == signal.SIGINT and 0 < self.stopped < time.monotonic() - 2:
            self.handlers[number](number, frame)
        elif not self.stopped:
            self.stopped = time.monotonic()
            progress.write("stopping after this step; Ctrl-C to quit at once")

    def log_evaluation(self, step: int, evaluations: list[dict], diagnostics=None) -> None:
        """Add a row for each evaluation set to eval.jsonl, and print it.

        Diagnostics are an algorithm's own metrics. problems.jsonl gets one row for each problem.
        """
        if world.RANK == 0:
            problems = []
            for metrics in evaluations:
                row = {"step": step, **metrics, **(diagnostics or {})}
                by_problem = row.pop("by_problem", [])
                problems += [{"step": step, "set": row["set"], **result} for result in by_problem]
                show.append_row(self.folder, "eval", row)
                first = show.read_evaluations(self.folder)[row["set"]][0]
                name = row["set"] if len(evaluations) > 1 else ""
                lines = self.console.evaluation(step, self.config.max_steps, name, row, first)
                self.show(f"eval/{row['set']}", step, row, lines)
            if problems:
                show.keep_problems(self.folder, problems)
        self.clock = time.perf_counter()

    def log_step(self, step: int, batch, advantages, diagnostics: dict, weights=None) -> None:
        """Add a row to metrics.jsonl, print it, and keep some completions. All ranks call it.

        batch is a common.Batch, advantages are [N, 1] or [N, T], diagnostics are an algorithm's own
        metrics, and weights [N, T] multiply advantages. Two samples go into samples.jsonl, and the
        tokens of --log_tokens groups into tokens.jsonl.
        """
        if weights is not None:
            advantages = weights * advantages
        norms = self.updates.grad_norms
        metrics = batch.metrics() | self.updates.metrics()
        self.updates = UpdateMetrics()
        largest = (batch.completion_mask * advantages).abs().max().item()
        metrics["advantage_max"] = machine.global_max(largest)
        self.tokens += round(metrics["length"] * len(batch.samples) * world.WORLD_SIZE)
        peak = machine.global_max(machine.peak_memory_gb(batch.rewards.device))
        metrics |= {"tokens": self.tokens, "time": time.time(), "peak_memory_gb": peak}
        metrics["seconds_rollout"] = batch.seconds
        metrics["seconds_update"] = time.perf_counter() - self.clock - batch.seconds
        metrics |= read_metrics(diagnostics, {"step": step} | metrics)
        if world.RANK == 0:
            show.append_row(self.folder, "metrics", {"step": step, **metrics})
            mask = batch.completion_mask[:2]  # [2, T]
            means = (mask * advantages[:2]).sum(1) / mask.sum(1).clamp(min=1)  # [2]
            for sample, advantage in zip(batch.samples, means.tolist(), strict=False):
                row = show.sample_row(sample, self.training.tokenizer, advantage)
                show.append_row(self.folder, "samples", {"step": step, **row})
            lines = self.console.step(step, self.config.max_steps, metrics)
            if zeros := norms.count(0):
                why = "no group's rewards differ, or the formula gives 0"
                lines.append(f"no update in {zeros} of {len(norms)}: the gradient is 0; {why}")
            if count := metrics["skipped"]:
                lines.append(
                    f"no update: the gradient is NaN or infinite in {count} of {len(norms)}"
                )
            self.show("metrics", step, metrics, lines)
        show.log_tokens(self, step, batch, advantages, weights)

    def show(self, name: str, step: int, metrics: dict, lines: list[str]) -> None:
        """Print the lines of a row, and send the row to --report_to."""
        progress.write(*lines)
        if self.writer:
            numbers = {key: value for key, value in metrics.items() if key not in ("set", "step")}
            self.writer({f"{name}/{key}": value for key, value in numbers.items()}, step)

    def add(self, loss: torch.Tensor, batch, rows, *, logprobs: torch.Tensor, **per_token) -> None:
        """Count the rows of a microbatch. Means cover all tokens of the completions."""
        logprobs = logprobs.detach()
        per_token["loss_share"] = batch.loss_mask[rows]
        if self.config.beta > 0:  # the loss's own is 0 where it counts no token
            to_reference = batch.ref_logprobs[rows] - logprobs  # [m, T]
            per_token["kl"] = to_reference.expm1() - to_reference
        log_ratio = logprobs - batch.old_logprobs[rows]  # [m, T]
        self.updates.add(loss, batch.completion_mask[rows], log_ratio, **per_token)

    def count_update(self, grad_norm: float, learning_rate: float) -> None:
        """Log an update. UserError after MAX_SKIPPED_UPDATES NaN or infinite norms in a row."""
        finite = math.isfinite(grad_norm)
        self.updates.grad_norms.append(grad_norm)
        self.updates.learning_rate = learning_rate
        self.skipped_in_a_row = 0 if finite else self.skipped_in_a_row + 1
        settings = settings_of(self.training.policy)
        if not finite and settings.dtype == torch.float16:  # an overflow
            settings.loss_scale /= 2
        if self.skipped_in_a_row >= MAX_SKIPPED_UPDATES:
            raise UserError(
                f"{self.skipped_in_a_row} updates in a row had a NaN or infinite gradient: "
                f"look at loss, kl, mismatch and grad_norm in {self.folder}/metrics.jsonl, and try "
                "a lower --learning_rate, --beta or --entropy_coef, or --precision fp32"
            )

    def end_step(self, step: int) -> bool:
        """Save a checkpoint when one is due. Return True if the run has been asked to stop."""
        # on all ranks, a signal after this line counts at the next step
        stopped = any(machine.gather([self.stopped]))
        checkpoints.check_memory(self.training.memory)
        every = self.config.save_steps or math.ceil(self.config.max_steps / 3)
        is_last = stopped or step == self.config.max_steps
        if is_last or step % every == 0:
            folder = self.folder / f"checkpoint-{step}"
            checkpoints.save(folder, self.training, step)
            progress.write(f"saved {folder}")
            if world.RANK == 0 and not is_last:  # `finish` draws after the last one
                self.draw()
            if world.RANK == 0 and self.config.save_total_limit:
                for old in checkpoints.checkpoints_of(self.folder)[self.config.save_total_limit :]:
                    machine.remove(old)
        self.clock = time.perf_counter()
        return stopped

    def draw(self) -> None:
        """Write curves.png and report.html from the logs."""
        progress.replace_line("drawing the curves")
        show.draw_curves(self.folder)
        if (self.folder / "tokens.jsonl").exists():
            show.write_report(self.folder / "report.html", [self.folder])

    def finish(self) -> Result:
        """Write curves.png and report.html, close what the run has opened, and return its rows.

        All ranks call it together.
        """
        if world.RANK == 0:
            self.draw()
            files = sorted(path.name for path in self.folder.glob("[!.]*.*"))
            progress.write("", progress.folded(f"{self.folder} holds: {' '.join(files)}"))
            if self.stopped:
                progress.write(f"to continue: --resume_from_checkpoint {self.folder}")
        machine.gather([])  # a rank that ended earlier could abort the others
        machine.AT_EXIT.close()
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        return Result(self.folder, *(show.read_rows(self.folder, x) for x in ("metrics", "eval")))


def check_advantages(rewards: torch.Tensor, loss_mask: torch.Tensor, advantages) -> None:
    """Raise UserError unless advantages are [B, G] or [B, G, T], finite and without a gradient.

    rewards are [B, G], and loss_mask is [N, T].
    """
    if not isinstance(advantages, torch.Tensor):
        raise UserError(f"the advantages are a {type(advantages).__name__}, not a torch.Tensor")
    shapes = [*rewards.shape], [*rewards.shape, loss_mask.shape[1]]
    if [*advantages.shape] not in shapes:
        raise UserError(
            f"the advantages have the shape {[*advantages.shape]}, not [B, G] = {shapes[0]} or "
            f"[B, G, T] = {shapes[1]}"
        )
    if advantages.requires_grad:
        raise UserError("the advantages have a gradient of their own: add .detach()")
    bad = (~advantages.flatten(1).isfinite()).any(1).nonzero().flatten().tolist()  # groups
    if bad:
        listed = ", ".join(f"{reward:g}" for reward in rewards[bad[0]].tolist())
        raise UserError(
            f"the advantages of group {bad[0]} are NaN or infinite; its rewards are {listed}. Does "
            "your formula divide by 0 there?"
        )


def read_metrics(own, logged: dict) -> dict[str, float]:
    """Return an algorithm's own metrics as floats.

    UserError for a value that is no number, and for a name that the loop logs itself.
    """
    if not isinstance(own, dict):
        raise UserError(f"the metrics beside the advantages are {own!r}, not a dict such as {{}}")
    numbers = {}
    for name, value in own.items():
        if name in logged:
            raise UserError(f"the loop logs a metric {name!r} already: give yours another name")
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, RuntimeError):  # the last one for tensors of many numbers
            raise UserError(f"your metric {name!r} is no number, but {value!r}") from None
    return numbers

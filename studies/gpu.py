"""What a GPU does with this project: whether all is well on it, and how fast it is.

    python studies/gpu.py                      # 6 minutes on an H100
    python studies/gpu.py --small              # the same on a CPU, with small sizes
    python studies/gpu.py --page gpu.jsonl     # the tables of docs/gpu.md from what a run has found

A part that fails, or runs out of its time, leaves a line about that, and the next part goes on.
Each measurement is a line of --out as soon as it is made. What needs a package that is not
installed is noted as not run.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path
from shutil import copytree

STARTED = time.time()
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all models are made here, or folders

import project

from rlvr.machine import choose_device
from rlvr.policy import load_policies
from rlvr.policy.logprobs import frozen_logprobs
from rlvr.policy.memory import memory_estimate
from rlvr.policy.reader import product
from rlvr.policy.sharding import layers_of
from rlvr.policy.tiny import build_tiny
from rlvr.rollout import Sampler
from rlvr.show.logs import read_rows
from rlvr.tasks import Sample, encode_prompt, open_problems
from rlvr.training import make_optimizer

import safetensors.torch
import torch
from products import now
from throughput import QWEN_05, QWEN_15, peak_memory, random_policy, start_peak

import common
import grpo

DEVICE = choose_device()
SCRIPTS = ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo")
SIZES = dict(
    shapes={"0.5B": QWEN_05, "1.5B": QWEN_15},  # Qwen2.5's, with random weights
    matrix=8192,  # rows and columns of a product
    rows=(64, 256, 512),  # completions of a rollout
    prompt=128,  # tokens
    new=128,  # tokens of a completion in a rollout
    texts=64,  # completions of an update
    completion=384,  # tokens of such a completion
    microbatches=(4096, 8192, 16384, 32768),  # tokens
    compared=32,  # completions whose log-probs and gradients are compared
    few=256,  # tokens of a microbatch where many of them are compared with one
    trl="--work 0.5B --rounds 2 --tokens 128",
)
SMALL = dict(
    shapes={"small": (64, 128, 2, 4, 2, 1000)},
    matrix=256,
    rows=(4, 8),
    prompt=16,
    new=8,
    texts=8,
    completion=24,
    microbatches=(80, 320),
    compared=4,
    few=40,
    trl="--work tiny --rounds 1 --tokens 12",
)


class TimeUp(BaseException):
    """A part has used up its seconds. No `except Exception` keeps it."""


class Notes:
    """The lines of --out: a dict each, with the part, what it is about, and the numbers."""

    def __init__(self, file: Path):
        self.file, self.part, self.failed = open(file, "a"), "", False

    def __call__(self, what: str, **found) -> None:
        """Write a line, and show it."""
        self.failed |= not found.get("failed", "not run").startswith("not run")
        self.file.write(json.dumps({"part": self.part, "what": what, **found}) + "\n")
        self.file.flush()
        shown = ", ".join(f"{name} {in_words(value)}" for name, value in found.items())
        print(f"[{time.time() - STARTED:.0f} s] {self.part}: {what}: {shown}", flush=True)

    @contextlib.contextmanager
    def attempt(self, what: str):
        """Note what fails inside, and go on behind it. It begins with all memory given back."""
        gc.collect()
        torch.cuda.empty_cache()  # does nothing without a GPU
        start_peak()
        try:
            yield
        except torch.OutOfMemoryError:
            self(what, failed="out of memory")
        except Exception:
            self(what, failed=traceback.format_exc())


def in_words(value) -> str:
    """A number in three digits, or to the nearest whole one; the last line of a text."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).strip().splitlines()[-1]


def seconds_of(function, repeats: int) -> list[float]:
    """The first time of a call, and the median of so many more."""
    found = []
    for _ in range(repeats + 1):
        started = now()
        function()
        found.append(now() - started)
    return [found[0], statistics.median(found[1:])]


@cache
def peak_flops(size: int, in_fp32: bool = False) -> float:
    """Operations a second in a product of two bf16 matrices: what all else is compared with."""
    a, b = torch.randn(2, size, size, device=DEVICE, dtype=torch.bfloat16)
    multiply = product if in_fp32 else torch.mm
    return 2 * size**3 / seconds_of(lambda: multiply(a, b), 20)[1]


def run_all(commands: dict[str, list], folder: Path):
    """Run Python programs, and yield each one's name, exit code and output.

    On a GPU they run at the same time.
    """
    processes = {}
    try:
        for name, command in commands.items():
            processes[name] = subprocess.Popen(
                [sys.executable, *map(str, command)],
                cwd=project.ROOT,
                stdout=open(folder / f"{name}.log", "w"),
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its children end with it
            )
            if DEVICE.type == "cpu":
                processes[name].wait()
        for name, process in processes.items():
            yield name, process.wait(), (folder / f"{name}.log").read_text()
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


# ---------------------------------------------------------------------- policies and completions


def make_policy(shape, sharp=1.0):
    """A policy of random weights that computes in bf16, as on a GPU.

    `sharp` multiplies its embedding, which is the head, too: so it prefers some tokens to others.
    """
    with DEVICE:
        policy = random_policy(shape)
    policy.get_input_embeddings().weight.data.mul_(sharp)
    policy.bf16 = True
    return policy


def random_ids(shape, rows: int, tokens: int) -> list[list[int]]:
    """Rows of tokens, none of which stands for an end or padding."""
    rng = random.Random(rows)
    return [[rng.randrange(2, shape[-1]) for _ in range(tokens)] for _ in range(rows)]


def backward(batch: common.Batch, config) -> float:
    """One minibatch of all completions, as grpo.py computes it -> its loss; gradients add up."""
    advantages = grpo.grpo_advantage(batch.rewards).view(-1, 1)  # [N, 1]
    batch.token_weights = common.token_weights(batch.loss_mask, config.aggregation)  # [N, T]
    (minibatch,) = batch.minibatches(config)
    total = 0.0
    for rows in minibatch:
        logprobs, entropy = common.token_logprobs(batch.sampler.policy, batch.samples, rows)
        batch.set_old_logprobs(rows, logprobs.detach())
        loss, _ = common.ppo_clip_loss(
            logprobs=logprobs,
            old_logprobs=batch.old_logprobs[rows],
            advantages=advantages[rows],
            loss_mask=batch.loss_mask[rows],
            token_weights=batch.token_weights[rows],
            entropy=entropy,
        )
        loss.backward()
        total = total + loss.detach()
    return float(total)


def policies_to_compare(given, sizes):
    """The name, policy and tokenizer of some policies, and prompts for each."""
    configs = {"tiny": grpo.Config()}
    if given.smollm2:
        real = grpo.Config(model=str(given.smollm2), dataset="arithmetic", max_prompt_length=64)
        configs["SmolLM2"] = real
    for name, config in configs.items():
        policy, _, tokenizer = load_policies(config)
        policy.bf16 = True
        problems = open_problems(config, tokenizer)[0].draw(sizes["compared"] // 2)
        prompts = [encode_prompt(tokenizer, problem.prompt) for problem in problems]
        yield name, policy, tokenizer, prompts
    name, shape = next(iter(sizes["shapes"].items()))
    prompts = random_ids(shape, sizes["compared"] // 2, sizes["prompt"])
    yield f"random, {name}", make_policy(shape, sharp=8.0), build_tiny()[1], prompts


def sampled_batch(policy, tokenizer, prompts, sizes, **flags):
    """Two completions of each prompt by the sampler's bf16 twin, one with a reward -> and flags."""
    count = 2 * len(prompts)
    config = grpo.Config(num_generations=2, minibatch_size=count, engine="hf", **flags)
    sampler = Sampler(policy, tokenizer, config, common.decode)
    prompts = [ids for ids in prompts for _ in range(2)]
    torch.manual_seed(0)
    sampler.sync()
    completions, logprobs = sampler.generate(prompts, 1.0, 1.0, min(48, sizes["new"]))
    sampler.sleep()
    samples = [
        Sample(prompts[i], completions[i], logprobs=logprobs[i], reward=float(i % 2))
        for i in range(count)
    ]
    return common.make_batch(samples, config, sampler), config


# ------------------------------------------------------------------------------------- the parts


def machine(notes, given, sizes):
    """What the numbers below were measured with."""
    versions = {}
    for name in "torch transformers accelerate datasets math-verify trl vllm".split():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    notes("software", python=platform.python_version(), **versions)
    notes("CPU", cores=os.cpu_count())
    if DEVICE.type == "cuda":
        about = torch.cuda.get_device_properties(DEVICE)
        capability = f"{about.major}.{about.minor}"
        memory = about.total_memory / 1e9
        notes(about.name, memory_GB=memory, capability=capability, cuda=torch.version.cuda)
    for name in ("bf16", "fp32"):
        speed = peak_flops(sizes["matrix"], name == "fp32")
        notes(f"product {sizes['matrix']}^3 of bf16, result in {name}", tflops=speed / 1e12)


@torch.no_grad()
def plain_logprobs(policy, samples, width: int) -> torch.Tensor:
    """Log-probs [n, width] as a textbook computes them: a row at a time, in fp32."""
    found = torch.zeros(len(samples), width, device=DEVICE)
    for row, sample in enumerate(samples):
        ids = torch.tensor([sample.prompt_ids + sample.completion_ids], device=DEVICE)
        count = len(sample.completion_ids)
        logp = policy(input_ids=ids, use_cache=False).logits[0, -count - 1 : -1].log_softmax(-1)
        found[row, :count] = logp.gather(1, ids[0, -count:, None])[:, 0]
    return found


def logprobs(notes, given, sizes):
    """Log-probabilities of the same completions: by the sampler's bf16 twin, by the trainer in
    bf16, by the trainer in fp32, and by a plain forward pass in fp32 (nats per token)."""
    for name, policy, tokenizer, prompts in policies_to_compare(given, sizes):
        with notes.attempt(name):
            batch, config = sampled_batch(policy, tokenizer, prompts, sizes, microbatch_tokens=1024)
            found = {"sampler": batch.sampled_logprobs}
            found["trainer"], entropies = frozen_logprobs(policy, batch.samples, config)
            policy.bf16 = False
            found["trainer in fp32"], _ = frozen_logprobs(policy, batch.samples, config)
            mask = batch.completion_mask
            found["plain"] = plain_logprobs(policy, batch.samples, mask.shape[1])
            entropy = float(entropies.sum() / mask.sum())
            notes(f"{name}: all", tokens=int(mask.sum()), entropy=entropy)
            pairs = [("trainer", "sampler"), ("sampler", "plain"), ("trainer", "plain")]
            for one, other in [*pairs, ("trainer in fp32", "plain")]:
                difference = (found[one] - found[other])[mask > 0]  # [M]
                notes(
                    f"{name}: {one} less {other}",
                    mean=float(difference.abs().mean()),
                    largest=float(difference.abs().max()),
                    k3=float((difference.expm1() - difference).mean()),
                    weight_max=float(difference.exp().max()),
                )


def gradients(notes, given, sizes):
    """One update of the same completions, computed in several ways: how far gradients, and the
    change of the weights, are from those of the first way (norm of the difference over norm)."""
    ways = {  # in bf16, microbatch_tokens, gradient checkpointing
        "fp32, one microbatch": (False, 10**6, False),
        "fp32, many microbatches": (False, sizes["few"], False),
        "bf16, one microbatch": (True, 10**6, False),
        "bf16, the same again": (True, 10**6, False),
        "bf16, many microbatches": (True, sizes["few"], False),
        "bf16, checkpointing": (True, 10**6, True),
    }
    for name, policy, tokenizer, prompts in policies_to_compare(given, sizes):
        with notes.attempt(name):
            batch, config = sampled_batch(policy, tokenizer, prompts, sizes, learning_rate=1e-6)
            first, before = {}, torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
            for way, (policy.bf16, config.microbatch_tokens, checkpointing) in ways.items():
                set_checkpointing(policy, checkpointing)
                loss = backward(batch, config)
                gradient = torch.cat([weight.grad.flatten() for weight in policy.parameters()])
                optimizer, _ = make_optimizer(policy, config)
                optimizer.step()
                optimizer.zero_grad()
                after = torch.nn.utils.parameters_to_vector(policy.parameters()).detach()
                torch.nn.utils.vector_to_parameters(before.clone(), policy.parameters())
                found = dict(gradient=gradient, weights=after - before)
                first.setdefault(way[:4], found)
                far = {
                    f"{key} from {kind}": float((found[key] - tensors[key]).norm())
                    / max(1e-30, float(tensors[key].norm()))
                    for kind, tensors in first.items()
                    for key in found
                }
                notes(f"{name}: {way}", loss=loss, norm=float(gradient.norm()), **far)


def set_checkpointing(policy, wanted: bool) -> None:
    """Switch gradient checkpointing on or off."""
    policy.gradient_checkpointing_disable()
    if wanted:
        policy.gradient_checkpointing_enable()


def scripts(notes, given, sizes):
    """Three steps of every script on the tiny policy, all at once; then the last one again, resumed
    from the second: how far its weights and its loss are from those of the first time."""
    flags = "--prompts_per_step 8 --num_generations 8 --minibatch_size 32 --max_steps 3"
    flags = f"{flags} --save_steps 2 --eval_problems 8 --eval_samples 4 --engine hf".split()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        start = {name: [f"{name}.py", *flags, "--output_dir", scratch / name] for name in SCRIPTS}
        with notes.attempt("images"):  # which needs Pillow, datasets and pytest
            start["images"] = on_images(scratch)
        resumed = {}
        for name, code, output in run_all(start, scratch):
            if code:
                notes(name, failed=output)
                continue
            row = read_rows(scratch / name, "metrics")[-1]
            numbers = ("reward", "loss", "grad_norm", "mismatch", "mismatch_max_ratio")
            notes(name, steps=row["step"], **{key: row[key] for key in numbers})
            if name in SCRIPTS:
                copy = copytree(scratch / name, scratch / f"{name}-resumed")
                resumed[copy.name] = [
                    f"{name}.py",
                    "--resume_from_checkpoint",
                    copy / "checkpoint-2",
                ]
        for name, code, output in run_all(resumed, scratch):
            if code:
                notes(name, failed=output)
                continue
            runs = scratch / name.removesuffix("-resumed"), scratch / name
            files = [run / "checkpoint-3/model.safetensors" for run in runs]
            once, again = map(safetensors.torch.load_file, files)
            far = max(float((once[key] - again[key]).abs().max()) for key in once)
            losses = [read_rows(run, "metrics")[-1]["loss"] for run in runs]
            notes(name, weights_differ_by=far, loss_differs_by=abs(losses[0] - losses[1]))


def on_images(folder: Path) -> list:
    """The command of a run on pictures of squares, by a small Qwen2.5-VL of random weights."""
    sys.path.append(str(project.ROOT / "tests"))
    import test_images

    return ["grpo.py", *test_images.flags(folder, output_dir=folder / "images", engine="hf")]


def estimate(policy, config, key: str) -> float:
    """GB that memory_estimate promises."""
    on_gpu = DEVICE.type == "cuda"
    gpu = torch.cuda.get_device_properties(DEVICE).total_memory / 1e9 if on_gpu else 0.0
    return memory_estimate(policy, config, gpu)[key]


def rollouts(notes, given, sizes):
    """Completions by the decoding loop, eight of a prompt. Memory is with fp32 weights and their
    bf16 copy alone: Adam's moments are left out of the estimate, too."""
    for name, shape in sizes["shapes"].items():
        policy = make_policy(shape)
        parameters = sum(weight.numel() for weight in policy.parameters()) / 1e9
        for rows in sizes["rows"]:
            what = f"{name}, {rows} rows"
            with notes.attempt(what):
                config = grpo.Config(
                    rollout_batch_size=rows,
                    max_prompt_length=sizes["prompt"],
                    max_completion_length=sizes["new"],
                    engine="hf",
                )
                sampler = Sampler(policy, build_tiny()[1], config, common.decode)
                sampler.stops = []  # so that all completions are of one length
                prompts = random_ids(shape, -(-rows // 8), sizes["prompt"])
                prompts = [ids for ids in prompts for _ in range(8)][:rows]
                sampler.sync()
                sampler.generate(prompts, 1.0, 1.0, 4)  # warms up
                start_peak()
                started = now()
                sampler.generate(prompts, 1.0, 1.0, sizes["new"])
                seconds = now() - started
                notes(
                    what,
                    tokens_per_second=rows * sizes["new"] / seconds,
                    ms_per_token_of_all=1e3 * seconds / sizes["new"],
                    peak_GB=peak_memory() / 1e9,
                    estimate_GB=estimate(policy, config, "a rollout") - 8 * parameters,
                )


def updates(notes, given, sizes):
    """Updates of random completions behind prompts that differ, by microbatches of so many tokens.
    MFU is relative to the product of large matrices. What is computed twice counts once."""
    for name, shape in sizes["shapes"].items():
        policy = make_policy(shape)
        optimizer, _ = make_optimizer(policy, grpo.Config(learning_rate=1e-6))
        for checkpointing in (False, True):
            set_checkpointing(policy, checkpointing)
            for tokens in sizes["microbatches"]:
                what = f"{name}, {tokens} tokens{', checkpointing' * checkpointing}"
                time_update(notes, what, policy, optimizer, shape, sizes, tokens)
        set_checkpointing(policy, False)
        tokens = sizes["microbatches"][1]
        what = f"{name}, {tokens} tokens, eight completions of a prompt"
        time_update(notes, what, policy, optimizer, shape, sizes, tokens, shared=8)
        del policy, optimizer


def compiled(notes, given, sizes):
    """The same with --compile."""
    for name, shape in sizes["shapes"].items():
        policy = make_policy(shape)
        for layer in layers_of(policy):
            layer.compile(dynamic=True)
        policy.is_compiled = True
        optimizer, _ = make_optimizer(policy, grpo.Config(learning_rate=1e-6))
        tokens = sizes["microbatches"][1]
        what = f"{name}, {tokens} tokens, --compile"
        time_update(notes, what, policy, optimizer, shape, sizes, tokens)
        del policy, optimizer


def time_update(notes, what, policy, optimizer, shape, sizes, microbatch: int, shared=1) -> None:
    """Note the speed and the memory of an update by microbatches of so many tokens."""
    texts, completion = sizes["texts"], sizes["completion"]
    with notes.attempt(what):
        optimizer.zero_grad()  # what an update has left that ran out of memory
        config = grpo.Config(
            num_generations=2,
            minibatch_size=texts,
            microbatch_tokens=microbatch,
            gradient_checkpointing=policy.is_gradient_checkpointing,
            max_prompt_length=sizes["prompt"],
            max_completion_length=completion,
            engine="hf",
        )
        prompts = random_ids(shape, texts // shared, sizes["prompt"])
        samples = [
            Sample(prompts[i // shared], ids, logprobs=[0.0] * completion, reward=float(i % 2))
            for i, ids in enumerate(random_ids(shape, texts, completion))
        ]
        sampler = Sampler(policy, build_tiny()[1], config, common.decode)
        batch = common.make_batch(samples, config, sampler)

        def update():
            backward(batch, config)
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0).item()
            optimizer.step()
            optimizer.zero_grad()

        first, seconds = seconds_of(update, 2)
        peak = peak_memory() / 1e9
        scored = texts * completion
        tokens = scored + len(prompts) * sizes["prompt"]
        weights = [weight for layer in layers_of(policy) for weight in layer.parameters()]
        attention = shape[2] * shape[0] * (sizes["prompt"] + completion)
        in_layers = sum(weight.numel() for weight in weights) + attention
        flops = 6 * (tokens * in_layers + scored * shape[0] * shape[-1])
        notes(
            what,
            tokens_per_second=tokens / seconds,
            seconds=seconds,
            first_seconds=first,
            mfu=flops / seconds / peak_flops(sizes["matrix"]),
            peak_GB=peak,
            estimate_GB=estimate(policy, config, "an update"),
        )


def trl(notes, given, sizes):
    """grpo.py and TRL's GRPOTrainer in turns, a step each (`studies/throughput.py`): medians, and
    the ratio of the two."""
    if not importlib.util.find_spec("trl"):
        notes("TRL", failed="not run: TRL is not installed")
        return
    command = [project.STUDIES / "throughput.py", "--busy", *sizes["trl"].split()]
    with tempfile.TemporaryDirectory() as scratch:
        for _, code, output in run_all({"throughput": command}, Path(scratch)):
            if code:
                notes(sizes["trl"], failed=output)
            for line in output.splitlines():
                if line.startswith("| ") and line.count("|") == 5:
                    _, what, ours, theirs, ratio, _ = map(str.strip, line.split("|"))
                    if what:
                        notes(what, grpo=ours, TRL=theirs, ratio=ratio)


def smollm2(notes, given, sizes):
    """SmolLM2-135M-Instruct learns sums, by the defaults for arithmetic: pass@1 before and after 24
    steps, and the median seconds of a step's two halves."""
    if not given.smollm2:
        notes("SmolLM2", failed="not run: no --smollm2 FOLDER")
        return
    flags = ["--model", given.smollm2.resolve(), "--dataset", "arithmetic"]
    flags += ["--max_steps", "1", "--eval_problems", "4"] if given.small else []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("grpo", "fade"):
            started, folder = time.time(), Path(scratch, name)
            command = [f"{name}.py", *flags, "--output_dir", folder]
            for _, code, output in run_all({name: command}, Path(scratch)):
                if code:
                    notes(name, failed=output)
                    continue
                evals, steps = read_rows(folder, "eval"), read_rows(folder, "metrics")
                notes(
                    name,
                    steps=steps[-1]["step"],
                    before=evals[0]["pass@1"],
                    after=evals[-1]["pass@1"],
                    mismatch=statistics.mean(row["mismatch"] for row in steps),
                    rollout_seconds=statistics.median(row["seconds_rollout"] for row in steps),
                    update_seconds=statistics.median(row["seconds_update"] for row in steps),
                    all_seconds=time.time() - started,
                )


PARTS = (machine, logprobs, gradients, scripts, rollouts, updates, compiled, trl, smollm2)
LIMIT = 200  # seconds of a part


def run_parts(given) -> bool:
    """Run the parts that are asked for, until the minutes are over -> whether anything failed."""
    notes = Notes(given.out)

    def on_alarm(number, frame):
        raise TimeUp

    signal.signal(signal.SIGALRM, on_alarm)
    for part in PARTS:
        notes.part = part.__name__
        if notes.part not in given.parts:
            continue
        started = time.time()
        left = STARTED + 60 * given.minutes - started
        if left < 5:
            notes("all", failed="not run: no time was left")
            continue
        try:
            with notes.attempt("all"):
                signal.setitimer(signal.ITIMER_REAL, min(LIMIT, left), 10)  # again, if it is lost
                part(notes, given, SMALL if given.small else SIZES)
        except TimeUp:
            notes("all", failed=f"stopped after {time.time() - started:.0f} s")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        notes("all", part_seconds=time.time() - started)
    return notes.failed


def tables_of(file: Path) -> list[str]:
    """What a run has found: a section for each part, and a table for rows with the same numbers."""
    lines, text = [json.loads(line) for line in file.read_text().splitlines()], []
    for part in PARTS:
        rows = [line for line in lines if line["part"] == part.__name__]
        rows = [row for row in rows if "part_seconds" not in row]
        text += [f"### {part.__name__}", "", " ".join(part.__doc__.split()), ""]
        if not rows:
            text += ["Not run.", ""]
        tables = {}
        for row in rows:
            if "failed" in row:
                text += [f"{row['what']}: {in_words(row['failed'])}", ""]
            else:
                numbers = {key: row[key] for key in row if key not in ("part", "what")}
                tables.setdefault((*numbers,), []).append([row["what"], *numbers.values()])
        for head, found in tables.items():
            cells = [[what, *map(in_words, values)] for what, *values in found]
            text += [*project.markdown_table(["", *(h.replace("_", " ") for h in head)], cells), ""]
    return text


if __name__ == "__main__":
    names = [part.__name__ for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--minutes", type=float, default=8.0, help="parts after that are left out")
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"), help="lines are added to it")
    parser.add_argument("--parts", default=",".join(names), help="separated by commas")
    parser.add_argument("--smollm2", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--page", type=Path, help="write the tables of docs/gpu.md from this file")
    given = parser.parse_args()
    given.parts = given.parts.split(",")
    if {*given.parts} - {*names}:
        raise SystemExit(f"gpu.py: error: --parts takes {', '.join(names)}")
    if given.page:
        project.fill_in(project.ROOT / "docs/gpu.md", {"results": tables_of(given.page)})
    else:
        sys.exit(run_parts(given))

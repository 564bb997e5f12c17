"""Is all well on a GPU? Log-probs, gradients and every script, compared with what they should be.

    python studies/speed/gpu.py                      # 3 minutes on an H200, 10 with vLLM
    python studies/speed/gpu.py --small              # the same on a CPU, with small sizes
    python studies/speed/gpu.py --page gpu.jsonl     # the tables of docs/gpu.md

If a part fails, one line says so, and the next part begins. Each measurement becomes a line of
--out at once. Parts that need a package that is not installed are noted as not run.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

STARTED = time.time()
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all models are made here, or folders

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, SCRIPTS, fill_in, markdown_table

from rlvr.flags.command_line import read_flags
from rlvr.machine import AT_EXIT, choose_device, handle_signals, leave
from rlvr.policy import load_policies
from rlvr.policy.logprobs import frozen_logprobs
from rlvr.policy.models import DTYPES
from rlvr.policy.settings import Settings
from rlvr.rollout import make_sampler
from rlvr.show.logs import read_rows
from rlvr.tasks import Sample, encode_prompt, open_problems
from rlvr.training import make_optimizer

import safetensors.torch
import torch

import common
import grpo
from studies.speed.throughput import QWEN_05, random_policy

DEVICE = choose_device()
SIZES = {  # on a GPU, and with --small
    # of a policy with random weights
    "shape": (("0.5B", QWEN_05), ("small", (64, 128, 2, 4, 2, 1000))),
    "new": (48, 8),  # tokens of a completion
    "compared": (32, 4),  # completions whose log-probs and gradients are compared
    "few": (256, 40),  # tokens of a microbatch where many of them are compared with one
}


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
        """Free all memory first. Note an error inside, and go on after it."""
        gc.collect()
        torch.cuda.empty_cache()  # does nothing without a GPU
        try:
            yield
        except Exception:
            self(what, failed=traceback.format_exc())


def in_words(value) -> str:
    """A number in three digits, or to the nearest whole one; the last line of a text."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).strip().splitlines()[-1]


def run(script: str, *flags) -> None:
    """Run a script in this process. What it prints is not shown."""
    sys.argv = [f"{script}.py", *map(str, flags)]
    module = importlib.import_module(script)
    try:
        with contextlib.redirect_stdout(open(os.devnull, "w")):
            module.main(read_flags(module.Config, module.VARIANTS, sys.argv[1:]))
    finally:
        AT_EXIT.close()
        handle_signals(leave)  # Ctrl-C ends this study again


def run_alone(script: str, *flags) -> None:
    """Run a script in a process of its own; an error is noted with the end of what it prints."""
    command = [sys.executable, ROOT / f"{script}.py", *map(str, flags)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout[-1000:])


# ---------------------------------------------------------------------- policies and completions


def make_batch(sampler, prompts, completions, logprobs) -> common.Batch:
    """The batch of these completions; every other one has a reward of 1."""
    samples = [
        Sample(ids, own, logprobs=known, reward=float(i % 2))
        for i, (ids, own, known) in enumerate(zip(prompts, completions, logprobs, strict=True))
    ]
    return common.make_batch(samples, sampler.config, sampler)


def backward(batch: common.Batch) -> float:
    """One minibatch of all completions, as in grpo.py -> its loss; the gradients add up."""
    config = batch.sampler.config
    advantages = grpo.grpo_advantage(batch.rewards).view(-1, 1)  # [N, 1]
    batch.token_weights = common.token_weights(batch.loss_mask, config.aggregation)  # [N, T]
    (minibatch,) = batch.minibatches(config)
    total = 0.0
    for rows in minibatch:
        logprobs, entropy = common.token_logprobs(batch.sampler.policy, batch.samples, rows)
        batch.old_logprobs[rows] = logprobs.detach()
        loss, _ = common.ppo_clip_loss(
            logprobs=logprobs,
            old_logprobs=batch.old_logprobs[rows],
            advantages=advantages[rows],
            loss_mask=batch.loss_mask[rows],
            token_weights=batch.token_weights[rows],
            importance=batch.importance[rows],
            entropy=entropy,
        )
        loss.backward()
        total = total + loss.detach()
    return float(total)


def batches_to_compare(given, **flags):
    """The tiny policy and one of random weights -> the name, the policy, and a batch of each.

    The policy in bf16 writes two completions per prompt.
    """
    config = grpo.Config()
    tiny, _, tokenizer = load_policies(config)
    tiny.settings.dtype = torch.bfloat16
    problems = open_problems(config, tokenizer)[0].draw(given.compared // 2)
    prompts = [encode_prompt(tokenizer, each.prompt) for each in problems for _ in range(2)]
    shape_name, shape = given.shape
    with DEVICE:
        sharp = random_policy(shape)
    sharp.settings = Settings(torch.bfloat16)
    sharp.get_input_embeddings().weight.data.mul_(8.0)  # it prefers some tokens to others
    for name, policy in {"tiny": tiny, f"random, {shape_name}": sharp}.items():
        sizes = dict(num_generations=2, minibatch_size=len(prompts))
        config = grpo.Config(engine="hf", precision="bf16", **sizes, **flags)
        sampler = make_sampler(policy, tokenizer, config, common.decode)
        torch.manual_seed(0)
        how = dict(temperature=1.0, top_p=1.0, max_tokens=given.new)
        with sampler.synced():
            written = sampler.generate(prompts, **how)
        yield name, policy, make_batch(sampler, prompts, *written)


# ------------------------------------------------------------------------------------- the parts


def machine(notes, given):
    """What the numbers below were measured with."""
    versions = {}
    for name in "torch transformers accelerate datasets math-verify vllm".split():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    notes("software", python=sys.version.split()[0], **versions, cores=os.cpu_count())
    if DEVICE.type == "cuda":
        memory = torch.cuda.mem_get_info()[1] / 1e9
        capability = "{}.{}".format(*torch.cuda.get_device_capability())
        about = dict(memory_GB=memory, capability=capability, cuda=torch.version.cuda)
        notes(torch.cuda.get_device_name(), **about)


@torch.no_grad()
def plain_logprobs(policy, samples, width: int) -> torch.Tensor:
    """Log-probs [n, width] as a textbook computes them: row by row, in fp32."""
    found = torch.zeros(len(samples), width, device=DEVICE)
    for row, sample in enumerate(samples):
        ids = torch.tensor([sample.prompt_ids + sample.completion_ids], device=DEVICE)
        count = len(sample.completion_ids)
        logp = policy(input_ids=ids, use_cache=False).logits[0, -count - 1 : -1].log_softmax(-1)
        found[row, :count] = logp.gather(1, ids[0, -count:, None])[:, 0]
    return found


def logprobs(notes, given):
    """Log-probabilities of the same completions: by the sampler in bf16, by the trainer in
    bf16, by the trainer in fp32, and by a plain forward pass in fp32 (nats per token)."""
    for name, policy, batch in batches_to_compare(given, microbatch_tokens=1024):
        with notes.attempt(name):
            config, mask = batch.sampler.config, batch.completion_mask
            found = {"sampler": batch.sampled_logprobs}
            found["trainer"], entropies = frozen_logprobs(policy, batch.samples, config)
            policy.settings.dtype = torch.float32
            found["trainer in fp32"], _ = frozen_logprobs(policy, batch.samples, config)
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


def gradients(notes, given):
    """One update of the same completions, computed in several ways: how far gradients, and the
    change of the weights, are from those of the first way (norm of the difference over norm)."""
    flat = torch.nn.utils.parameters_to_vector
    for name, policy, batch in batches_to_compare(given, learning_rate=1e-6):
        with notes.attempt(name):
            config, weights = batch.sampler.config, [*policy.parameters()]
            first, before = {}, flat(weights).detach()
            for kind, many in itertools.product(("fp32", "bf16"), (False, True)):
                policy.settings.dtype = DTYPES[kind]
                config.microbatch_tokens = given.few if many else 10**6
                loss = backward(batch)
                gradient = flat([weight.grad for weight in weights])
                optimizer, _ = make_optimizer(policy, config)
                optimizer.step()
                optimizer.zero_grad()
                found = dict(gradient=gradient, weights=flat(weights).detach() - before)
                torch.nn.utils.vector_to_parameters(before.clone(), weights)
                first.setdefault(kind, found)
                far = {
                    f"{key} from {other}": float((found[key] - tensors[key]).norm())
                    / max(1e-30, float(tensors[key].norm()))
                    for other, tensors in first.items()
                    for key in found
                }
                what = f"{name}: {kind}, {'many microbatches' if many else 'one microbatch'}"
                notes(what, loss=loss, norm=float(gradient.norm()), **far)


SMALL = """--prompts_per_step 8 --num_generations 8 --minibatch_size 32 --max_steps 3 --save_steps 1
--eval_problems 8 --eval_samples 4"""
NUMBERS = ("loss", "reward", "grad_norm", "mismatch", "mismatch_max_ratio", "sampler_gap")


def train(notes, run_with, engine: str, resumed=SCRIPTS) -> None:
    """Three steps of every script, and of those to be resumed the last one again."""
    for name in SCRIPTS:
        with notes.attempt(name), tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "run")
            run_with(name, *SMALL.split(), "--engine", engine, "--output_dir", made)
            last = read_rows(made, "metrics")[-1]
            notes(name, steps=last["step"], **{key: last[key] for key in NUMBERS if key in last})
            if name not in resumed:
                continue
            file = made / f"checkpoint-{last['step']}/model.safetensors"
            weights = safetensors.torch.load_file(file)
            run_with(name, "--resume_from_checkpoint", made / f"checkpoint-{last['step'] - 1}")
            again = safetensors.torch.load_file(file)
            far = max(float((weights[key] - again[key]).abs().max()) for key in weights)
            loss = abs(read_rows(made, "metrics")[-1]["loss"] - last["loss"])
            notes(f"{name}-resumed", weights_differ_by=far, loss_differs_by=loss)


def scripts(notes, given):
    """Three steps of every script on the tiny policy; then the last one again, resumed: how far its
    weights and its loss are from those of the first time."""
    train(notes, run, "hf")


def vllm(notes, given):
    """With --engine vllm: three steps of every script on the tiny policy, and the last one of GRPO
    again, resumed. Each engine takes a minute to start."""
    if importlib.util.find_spec("vllm"):
        train(notes, run_alone, "vllm", resumed=["grpo"])
    else:
        notes("vLLM", failed="not run: vLLM is not installed")


def ranks(notes, given):
    """One update by one rank, and by two that share the GPU: FSDP2 with gloo, since NCCL refuses
    two ranks on one device. How far the gradient is (norm of the difference over norm)."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for size in (1, 2):
            file = f"{folder}/{size}.pt"
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
            program = Path(__file__).with_name("one_rank.py")
            command += ["--nproc_per_node", str(size), program, file]
            subprocess.run(command, check=True, timeout=240)
            found.append(torch.load(file))
        (loss, gradient), (of_two, by_two) = found
        far = float((by_two - gradient).norm() / gradient.norm())
        notes("two ranks", loss=loss, loss_of_two=of_two, gradient_differs_by=far)


PARTS = (machine, logprobs, gradients, scripts, ranks, vllm)


def run_parts(given) -> bool:
    """Run the parts that are asked for -> whether anything failed."""
    notes = Notes(given.out)
    for part in PARTS:
        notes.part, started = part.__name__, time.time()
        if part.__name__ not in given.parts:
            continue
        with notes.attempt("all"):
            part(notes, given)
        notes("all", part_seconds=time.time() - started)
    return notes.failed


def tables_of(file: Path) -> list[str]:
    """The lines of a section for each part that has run, with a table for each kind of row."""
    rows, text = [json.loads(line) for line in file.read_text().splitlines()], []
    for part in PARTS:
        tables, found = {}, [row for row in rows if row["part"] == part.__name__]
        if found:
            text += [f"### {part.__name__}", "", " ".join(part.__doc__.split()), ""]
        for row in found:
            _, what, *values = row.values()
            if "failed" in row:
                text += [f"{what}: {in_words(*values).split('. ')[0]}", ""]
            elif "part_seconds" not in row:
                tables.setdefault((*row,)[2:], []).append([what, *map(in_words, values)])
        for keys, cells in tables.items():
            head = ["", *(key.replace("_", " ") for key in keys)]
            text += [*markdown_table(head, cells), ""]
    return text


if __name__ == "__main__":
    names = [part.__name__ for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--small", action="store_true", help="small sizes, for a CPU")
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"), help="lines are added to it")
    parser.add_argument("--parts", nargs="+", default=names, choices=names)
    parser.add_argument("--page", type=Path, help="write the tables of docs/gpu.md from this file")
    given = parser.parse_args()
    if given.page:
        fill_in(ROOT / "docs/gpu.md", {"results": tables_of(given.page)})
        sys.exit()
    for name, sizes in SIZES.items():
        setattr(given, name, sizes[given.small])
    sys.exit(run_parts(given))

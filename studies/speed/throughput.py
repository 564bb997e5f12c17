"""Seconds, tokens per second and memory of a GRPO step: grpo.py beside TRL's GRPOTrainer.

    pip install trl==1.16.0                               # for this study alone
    python studies/speed/throughput.py                    # 15 minutes on 2 CPU cores
    python studies/speed/throughput.py --work 0.5B        # on a GPU
    python studies/speed/throughput.py --alone            # grpo.py without TRL

Both train the same weights on the same problems with their real loops, each in a process of its
own. They take turns: one trains for a step while the other one waits. The first turn of each is a
warm-up and does not count.

Memory is the peak of the process above what it held when the policy was loaded: of the whole
process on a CPU, of torch's tensors on a GPU.

Other processes distort the times, so run it on an idle machine. The load before the first step is
printed.
"""

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import markdown_table

import rlvr.policy.models
import rlvr.rollout.samplers
import rlvr.tasks.datasets
import rlvr.training.run
from rlvr.flags import Config
from rlvr.verify.verifiers import VERIFIERS

import torch
import transformers

import common
import grpo
from studies.papers.make_bases import build_tiny

SPAWN = multiprocessing.get_context("spawn")  # a side starts with memory that nobody has used
FOR_EVER = 10**6  # steps


@dataclass(frozen=True)
class Work:
    """What both sides do in a step."""

    shape: tuple[int, ...]  # of `make_model`; () is the tiny policy
    prompts: int
    generations: int  # of a prompt
    minibatch: int  # completions
    tokens: int  # of a completion, at most
    microbatch: int = 4096  # padded tokens of a forward pass of grpo.py; TRL's is a minibatch


SHAPE = (
    *("hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size"),
)
QWEN_05 = (896, 4864, 24, 14, 2, 151936)  # Qwen2.5-0.5B's
TWO_LAYERS = (896, 4864, 2, 14, 2, 151936)
SMOLLM2 = (576, 1536, 30, 9, 3, 49152)  # of 135 M parameters
WORK = {
    "tiny": Work((), prompts=32, generations=16, minibatch=256, tokens=40),
    "vocabulary": Work(TWO_LAYERS, prompts=2, generations=4, minibatch=4, tokens=96),
    "SmolLM2": Work(SMOLLM2, prompts=8, generations=8, minibatch=64, tokens=10, microbatch=1024),
    "0.5B": Work(QWEN_05, prompts=16, generations=8, minibatch=32, tokens=512, microbatch=2**15),
}


def make_model(shape: tuple[int, ...], folder: str) -> str:
    """A folder with a random policy of that shape, and with the tiny policy's tokenizer.

    For no shape it is the folder of the tiny policy that `python grpo.py` starts from.
    """
    if not shape:
        return str(rlvr.policy.models.tiny_folder(Config()))
    random_policy(shape).save_pretrained(folder)
    build_tiny()[1].save_pretrained(folder)
    return folder


def random_policy(shape: tuple[int, ...]) -> transformers.PreTrainedModel:
    """A policy of that shape with random weights in fp32, on torch's default device."""
    torch.manual_seed(0)
    sizes = dict(zip(SHAPE, shape, strict=True), max_position_embeddings=32768)
    ids = dict(pad_token_id=0, eos_token_id=1, bos_token_id=None)
    return transformers.Qwen2MoeForCausalLM(
        transformers.Qwen2MoeConfig(**sizes, **ids, num_experts=0, tie_word_embeddings=True)
    )


def now() -> float:
    """Return the seconds of a clock, after a GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_memory() -> int:
    """The most bytes since `start_peak`: torch's on a GPU, else the process's, as Linux counts."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def start_peak() -> int:
    """Bytes now; the peak is counted from here."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


class Turns:
    """One side's end of the pipe: it reports each step, and waits until it may take the next."""

    def __init__(self, pipe):
        self.pipe, self.started = pipe, None

    def time(self, owner, name: str) -> None:
        """owner.name generates the completions: from now on its seconds and tokens count."""
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            started = now()
            result = function(*args, **kwargs)
            self.generating += now() - started
            self.tokens += sum(map(len, result[0]))
            return result

        setattr(owner, name, timed)

    def end(self) -> None:
        """A step is over, or all is loaded: report the step, and wait for the next turn."""
        if self.started is None:
            self.floor = start_peak()  # bytes of memory before the first step
        else:
            seconds = now() - self.started
            self.pipe.send(
                {
                    "generate (s)": self.generating,
                    "all else (s)": seconds - self.generating,
                    "step (s)": seconds,
                    "tokens/s": self.tokens / seconds,
                    # a small step can fit into what the floor has given back meanwhile
                    "memory (GB)": max(0, peak_memory() - self.floor) / 1e9,
                }
            )
        torch.cuda.empty_cache()  # one GPU has to hold both sides
        self.pipe.recv()
        start_peak()
        self.generating, self.tokens, self.started = 0.0, 0, now()


def take_turns(side, pipe, work: Work, model: str, folder: str) -> None:
    """What a side's process does: train in `folder`, without a word on the terminal."""
    if work.shape:  # half of a random policy's rewards become 1, or it would have no gradient
        coin, honest = random.Random(0), VERIFIERS["countdown"]
        VERIFIERS["countdown"] = replace(
            honest,
            verify=lambda text, gold: honest.verify(text, gold) or float(coin.random() < 0.5),
        )
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        side(Turns(pipe), work, model, folder)


def ours(turns: Turns, work: Work, model: str, folder: str) -> None:
    """Take turns at the steps of grpo.py."""
    turns.time(rlvr.rollout.samplers.Sampler, "generate")
    common.evaluate = lambda *_: turns.end() or {}
    rlvr.training.run.Run.end_step = lambda *_: turns.end()
    config = grpo.configure(
        model=model,
        prompts_per_step=work.prompts,
        num_generations=work.generations,
        minibatch_size=work.minibatch,
        max_completion_length=work.tokens,
        microbatch_tokens=work.microbatch,
        max_steps=FOR_EVER,
        eval_steps=FOR_EVER,
        engine="hf",
        learning_rate=1e-6,
        output_dir=folder,
    )
    grpo.main(config)


def trl(turns: Turns, work: Work, model: str, folder: str) -> None:
    """Take turns at the steps of TRL's trainer."""
    import datasets  # neither need be installed for the rest
    from trl import GRPOConfig, GRPOTrainer

    class TakeTurns(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            turns.end()

        def on_step_end(self, args, state, control, **_):
            if state.global_step % args.steps_per_generation == 0:
                turns.end()

    def reward(completions, gold, **_):
        verify = VERIFIERS["countdown"].verify
        return [verify(text, numbers) for text, numbers in zip(completions, gold, strict=True)]

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    config = Config(max_completion_length=work.tokens)
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    rows = [dict(prompt=problem.prompt, gold=problem.gold) for problem in problems]
    settings = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=work.minibatch,
        gradient_accumulation_steps=1,
        steps_per_generation=work.prompts * work.generations // work.minibatch,
        num_generations=work.generations,
        max_completion_length=work.tokens,
        max_steps=FOR_EVER,
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        loss_type="grpo",
        beta=0.0,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        logging_steps=2,
    )
    trainer = GRPOTrainer(
        transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward,
        args=settings,
        train_dataset=datasets.Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[TakeTurns()],
    )
    turns.time(trainer, "_generate_single_turn")
    trainer.train()


def alternate(sides: dict, work: Work, rounds: int) -> dict[str, list[dict]]:
    """Let the sides take turns, and return the reports of each side's steps, its warm-up first."""
    reports, pipes, processes = {name: [] for name in sides}, {}, []
    with tempfile.TemporaryDirectory() as scratch:
        model = make_model(work.shape, f"{scratch}/model")
        for name, side in sides.items():
            pipes[name], theirs = SPAWN.Pipe()
            given = (side, theirs, work, model, f"{scratch}/{name}")
            processes.append(SPAWN.Process(target=take_turns, args=given, daemon=True))
            processes[-1].start()
            theirs.close()
        for _ in range(rounds + 1):
            for name, pipe in pipes.items():
                pipe.send("go")
                reports[name].append(pipe.recv())
        for process in processes:
            process.kill()
            process.join()
    return reports


def rows_of(reports: dict[str, list[dict]]) -> list[list[str]]:
    """Return the medians over the rounds and the ratio of the first side to the last, in cells.

    The first report of each side is its warm-up, and does not count.
    """
    rows = []
    for key in next(iter(reports.values()))[0]:
        medians = [statistics.median(step[key] for step in steps[1:]) for steps in reports.values()]
        ratio = f"{medians[0] / medians[-1]:.2f}" if medians[-1] and len(reports) > 1 else ""
        rows.append([key, *(f"{median:.4g}" for median in medians), ratio])
    return rows


SIDES = {"grpo.py": ours, "TRL": trl}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--work", nargs="+", default=["tiny", "vocabulary"], choices=WORK)
    parser.add_argument("--rounds", type=int, default=7, help="steps of each that are counted")
    parser.add_argument("--alone", action="store_true", help="without TRL")
    given = parser.parse_args()
    sides = {"grpo.py": ours} if given.alone else SIDES
    if "TRL" in sides and not importlib.util.find_spec("trl"):
        raise SystemExit("throughput.py: error: first pip install trl==1.16.0, or give --alone")
    os.environ["OMP_NUM_THREADS"] = "1"  # of each side
    for name in given.work:
        print(f"\n{name}; load before: {os.getloadavg()[0]:.2f}", flush=True)
        reports = alternate(sides, WORK[name], given.rounds)
        table = markdown_table(["", *reports, "ratio"], rows_of(reports))
        print(*table, sep="\n", flush=True)

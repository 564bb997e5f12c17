"""Seconds, tokens per second and peak memory of one GRPO step, of grpo.py and of TRL's GRPOTrainer, side by side.

    pip install trl==1.16.0                            # for this study alone
    python studies/throughput.py                       # 15 minutes on 2 CPU cores; --work 0.5B 1.5B are for a GPU
    python studies/throughput.py --quick               # one round of each, in a minute

Both train the same weights on the same problems, each in a process of its own, from the first to the last line of its
real loop. They take turns, a step each, and the other one waits meanwhile; the first turns, which warm up, are not
counted. A step is: generate, verify, old log-probs, and two optimizer updates. Memory is the peak of the process above
what it held when the policy was loaded: of the whole process on a CPU, of torch's tensors on a GPU.
"""
import argparse
import importlib.util
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from measure import alone, make_model, memory_now, now, peak_memory

PARTS = "generate", "verify", "old log-probs", "update"
WORK = {  # a policy of measure.py, the batch, and the new tokens
    "tiny": dict(model="tiny", prompts=32, generations=16, minibatch=256, tokens=40),
    "vocabulary": dict(model="0.5B, 2 layers", prompts=2, generations=4, minibatch=4, tokens=96),
    "0.5B": dict(model="0.5B", prompts=16, generations=8, minibatch=32, tokens=512),
    "1.5B": dict(model="1.5B", prompts=16, generations=8, minibatch=16, tokens=512),
    "quick": dict(model="small", prompts=2, generations=4, minibatch=4, tokens=8),
}


class Turns:
    """One side's end of the pipe: between its steps it reports the last one and waits until it may take the next."""

    def __init__(self, pipe):
        self.pipe, self.seconds, self.tokens, self.floor = pipe, Counter(), 0, 0

    def time(self, owner, name: str, part: str, counted=lambda: True):
        """From now on the seconds of owner.name belong to that part of the step."""
        function = getattr(owner, name)

        def timed(*args, **kwargs):
            started = now()
            result = function(*args, **kwargs)
            if counted():
                self.seconds[part] += now() - started
            if part == "generate":
                self.tokens += sum(map(len, result[0]))
            return result
        setattr(owner, name, timed)

    def begin(self):
        """The policy is loaded and the first step can start."""
        self.floor = memory_now()
        self.wait()

    def over(self):
        """A step is done: reports it, and waits."""
        self.seconds["step"] = now() - self.started
        self.seconds["update"] = self.seconds["step"] - sum(self.seconds[part] for part in PARTS[:3])
        self.pipe.send({**self.seconds, "tokens": self.tokens, "GB": (peak_memory() - self.floor) / 1e9})
        self.wait()

    def wait(self):
        self.pipe.recv()
        memory_now()
        self.seconds, self.tokens, self.started = Counter(), 0, now()


def quiet_coin(tasks, work: dict):
    """No lines on the terminal; and a random policy's rewards by the toss of a coin, or it would have no gradient."""
    sys.stdout, verify, coin = open(os.devnull, "w"), tasks.verify_countdown, random.Random(0)
    if work["model"] != "tiny":
        tasks.verify_countdown = lambda text, gold: verify(text, gold) or float(coin.random() < 0.5)


def ours(pipe, work: dict, model: str):
    """Takes turns at the steps of grpo.py."""
    import common
    import grpo
    import tasks
    turns = Turns(pipe)
    quiet_coin(tasks, work)
    turns.time(common.GenerateSampler, "generate", "generate")
    turns.time(tasks, "in_threads", "verify")
    turns.time(common, "frozen_logprobs", "old log-probs")
    common.evaluate = lambda *_: turns.begin() or {}
    common.Run.end_step = lambda *_: turns.over()
    common.Run.finish = lambda _: None
    with tempfile.TemporaryDirectory() as folder:
        grpo.main(grpo.Config(
            variant="grpo", model=model, prompts_per_step=work["prompts"], num_generations=work["generations"],
            minibatch_size=work["minibatch"], max_completion_length=work["tokens"], max_steps=10**6, eval_steps=10**6,
            engine="hf", learning_rate=1e-6, output_dir=folder))


def trl(pipe, work: dict, model: str):
    """Takes turns at those of TRL's trainer."""
    import datasets
    import torch
    import transformers
    from trl import GRPOConfig, GRPOTrainer

    import common
    import tasks
    turns = Turns(pipe)

    class Callback(transformers.TrainerCallback):
        def on_train_begin(self, args, state, control, **_):
            turns.begin()

        def on_step_end(self, args, state, control, **_):
            if state.global_step % args.steps_per_generation == 0:
                turns.over()

    def reward(completions, gold, **_):
        return [tasks.verify_countdown(text, numbers) for text, numbers in zip(completions, gold)]

    quiet_coin(tasks, work)
    config = common.Config(max_completion_length=work["tokens"])
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(model)
    problems, _ = common.load_problems(config, tokenizer)
    policy = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            policy, reward, processing_class=tokenizer, callbacks=[Callback()],
            train_dataset=datasets.Dataset.from_list([dict(prompt=p.prompt, gold=p.gold) for p in problems]),
            args=GRPOConfig(
                output_dir=folder, per_device_train_batch_size=work["minibatch"], gradient_accumulation_steps=1,
                steps_per_generation=work["prompts"] * work["generations"] // work["minibatch"],
                num_generations=work["generations"], max_completion_length=work["tokens"], max_steps=10**6,
                learning_rate=1e-6, lr_scheduler_type="constant", loss_type="grpo", beta=0.0, bf16=gpu, use_cpu=not gpu,
                gradient_checkpointing=False, save_strategy="no", report_to="none", disable_tqdm=True,
                dataloader_pin_memory=False, logging_steps=2))
        turns.time(trainer, "_generate_single_turn", "generate")
        turns.time(trainer, "_calculate_rewards", "verify")
        turns.time(trainer, "_get_per_token_logps_and_entropies", "old log-probs", lambda: not torch.is_grad_enabled())
        trainer.train()


def alternate(sides: dict, work: dict, rounds: int) -> dict[str, list[dict]]:
    """Lets the sides take turns -> the report of each of their steps, the first left out."""
    spawn = multiprocessing.get_context("spawn")
    reports, pipes, processes = {name: [] for name in sides}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        model = alone(make_model, work["model"], folder)
        for name, side in sides.items():
            pipes[name], theirs = spawn.Pipe()
            processes.append(spawn.Process(target=side, args=(theirs, work, model), daemon=True))
            processes[-1].start()
            theirs.close()
        for turn in range(rounds + 1):
            for name, pipe in pipes.items():
                pipe.send("go")
                reports[name].append(pipe.recv())
        for process in processes:
            process.kill()
            process.join()
    return {name: rows[1:] for name, rows in reports.items()}


def table(reports: dict[str, list[dict]]) -> str:
    """Medians over the rounds, and the ratios of grpo.py to TRL, as a Markdown table."""
    names = [*reports]
    rows = {name: [{**row, "tokens/s": row["tokens"] / row["step"]} for row in rows] for name, rows in reports.items()}
    lines = ["| | " + " | ".join([*names, "ratio"]) + " |", "|---" * (len(names) + 2) + "|"]
    for key in (*PARTS, "step", "tokens/s", "GB"):
        medians = [statistics.median(row.get(key, 0) for row in rows[name]) for name in names]
        unit = " (s)" if key in (*PARTS, "step") else ""
        ratio = f"{medians[0] / medians[-1]:.2f}" if len(names) > 1 and medians[-1] else ""
        lines.append(f"| {key}{unit} | " + " | ".join([*(f"{m:.4g}" for m in medians), ratio]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", default=["tiny", "vocabulary"], choices=WORK)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    flags = parser.parse_args()
    sides = {"grpo.py": ours, "TRL": trl}
    if not importlib.util.find_spec("trl"):
        print("TRL is not installed, so there is nothing to compare with: pip install trl==1.16.0")
        del sides["TRL"]
    for work in ["quick"] if flags.quick else flags.work:
        print(f"\n{work}\n{table(alternate(sides, WORK[work], 1 if flags.quick else flags.rounds))}", flush=True)


if __name__ == "__main__":
    main()

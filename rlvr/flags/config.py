"""The flags that all scripts have, named as TRL's GRPOConfig names the same thing."""

import difflib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, TypeVar

from rlvr import world
from rlvr.errors import UserError, using
from rlvr.tasks.prompts import USER_SUFFIXES, read_template_kwargs
from rlvr.tasks.sources import DATASETS, EMBEDDED, is_made
from rlvr.tasks.tools import TOOLS
from rlvr.verify.answers.gym import open_gym
from rlvr.verify.verifiers import SYSTEM_PROMPTS, VERIFIERS, find_verifier

T = TypeVar("T")
TINY = ("tiny", "weak", "middle", "strong")  # names for --model that need no download
RATE = r"(?:0?\.\d+|[01](?:\.0*)?)"  # a number from 0 to 1
TAUGHT = {"3": "middle", "4": "weak", "3,4": "weak"}  # which of them --model tiny is, by --numbers
OF_TINY = dict(model=" ".join(TINY))
OF_A_FILE = dict(dataset="FILE")
OF_COUNTDOWN = dict(dataset="countdown", model="tiny")
OF_VLLM = dict(engine="auto vllm")


def flag(
    default: T,
    help: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    choices: Iterable[str] = (),
    only: dict[str, str] | None = None,
    may_change: bool = False,
) -> T:
    """A field of a Config: its default, its help, and what the command line checks.

    - ge, le: A number must be at least, or at most, this. Without ge it must be above 0.
    - choices: The texts that the flag takes. A Literal type says the same.
    - only: The flag is read only where a flag of type str has one of these values. For example,
      only=dict(method="agrae clip") needs `--method agrae` or `--method clip`. If `only` names
      several flags, one of them is enough. FILE stands for a data set that is a file or a folder.
    - may_change: A resumed run may have another value, since the mathematics does not depend on it.
    """
    rules = dict(help=help, ge=ge, le=le, choices=tuple(choices), only=only or {})
    return field(default=default, metadata=rules | dict(may_change=may_change))


@dataclass
class Config:
    """Reinforcement learning with verifiable rewards. A flag that is given wins over a preset."""

    variant: str = flag("", "named preset of flags")
    model: str = flag("tiny", "tiny, weak, middle, strong, a folder, or a hub id")
    tie_word_embeddings: bool = flag(True, "a tiny policy's head is its embedding", only=OF_TINY)
    dataset: str = flag("countdown", "to train on: names, files or folders; commas between several")
    numbers: str = flag("3", "per Countdown problem: 2, 3, 4, or 3,4", only=OF_COUNTDOWN)
    columns: str = flag("prompt,answer", "of a file: problem, answer, level", only=OF_A_FILE)
    verifier: str = flag("math", f"{', '.join(VERIFIERS)}, my_reward.py:score", only=OF_A_FILE)
    system_prompt: str = flag("auto", f"auto, {', '.join(SYSTEM_PROMPTS)}, a text, or a file")
    user_suffix: str = flag("none", "request after each question", choices=USER_SUFFIXES)
    chat_template_kwargs: str = flag("", 'JSON, such as {"enable_thinking": false}')
    max_prompt_length: int = flag(1024, "tokens; longer prompts are dropped")

    seed: int = flag(0, "for data order, sampling and evaluation", ge=0)
    max_steps: int = flag(60, "rollouts to train on; 0 only evaluates", ge=0, may_change=True)
    output_dir: str = flag("", "run folder; if empty, runs/<script>-<variant>-<time>")
    num_threads: int | None = flag(None, "CPU threads; None: torch's choice", may_change=True)
    log_tokens: int = flag(1, "groups per step in report.html", ge=0, may_change=True)
    report_to: Literal["none", "wandb", "trackio"] = flag("none", "also log to", may_change=True)

    prompts_per_step: int = flag(32, "prompts per step, over all ranks")
    num_generations: int = flag(16, "G, completions per prompt", ge=2)
    temperature: float = flag(1.0, "of sampling, and of the loss's log-probs")
    max_completion_length: int = flag(48, "tokens, including a tool's")
    reward_noise: str = flag("", "FN,FP: rates of flipped rewards, in training")
    tool: str = flag("none", "what the policy may call", choices=("none", *TOOLS))
    dynamic_sampling: bool = flag(False, "DAPO: redraw all-right and all-wrong groups")
    engine: Literal["auto", "hf", "vllm"] = flag("auto", "auto: vLLM on a GPU, if it is installed")
    decode_batch_size: int = flag(512, "completions decoded at once without vLLM", may_change=True)
    vllm_gpu_memory_utilization: float = flag(
        0.3, "vLLM's share of a GPU's memory", le=1, only=OF_VLLM, may_change=True
    )
    vllm_importance_sampling_cap: float | None = flag(
        None, "largest weight; 0: none; None: 2 with vLLM or in half precision, else 0", ge=0
    )

    learning_rate: float = flag(1e-4, "of AdamW; a schedule scales it", ge=0)
    lr_scheduler_type: Literal["constant", "linear", "cosine"] = flag(
        "constant", "what follows the warm-up"
    )
    warmup_ratio: float = flag(0.0, "share of updates that warm up", ge=0, le=1)
    weight_decay: float = flag(0.0, "of AdamW", ge=0)
    max_grad_norm: float = flag(1.0, "longer gradients are scaled down to this norm")
    minibatch_size: int = flag(256, "completions per update, over all ranks")
    num_iterations: int = flag(1, "epochs over each rollout")
    epsilon: float = flag(0.2, "lower clip range of the ratio", le=1)
    epsilon_high: float | None = flag(None, "upper clip range; None: epsilon")
    importance_sampling_level: Literal["token", "sequence"] = flag(
        "token", "one ratio per token, or per sequence (GSPO)"
    )
    aggregation: Literal["sequence", "token", "constant"] = flag(
        "sequence", "what divides the sum: GRPO, DAPO and Dr.GRPO in this order"
    )
    beta: float = flag(0.0, "weight of the KL penalty to the first policy", ge=0)
    entropy_coef: float = flag(0.0, "weight of the entropy bonus", ge=0)
    mask_truncated_completions: bool = flag(False, "no loss on truncated completions")

    eval_dataset: str = flag("", "--dataset if empty; commas between several", may_change=True)
    eval_steps: int = flag(20, "steps between evaluations", may_change=True)
    eval_problems: int = flag(128, "held-out problems per data set; 0: all", ge=0)
    eval_samples: int = flag(16, "completions per held-out problem", may_change=True)
    eval_temperature: float = flag(1.0, "sampling temperature in evaluations", may_change=True)
    eval_max_completion_length: int = flag(0, "0: --max_completion_length", ge=0, may_change=True)
    top_p: float = flag(1.0, "nucleus sampling, in evaluations only", le=1, may_change=True)

    microbatch_tokens: int = flag(4096, "padded tokens per forward pass", may_change=True)
    gradient_checkpointing: bool = flag(False, "saves memory, takes time", may_change=True)
    device: Literal["auto", "cpu", "cuda", "mps", "xpu"] = flag(
        "auto", "auto: a GPU, but not a Mac's", may_change=True
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = flag(
        "auto", "of forward passes; auto: bf16 on a GPU that has it, else fp32"
    )
    compile: bool = flag(False, "torch.compile: slow to start, then faster", may_change=True)
    fsdp: Literal["full_shard", "no_shard"] = flag(
        "full_shard", "shard the weights over the ranks, or not", may_change=True
    )

    save_steps: int | None = flag(
        None, "steps between checkpoints; None: a third of the run", may_change=True
    )
    save_total_limit: int = flag(0, "checkpoints kept; 0: all", ge=0, may_change=True)
    resume_from_checkpoint: str = flag("", "run or checkpoint folder, or latest", may_change=True)

    # what was given on the command line or to `configure`; None for a Config that was made by hand
    typed: dict | None = field(default=None, init=False)

    def __post_init__(self):
        """Make the verifier's path absolute, and take the text of a system prompt's file."""
        if ":" in self.verifier:
            self.verifier = os.path.abspath(self.verifier)
        if self.system_prompt not in SYSTEM_PROMPTS and os.path.isfile(self.system_prompt):
            with using(self.system_prompt, ValueError):
                self.system_prompt = Path(self.system_prompt).read_text(encoding="utf-8").strip()

    def __setattr__(self, name: str, value) -> None:
        """Set a flag. UserError after `configure` if defaults of other flags depend on it."""
        if self.typed is not None and name in ("variant", "model", "dataset", "eval_dataset"):
            raise UserError(f"other flags depend on {name}: use configure({name}={value!r})")
        super().__setattr__(name, value)

    def check(self) -> None:
        """Raise UserError, in one line, for a value or a combination that cannot work."""
        for option in fields(self):
            check_number(option.name, getattr(self, option.name), option.metadata)
        names = ("auto", *SYSTEM_PROMPTS)
        if self.system_prompt not in names and len(self.system_prompt.split()) < 2:
            near = difflib.get_close_matches(self.system_prompt, names) or names
            raise UserError(
                f"--system_prompt {self.system_prompt} is no file, and no text of several words; "
                f"the names are {', '.join(near)}"
            )
        batch = self.prompts_per_step * self.num_generations
        if batch % self.minibatch_size:
            raise UserError(
                f"--minibatch_size {self.minibatch_size} must divide the {batch} completions of a "
                "step, --prompts_per_step x --num_generations"
            )
        ranks = world.WORLD_SIZE
        if self.prompts_per_step % ranks or self.minibatch_size % ranks:
            raise UserError(f"{ranks} ranks must divide --prompts_per_step and --minibatch_size")
        if 0 < self.eval_problems < ranks:
            raise UserError("--eval_problems must be at least one per rank")
        if self.engine == "vllm" and not importlib.util.find_spec("vllm"):
            raise UserError("--engine vllm: vLLM is not installed; docs/real-models.md says how")
        if self.report_to != "none" and not importlib.util.find_spec(self.report_to):
            raise UserError(f"--report_to {self.report_to}: its package is not installed")
        if self.reward_noise and not re.fullmatch(f"{RATE},{RATE}", self.reward_noise):
            raise UserError("--reward_noise takes two rates from 0 to 1, such as 0.1,0.2")
        if not re.fullmatch("[234](,[234])*", self.numbers):
            raise UserError("--numbers takes 2, 3, 4, separated by commas")
        if self.model == "tiny" and self.numbers not in TAUGHT:
            raise UserError(
                f"--numbers {self.numbers}: no shipped policy was taught such problems; teach one "
                "by python studies/papers/make_bases.py weak "
                f"--numbers {self.numbers} --out bases, and give --model bases/weak"
            )
        fewest = 0 if find_verifier(self.verifier).file else 1
        if not re.fullmatch(f"([^,]+,){{{fewest},2}}[^,]+", self.columns):
            raise UserError(f"--columns takes {fewest + 1} to 3 names, separated by commas")
        read_template_kwargs(self.chat_template_kwargs)
        near = difflib.get_close_matches(self.model, TINY, 1, 0.7)
        if near and self.model not in TINY and not os.path.isdir(self.model):
            shipped = ", ".join(TINY)
            raise UserError(f"--model {self.model}: did you mean {near[0]}? Shipped are {shipped}")
        looks_local = self.model.startswith((".", "/", "~")) or self.model.count("/") > 1
        if looks_local and not os.path.isdir(self.model):
            raise UserError(f"--model {self.model}: there is no such folder")
        for name in self.eval_names:
            if is_made(name) and not self.eval_problems:
                raise UserError(f"--eval_problems 0 takes all of a data set; {name} has no end")
        for name in (*self.train_names, *self.eval_names):
            if name.startswith("reasoning_gym:"):
                open_gym(name)
            elif not (is_made(name) or name in DATASETS or os.path.exists(name)):
                names = ", ".join((*DATASETS, *EMBEDDED, "reasoning_gym:TASK"))
                raise UserError(f"{name!r} is neither a file nor one of the data sets {names}")

    def uses_vllm(self, gpu: bool) -> bool:
        """Whether vLLM samples, on a machine with or without a GPU."""
        is_installed = importlib.util.find_spec("vllm") is not None
        return self.engine == "vllm" or (self.engine == "auto" and gpu and is_installed)

    def may_change(self, name: str) -> bool:
        """Whether a resumed run may have another value for this flag."""
        scheduled = self.lr_scheduler_type != "constant" or self.warmup_ratio > 0
        if scheduled and name == "max_steps":
            return False
        return self.__dataclass_fields__[name].metadata["may_change"]

    @property
    def script(self) -> Path:
        """The file that defines these flags; the run folder has its name."""
        return Path(getattr(sys.modules[type(self).__module__], "__file__", "notebook.py"))

    @property
    def train_names(self) -> list[str]:
        """The data sets to train on, each once."""
        return names_in(self.dataset)

    @property
    def eval_names(self) -> list[str]:
        """The data sets to evaluate on, each once."""
        return names_in(self.eval_dataset or self.dataset)

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and completion together."""
        longest_completion = max(self.max_completion_length, self.eval_max_completion_length)
        return self.max_prompt_length + longest_completion


def names_in(text: str) -> list[str]:
    """Return the names between commas, each once."""
    return [*dict.fromkeys(map(str.strip, text.split(",")))]


def check_number(name: str, value, rules: Mapping) -> None:
    """Raise UserError for a number outside its flag's limits, one that is too large, and NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not abs(value) < 2**31:  # so that seeds, threads and timers can count it
        raise UserError(f"--{name} must be a number below 2^31, got {value}")
    ge, le = rules["ge"], rules["le"]
    if ge is None and value <= 0:
        raise UserError(f"--{name} must be above 0, got {value}")
    if ge is not None and value < ge:
        raise UserError(f"--{name} must be at least {ge}, got {value}")
    if le is not None and value > le:
        raise UserError(f"--{name} must be at most {le}, got {value}")


def refuse_unread(config: Config, typed: Iterable[str]) -> None:
    """Raise UserError for a flag that was typed and that nothing would read."""
    data_sets = {*config.train_names, *config.eval_names}
    files = [name for name in data_sets - {*DATASETS} if not is_made(name)]
    for name in typed:
        rules = config.__dataclass_fields__[name].metadata
        is_read = not rules["only"] or (name == "verifier" and ":" in config.verifier)
        for other, values in rules["only"].items():
            values_in_force = {getattr(config, other)}
            if other == "dataset":
                values_in_force = data_sets | ({"FILE"} if files else set())
            is_read |= bool(values_in_force & {*values.split()})
        if not is_read:
            wanted = [f"--{other} {' or '.join(of.split())}" for other, of in rules["only"].items()]
            raise UserError(f"--{name} is for {' or '.join(wanted)}")

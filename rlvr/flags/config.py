"""The flags that all scripts have.

Flags are named as TRL's GRPOConfig names the same thing. The comment beside a field is its help.
"""

import importlib.util
import os
import re
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, get_type_hints

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.presets import PROTOCOLS
from rlvr.tasks import DATASETS, EMBEDDED, TOOLS, USER_SUFFIXES, read_template_kwargs
from rlvr.verify import SYSTEM_PROMPTS, VERIFIERS


class Only:
    """In a field's type: the flag is read only where another flag has one of these values.

    Annotated[float, Only(method="agrae")] goes with `--method agrae`. Several values have blanks
    between them, and of several flags one is enough. FILE stands for a data set of the user's own,
    and N for any number.
    """

    def __init__(self, **readers: str):
        self.readers = {flag: values.split() for flag, values in readers.items()}


T = TypeVar("T")
# What a field's type says beside int, float or str. A number that is neither ZeroOrMore nor AnySign
# has to be above 0. In a resumed run only what is MayChange may differ: it does not touch the
# mathematics. What Trains is not read with --max_steps 0, and neither are a script's own flags.
ZeroOrMore = Annotated[T, "zero or more"]
AnySign = Annotated[T, "any sign"]
MayChange = Annotated[T, "may change"]
Trains = Annotated[T, "trains"]
Share = Annotated[T, "at most 1"]
OfAFile = Annotated[T, Only(dataset="FILE")]  # a file or folder of the user's own
OfTheTinyPolicy = Annotated[T, Only(model="tiny")]
OfALesson = Annotated[T, Only(sft_steps="N")]  # that the tiny policy is taught before the run
OfCountdown = Annotated[T, Only(dataset="countdown", sft_steps="N")]
OfArithmetic = Annotated[T, Only(dataset="arithmetic")]
OfVllm = Annotated[T, Only(engine="auto vllm")]


@dataclass
class Config:
    """Reinforcement learning with verifiable rewards. A flag that is given wins over a preset."""

    variant: str = ""  # named preset of flags

    # model and task

    model: str = "tiny"  # "tiny" (shipped, see --base), a folder or a hub id
    trust_remote_code: MayChange[bool] = False  # run the model code that comes with --model
    # tiny policy; if None, by --numbers
    base: OfTheTinyPolicy[Literal["weak", "middle", "strong"] | None] = None
    # supervised steps that teach a new tiny policy
    sft_steps: OfTheTinyPolicy[ZeroOrMore[int | None]] = None
    # share of taught solutions that miss the target
    exchanged_targets: OfTheTinyPolicy[OfALesson[Share[ZeroOrMore[float]]]] = 0.0
    # of the tiny policy: its output head is its embedding
    tie_word_embeddings: OfTheTinyPolicy[bool] = True
    dataset: str = "countdown"  # to train on: countdown, gsm8k, math ..., a file, or a folder
    numbers: OfCountdown[str] = "3"  # Countdown: how many numbers a problem has, out of 2,3,4
    arithmetic_levels: OfArithmetic[str] = "1"  # how hard its problems are, out of 1,2,3,4
    prompt_column: OfAFile[str] = "prompt"  # of a file: the problem
    answer_column: OfAFile[str] = "answer"  # of a file: the gold answer, or unit tests
    image_column: OfAFile[str] = ""  # of a file: images, as paths or bytes, one or a list
    verifier: OfAFile[Literal[tuple(VERIFIERS)]] = "math"  # of a file: what is right
    verify_seconds: MayChange[float] = 5.0  # deadline of an answer, or of one test of a program
    program_seconds: MayChange[float] = 20.0  # deadline of all tests of a program
    success_threshold: AnySign[float] = 1.0  # the reward from which on a completion is right
    system_prompt: Literal[("auto", *SYSTEM_PROMPTS)] = "auto"  # auto: what the verifier needs
    user_suffix: Literal[tuple(USER_SUFFIXES)] = "none"  # what is asked for behind each question
    chat_template_kwargs: str = ""  # JSON, such as {"enable_thinking": false} for Qwen3
    max_prompt_length: int = 1024  # tokens; longer prompts are dropped

    # the run

    seed: ZeroOrMore[int] = 0  # of data order, sampling and evaluation
    max_steps: MayChange[ZeroOrMore[int]] = 60  # rollouts to train on; 0 evaluates only
    # training epochs, without redraws, in place of --max_steps
    num_train_epochs: MayChange[float | None] = None
    output_dir: MayChange[str] = ""  # run folder; runs/<script>-<variant>-<time> if empty
    cache_dir: MayChange[str] = "~/.cache/rlvr"  # where a tiny policy is kept that is taught here
    num_threads: MayChange[int | None] = None  # CPU threads of torch; torch's own choice if None
    # groups a step whose tokens report.html shows; 0 for no report
    log_tokens: Trains[MayChange[ZeroOrMore[int]]] = 1
    # beside the .jsonl files; to be installed first
    report_to: MayChange[Literal["none", "tensorboard", "wandb", "trackio"]] = "none"

    # rollout

    prompts_per_step: int = 32  # prompts of a step, over all ranks
    num_generations: int = 16  # G, completions of a prompt
    temperature: Trains[float] = 1.0  # of the rollouts and, equally, of the log-probs in the loss
    max_completion_length: int = 48  # tokens, the stop token and a tool's included
    tool: Literal[("none", *TOOLS)] = "none"  # what answers the policy's calls while it writes
    # most turns of a completion; each but the last may call the tool
    max_turns: Annotated[int, Only(tool=" ".join(TOOLS))] = 8
    dynamic_sampling: Trains[bool] = False  # DAPO: replace groups with success rate 0 or 1
    # how often, at most, a step draws new groups
    max_redraws: Trains[Annotated[ZeroOrMore[int], Only(dynamic_sampling="True")]] = 3
    engine: Literal["auto", "hf", "vllm"] = "auto"  # auto: vLLM on a GPU, where it is installed
    rollout_batch_size: MayChange[int] = 512  # completions that transformers decodes at once
    # share of the GPU's memory for vLLM
    vllm_gpu_memory_utilization: OfVllm[MayChange[Share[float]]] = 0.3
    vllm_tensor_parallel_size: OfVllm[MayChange[int]] = 1  # ranks that share an engine
    vllm_enable_sleep_mode: OfVllm[MayChange[bool]] = False  # vLLM frees its memory during updates
    # largest importance weight, 0 for none; if None, 2 with vLLM or in bf16, and else 0
    vllm_importance_sampling_cap: Trains[ZeroOrMore[float | None]] = None

    # loss and update

    learning_rate: Trains[ZeroOrMore[float]] = 1e-4  # of AdamW; a schedule scales it
    # what follows the warm-up; linear and cosine fall to 0
    lr_scheduler_type: Trains[Literal["constant", "linear", "cosine"]] = "constant"
    # share of the updates in which the rate rises from 0
    warmup_ratio: Trains[Share[ZeroOrMore[float]]] = 0.0
    weight_decay: Trains[ZeroOrMore[float]] = 0.0  # of AdamW
    minibatch_size: int = 256  # completions of an optimizer update, over all ranks
    num_iterations: Trains[int] = 1  # epochs over each rollout
    max_grad_norm: Trains[float] = 1.0  # longer gradients are scaled down to this norm
    epsilon: Trains[float] = 0.2  # lower clip range of the ratio
    epsilon_high: Trains[float | None] = None  # upper clip range; as epsilon if None
    # one ratio a token, or one a sequence, as in GSPO
    importance_sampling_level: Trains[Literal["token", "sequence"]] = "token"
    # what divides the sum: sequence (GRPO), token (DAPO) or constant (Dr.GRPO)
    aggregation: Trains[Literal["sequence", "token", "constant"]] = "sequence"
    # coefficient of the KL penalty (k3) to the starting policy
    beta: Trains[ZeroOrMore[float]] = 0.0
    entropy_coef: Trains[ZeroOrMore[float]] = 0.0  # coefficient of the entropy bonus
    mask_truncated_completions: Trains[bool] = False  # no loss on completions without a stop token
    # NaN or infinite updates in a row that end the run
    max_skipped_updates: Trains[MayChange[int]] = 10

    # evaluation

    eval_dataset: MayChange[str] = ""  # to evaluate on, separated by commas; as --dataset if empty
    eval_steps: MayChange[int] = 20  # steps between evaluations
    eval_problems: ZeroOrMore[int] = 128  # held-out problems of a data set; 0 for all
    eval_samples: MayChange[int] = 16  # completions of a held-out problem
    eval_protocol: MayChange[Literal[tuple(PROTOCOLS)]] = "none"  # preset of a paper's evaluation
    eval_temperature: MayChange[float] = 1.0  # of the evaluation's samples
    eval_max_completion_length: MayChange[ZeroOrMore[int]] = 0  # 0: as max_completion_length
    # of the evaluation's samples; rollouts use the whole softmax
    top_p: MayChange[Share[float]] = 1.0

    # memory and ranks

    microbatch_tokens: MayChange[int] = 4096  # padded tokens a forward pass; fewer save memory
    gradient_checkpointing: MayChange[bool] = False  # save memory by computing activations twice
    bf16: bool = False  # forward passes in bf16 on a CPU, too; on a GPU they always are
    compile: MayChange[bool] = False  # torch.compile the layers: a slow start, then fast updates
    fsdp: MayChange[bool] = True  # with torchrun, shard weights, gradients and Adam's moments
    # each node has all weights, and nodes exchange gradients once an update
    shard_within_nodes: Annotated[MayChange[bool], Only(fsdp="True")] = False
    ddp_timeout: MayChange[float] = 1800.0  # seconds that a rank waits for another one

    # checkpoints

    # steps between checkpoints, a third of the run if None; the last step is always saved
    save_steps: Trains[MayChange[int | None]] = None
    # checkpoints to keep, the newest; 0 for all
    save_total_limit: Trains[MayChange[ZeroOrMore[int]]] = 0
    resume_from_checkpoint: MayChange[str] = ""  # run or checkpoint folder, or "latest"

    typed = frozenset()  # no flag, but which of them have been typed, be it with their default

    def check(self) -> None:
        """Raise UserError, in one line, for a value or a combination that cannot work."""
        for name, marks in marks_of(type(self)).items():
            check_number(name, getattr(self, name), marks)
        if self.num_generations < 2:
            raise UserError("--num_generations must be 2 or more: a group judges a completion")
        batch = self.prompts_per_step * self.num_generations
        if batch % self.minibatch_size:
            raise UserError(f"--minibatch_size must divide the batch of {batch} completions")
        ranks = world.WORLD_SIZE
        if self.prompts_per_step % ranks or self.minibatch_size % ranks:
            raise UserError(
                f"the {ranks} ranks must divide --prompts_per_step and --minibatch_size"
            )
        if ranks % self.vllm_tensor_parallel_size:
            raise UserError("--vllm_tensor_parallel_size must divide the ranks")
        if 0 < self.eval_problems < ranks:
            raise UserError("--eval_problems must be at least one a rank")
        if self.engine == "vllm" and not importlib.util.find_spec("vllm"):
            raise UserError("--engine vllm: vLLM is not installed; the README says how")
        if self.report_to != "none" and not importlib.util.find_spec(self.report_to):
            raise UserError(f"--report_to {self.report_to}: its package is not installed")
        if self.base and self.sft_steps is not None:
            raise UserError(f"--base {self.base} is taught already: leave out --sft_steps")
        for name, choices in (("numbers", "234"), ("arithmetic_levels", "1234")):
            if not re.fullmatch(f"[{choices}](,[{choices}])*", getattr(self, name)):
                raise UserError(f"--{name} takes {', '.join(choices)}, separated by commas")
        read_template_kwargs(self.chat_template_kwargs)
        for name in self.eval_names:
            if name in EMBEDDED and not self.eval_problems:
                raise UserError(f"--eval_problems 0 takes all of a data set; {name} has no end")
        self.refuse_unread()
        for name in (self.dataset, *self.eval_names):
            if not (name in (*EMBEDDED, *DATASETS) or os.path.exists(name)):
                names = ", ".join((*DATASETS, *EMBEDDED))
                raise UserError(f"{name!r} is no file and none of the data sets {names}")

    def is_given(self, name: str) -> bool:
        """Whether a flag has been typed, or is away from its default, be it by a preset."""
        return name in self.typed or getattr(self, name) != getattr(type(self), name)

    def words_of(self, flag: str) -> set[str]:
        """What Only may ask for: a flag's value, all data sets, and FILE or N for what they are."""
        value = getattr(self, flag)
        if flag == "dataset":
            names = {value, *self.eval_names}
            return names | ({"FILE"} if names - {*EMBEDDED, *DATASETS} else set())
        return {str(value)} | ({"N"} if isinstance(value, int) else set())

    def refuse_unread(self) -> None:
        """UserError for a flag that is given and that nothing would read."""
        of_all_scripts = marks_of(Config)
        for name, marks in marks_of(type(self)).items():
            trains = "trains" in of_all_scripts.get(name, ("trains",))
            if trains and name in self.typed and not self.max_steps:
                raise UserError(f"--{name} is for training, and --max_steps 0 evaluates only")
            for only in (mark for mark in marks if isinstance(mark, Only)):
                readers = only.readers.items()
                is_read = any(self.words_of(flag) & {*values} for flag, values in readers)
                if self.is_given(name) and not is_read:
                    wanted = [f"--{flag} {', '.join(values)}" for flag, values in readers]
                    raise UserError(f"--{name} is for {' or '.join(wanted)}")

    def uses_vllm(self, gpu: bool) -> bool:
        """Whether vLLM samples, on a machine with or without a GPU."""
        found = importlib.util.find_spec("vllm") is not None
        return self.engine == "vllm" or (self.engine == "auto" and gpu and found)

    def may_change(self, name: str) -> bool:
        """Whether a resumed run may have another value for this flag."""
        scheduled = self.lr_scheduler_type != "constant" or self.warmup_ratio > 0
        if scheduled and name in ("max_steps", "num_train_epochs"):
            return False
        return "may change" in marks_of(type(self))[name]

    @property
    def eval_names(self) -> list[str]:
        """The data sets to evaluate on, each once."""
        return [*dict.fromkeys((self.eval_dataset or self.dataset).split(","))]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and completion together."""
        longest_completion = max(self.max_completion_length, self.eval_max_completion_length)
        return self.max_prompt_length + longest_completion


def marks_of(config_class: type) -> dict[str, tuple]:
    """What the type of each flag says beside int, float or str."""
    kinds = get_type_hints(config_class, include_extras=True)
    return {name: getattr(kind, "__metadata__", ()) for name, kind in kinds.items()}


def check_number(name: str, value, marks: tuple) -> None:
    """UserError for a number that its field's type forbids, that is too large, or NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not abs(value) < 2**31:  # so that seeds, threads and timers can count it
        raise UserError(f"--{name} must be below 2^31, got {value}")
    if value < 0 and "zero or more" in marks:
        raise UserError(f"--{name} must be 0 or more, got {value}")
    if value <= 0 and not {"zero or more", "any sign"} & {*marks}:
        raise UserError(f"--{name} must be above 0, got {value}")
    if "at most 1" in marks and value > 1:
        raise UserError(f"--{name} must be at most 1, got {value}")

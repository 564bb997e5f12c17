"""One-line mistakes that tests have to see: the gate of every larger change.

    python tests/mutants.py                 # all of them, in about a quarter of an hour on one core
    python tests/mutants.py loss fade       # those whose group or number begins with these
    python tests/mutants.py --tenth         # another tenth with each commit, as .ci/run does

Each mutant is made in a copy of the project, where its test files run until the first failure. What
survives is printed at the end, and the exit code is 1 then.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Each mutant is tested in a fork of this process, which need not import large packages again.
os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONDONTWRITEBYTECODE": "1"}
sys.dont_write_bytecode = True  # that of the mutant before could be taken for this one's

import pytest

for module in ("torch", "transformers.models.auto.modeling_auto", "matplotlib.pyplot"):
    importlib.import_module(module)

ROOT = Path(__file__).resolve().parent.parent
# Groups: name, files, and the test files that have to see it (without test_ and .py). Each line
# below is a mutant of each file, the old text => the new one. The old text stands exactly once in
# the file; ↵ is the end of a line.
MUTANTS = r"""
common common.py by common golden steps
    1 + (epsilon if epsilon_high is None else epsilon_high) => 1 + epsilon
    if beta > 0 and ref_logprobs is not None: => if ref_logprobs is not None:
    (ratio < low) & (advantages < 0) => (ratio < low)
    if importance_sampling_level == "token":↵        ratio => if False:↵        ratio
    torch.where(loss_mask > 0, logprobs - old_logprobs, 0) => logprobs - old_logprobs
    problems[world.RANK :: world.WORLD_SIZE] => problems
    if row["level"] == level] => if row["level"] != level]
    sum(sample.own_length for sample in some) => sum(len(sample.completion_ids) for sample in some)
    some, at_eval_temperature) => some, config)
    for rows in self.update_rows(config)↵        ] * config.num_iterations
        => for rows in self.update_rows(config)↵        ]
    drawn.sort(key=is_mixed, reverse=True) => pass
    config.prompts_per_step // world.WORLD_SIZE => config.prompts_per_step
    (self.completion_mask * self.sampled_logprobs) => (self.loss_mask * self.sampled_logprobs)
    if not batch.sampler.is_exact => if False
    self.sampled_logprobs, self.completion_mask) => self.sampled_logprobs, self.loss_mask)
    if [*advantages.shape] not in shapes: => if advantages.dim() > 2:
    if old_logprobs.requires_grad: => if False:
    (importance * objective - => (objective -
grading common.py by rollouts
    completion.ids[-1] not in sampler.stops => completion.ids[-1] != sampler.stops[0]
    not completion.ids or completion => completion
    success=reward >= SUCCESS => success=reward > 0
decode common.py by decode
    rows, drawn = [rows[i] for i in alive], drawn[alive] => rows = rows[: len(alive)]
    nucleus(logp.exp(), top_p) => nucleus(logp.exp(), 1.0)
    logp[:, 0].isnan().any() => logp[:, 0].isnan().all()
    * (before < top_p) => * (before <= top_p)
    if not alive or length == max_tokens: => if not alive:
logprobs rlvr/policy/logprobs.py by logprobs
    softmax.log().clamp_(-1e5) => softmax.log()
    logits.sub_(top[:, None]).mul_(softmax).sum(1) => logits.mul_(softmax).sum(1) - top
    (top / 32).round() * 32 => top * 0
    range(len(parts), global_max(len(parts))) => range(0)
    // tokens // 256 * 256) if => // tokens) if
reader rlvr/policy/reader.py by decode
    self.position + count => self.position + 1
nano docs/nano.py by pages
    ends.cumsum(1) - ends == 0 => ends.cumsum(1) == 0
    (objective.sum(1) / mask[rows].sum(1)).mean() => objective.sum() / mask[rows].sum()
grpo grpo.py by golden elsewhere
    rewards.amax(1, keepdim=True) == rewards.amin => rewards.amax() == rewards.amin
whole grpo.py agrae.py asymgrpo.py fade.py cwgrpo.py by steps
    importance=batch.importance[rows], => importance=1.0,
    if update == 0: => if True:
    scheduler.step() => pass
    ref_logprobs=batch.ref_logprobs[rows] => ref_logprobs=batch.old_logprobs[rows]
    batch, rows, logprobs=logprobs => batch, rows, logprobs=batch.old_logprobs[rows]
evaluations grpo.py agrae.py asymgrpo.py fade.py cwgrpo.py by docs
    step % config.eval_steps == 0 or => False or
agrae agrae.py by advantages golden
    global_mean(batch.first_successes) => global_mean(batch.successes)
    global_mean(formats)[0] => formats.mean().item()
    min(1.0, mean_success / alpha) => mean_success / alpha
losses_of_others studies/baselines/losses.py by advantages baselines steps
    (adv - adv[tokens].mean()) => (adv - adv.mean())
    .clamp(1 - epsilon, 1 + epsilon_high).detach() => .clamp(1 - epsilon, 1 + epsilon_high)
    moved > epsilon_high, moved < -epsilon => moved > epsilon, moved < -epsilon_high
    torch.where(tokens, centred[0] * centred[1], -torch.inf) => (centred[0] * centred[1])
    log_ratio.abs()↵ => ratio.log().abs()↵
    torch.where(hidden, 80, log_ratio).exp() => log_ratio.exp()
    (advantages < 0) & (drift > threshold) => (drift > threshold)
    terms["beta"] = 0.0 => pass
    - sampled_logprobs.exp()).abs() > threshold => - sampled_logprobs.exp()) > threshold
    (A * W).sum(1, keepdim=True) / => A.mean(1, keepdim=True) + 0 /
advantages_of_others studies/baselines/advantages.py by baselines golden advantages
    torch.where(std > 0, centred / std, 0.0) => centred / std
    keepdim=True) > tau => keepdim=True) >= tau
    torch.stack([w * grpo_advantage(r) => torch.stack([grpo_advantage(r)
    1 - alpha * p * shares, alpha * (1 - p) => 1 - alpha * shares, alpha
baselines studies/baselines/baselines.py by baselines
    rewards=batch.successes if => rewards=batch.rewards if
    if update == 0 and not config.staleness: => if update == 0:
    sampler.policy.load_state_dict(history[-1]) => pass
    dict(beta=0.0, entropy_coef=0.0) => dict(entropy_coef=0.0)
    if config.importance == "icepop": => if False:
    log_evaluation(step, evaluation, fade.head_change(policy, first_head))
        => log_evaluation(step, evaluation)
asymgrpo asymgrpo.py by advantages golden
    global_sum(kappa * mixed, mixed) => global_sum(kappa, mixed)
    batch.samples, config)  # [N, T] => batch.samples, rlvr.flags.Config())  # [N, T]
fade fade.py by advantages golden steps
    batch.first_successes, batch.successes, => batch.successes, batch.successes,
    config, learning_rate_factor(config)) => config)
    < 0.99 * s.sum() => < 0.9 * s.sum()
cwgrpo cwgrpo.py by advantages golden config steps
    fullmatch("(<think></think>)+", found) => match("(<think></think>)+", found)
    super().check()↵ => pass↵
    *of_all_ranks, means=config.means) => *of_all_ranks)
    weights[rows] = w.detach() => pass
    diagnostics, weights) => diagnostics)
    batch.loss_mask, weights↵ => batch.completion_mask, weights↵
checkpoints rlvr/training/checkpoints.py by crashes
    config.seed + world.RANK + world.WORLD_SIZE => config.seed + world.WORLD_SIZE
    .encode(), checksum) => .encode())
    vars(training.memory).update(saved["state"]) => pass
    group["lr"] = rate => pass
    if changed: => if False:
update common.py by run common config
    check_advantages(batch.rewards, batch.loss_mask, advantages) => pass
    if norm > 0 and math.isfinite(norm): => if norm > 0:
    if norm > 0 and math.isfinite(norm): => if math.isfinite(norm):
    torch.where((advantages >= 0) & => torch.where((advantages > 0) &
run rlvr/training/run.py by run steps common
    torch.manual_seed(config.seed + world.RANK) => torch.manual_seed(config.seed)
    machine.AT_EXIT.enter_context(machine.process_group(device)) => pass
    if world.RANK == 0:↵            show.append_row(self.folder, "metrics"
        => if True:↵            show.append_row(self.folder, "metrics"
    [row["set"]][0] => [row["set"]][-1]
    self.folder, problems)↵        self.clock = time.perf_counter() => self.folder, problems)
    if advantages.requires_grad: => if False:
    if [*advantages.shape] not in shapes: => if False:
    batch.completion_mask[rows], log_ratio => batch.loss_mask[rows], log_ratio
    logged[-1].get("tokens", 0) if logged => 0 if logged
notebook rlvr/training/run.py by lessons
    signal.signal(number, handler)↵        return Result => pass↵        return Result
    config.check()↵ => pass↵
    self.handlers[number](number, frame) => pass
    machine.AT_EXIT.close()  # what => pass  # what
signals rlvr/machine/ending.py by crashes
    signal.signal(number, signal.SIG_IGN)↵    progress => progress
ranks rlvr/machine/ranks.py by ranks advantages common rollouts
    torch.stack(padded, 1) => torch.stack(padded)
    [UserError(str(error))])  # its => [None])  # its
models rlvr/policy/models.py by models logprobs
    for part in (model_config, model_config.get_text_config()): => for part in (model_config,):
    config, device, frozen=True) => config, device)
shards rlvr/policy/sharding.py by logprobs ranks
    part.set_gradient_divide_factor(1.0) => pass
    dist.all_reduce(gradient) => pass
    reshard = frozen or module => reshard = module
    mixed if settings.half else => mixed if False else
lessons docs/lessons/5_two_axes.py by lessons
    - wanted) > 1e-4 => - wanted) > 1
    masses(chosen, 1.0) => masses(1.0, 1.0)
assignment docs/assignment/grade.py by assignment
    isclose(expected, 1e-4, tolerance) => isclose(expected, 1e-1, tolerance)
    0 if name == "grpo_advantage" else 1e-6 => 1e-6
    x * sqrt(1 - 1 / len(r[0])) => x * sqrt(1 + 1 / len(r[0]))
logs rlvr/show/logs.py by show crashes
    if line.endswith(b"\n") and => if
    == logged[0]["step"] => == logged[-1]["step"]
report rlvr/show/report.py by show
    "right" if sample.success else => "right" if sample.reward > 0 else
    (*evaluations[:1], steps) => (*evaluations[-1:], steps)
playground docs/playground.html by pages
    isSuccess ? surprise_success : => isSuccess ? surprise_failure :
sources rlvr/tasks/sources.py by datasets prompts docs
    left if row.gold != ""] => left]
    return drop(name, problems, OF_ROWS) => return problems
embedded rlvr/tasks/embedded.py by prompts
    metadata.get(name) in range(99) => name in metadata
    value >= 0 and is_held_out => value > 0 and is_held_out
files rlvr/tasks/files.py by datasets
    str(kind) in ("float", "halffloat") => str(kind) == "float"
cells rlvr/tasks/cells.py by datasets
    helpers = head.rpartition => helpers = head.partition
config rlvr/flags/config.py by config
    fullmatch("[234](,[234])*", => match("[234](,[234])*",
    self.engine == "auto" and gpu and is_installed => self.engine == "auto" and is_installed
command rlvr/flags/command_line.py by config lessons
    if not field.metadata: => if False:
    saved | variants[request.variant] | typed => variants[request.variant] | saved | typed
    arguments.append(f"--{name}" if value else => arguments.append(f"--{name}" if True else
data rlvr/tasks/datasets.py by run datasets
    ProblemStream(training, config.seed, => ProblemStream(training, 0,
    if any(problem.verifier == "code" => if all(problem.verifier == "code"
vllm rlvr/rollout/vllm_sampler.py by vllm
    (ValueError, RuntimeError, AssertionError) => (ValueError, RuntimeError)
    if not self.gap < self.tolerance: => if self.gap > self.tolerance:
    torch.random.fork_rng(self.devices): => torch.no_grad():
sampler rlvr/rollout/samplers.py by logprobs
    yield↵            finally: => yield↵            except ValueError:
    set_stance("force_eager") => set_stance("default")
turns rlvr/rollout/turns.py by rollouts config
    completion.ids[-1] in call_ends↵ => completion.ids[-1] in sampler.call_ends↵
noise rlvr/rollout/noise.py by rollouts
    false_negatives if sample.success else false_positives => false_positives
    f"{seed}/noise/{place}" => f"{seed}/noise/{i}"
stream rlvr/tasks/problems.py by rollouts common
    own[row, reply.start : reply.stop] => own[row, reply.start + 1 : reply.stop]
    self.position += world.WORLD_SIZE * count => self.position += count
prompts rlvr/tasks/prompts.py by prompts datasets
    limit) <= limit] => limit - 1) < limit]
    if 0 < lengths.get => if lengths.get
    if entry.special} => if True}
mathematics rlvr/verify/answers/mathematics.py by grader answers
    read("x")  # raises => pass  # raises
    , "I": r"\variable{I}"} => }
    if not any(value.free_symbols for value in gold_values): => if True:
    pairs = [*itertools.combinations(sides, 2)] => pass
    is_alike and (is_one or len(names) > 1) and => is_alike and
    wanted != other and wanted.endswith(other) => False
    sizes = {len(split(solution, DIVIDER)) for => sizes = {2 for
numbers rlvr/verify/answers/numbers.py by answers
    return differ or bool( => return bool(
    len(wanted[kind]) == len(units[kind]) and order => order
    max(LEAST_DIGITS, gold.digits) => LEAST_DIGITS
equality rlvr/verify/answers/equality.py by answers
    small) if len({*small.values()}) == len(small) else None => small)
    FAR_POINTS if bent else => SIGNS_AT_POINTS if bent else
    is_name(side) and is_new and not of_letters or not value.free_symbols => True
    is_new and not of_letters or => is_new or
    if holds(answer, at) != solves: => if solves and not holds(answer, at):
    sympy.Ne)) or factor > 0) => sympy.Ne)) or True)
expressions rlvr/verify/answers/expressions.py by answers prompts
    sorted(used) == sorted(numbers.split()) and value_of => value_of
    [( ]*{NUMBER}[) ]*(?: => [-( ]*{NUMBER}[) ]*(?:
latex rlvr/verify/answers/latex.py by answers
    [1-9](?:\d{0,2}(?:,\d{3})+ => \d(?:\d{0,2}(?:,\d{3})+
    ", " if in_brackets else "" => ""
boxes rlvr/verify/answers/boxes.py by answers
    if len(kept) < parts: => if True:
    not re.match(OF_OPTIONS, text) and any( => any(
gym rlvr/verify/answers/gym.py by prompts
    [text.strip(), *last_word] => [text.strip()]
grader rlvr/verify/grader.py by grader
    if entry.load: => if not entry.load:
    setitimer(signal.ITIMER_REAL, 0) => setitimer(signal.ITIMER_REAL, allowed)
    except (Exception, SystemExit) as error: => except SystemExit as error:
pool rlvr/verify/pool.py by grader
    if any(find_verifier(name).isolated => if all(find_verifier(name).isolated
    IDLE_GRADERS.get().socket.close() => break
    grader is None or grader.process.poll() is not None: => grader is None:
sandbox rlvr/verify/programs/solution.py by code isolation
    pipe.ask(False) => raise
    if isinstance(value, kind): => if type(value) is kind:
    if hasattr(solution, name) else => if name not in names else
judged rlvr/verify/programs/code.py by code isolation
    raise error if isinstance(error, OutOfTime) else WrongProgram => raise WrongProgram
    return said and was_asked => return said
    used = {node.id for node in names} - defined => used = {node.id for node in names}
verifiers rlvr/verify/verifiers.py by grader prompts datasets
    or entry.file else gold => else gold
    answers.verify_choice, answers.find_answer => answers.verify_choice, answers.last_boxed
isolation rlvr/verify/programs/isolation.py by isolation code
    "-I", "-S", "-B" => "-I", "-B"
"""


def read(table: str):
    """Label, file, test files, old text and new text of each mutant."""
    for group in re.split(r"\n(?=\S)", table.strip()):
        head, *rows = group.replace("\n        =>", " =>").splitlines()
        (name, *files), tests = (part.split() for part in head.split(" by "))
        for file in files:
            label = name if len(files) == 1 else f"{name}_{Path(file).stem}"
            for number, row in enumerate(rows, 1):
                old, new = row.strip().replace("↵", "\n").split(" => ")
                yield f"{label}{number}", file, tests, old, new


def copy_of_project(folder: Path) -> None:
    """The files that git knows, as they are in the working tree."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for line in listed.stdout.splitlines():
        if (ROOT / line).exists():
            (folder / line).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / line, folder / line)


def are_green(folder: Path, tests: list[str]) -> bool:
    """Whether the test files pass in the copy of the project."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        files = [f"tests/test_{name}.py" for name in tests]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files]))
    return os.waitpid(child, 0)[1] == 0


def tenth(mutants: list) -> list:
    """A tenth of the mutants, the next one with each commit."""
    git = ["git", "rev-list", "--count", "HEAD"]
    part = int(subprocess.run(git, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout) % 10
    return mutants[part * len(mutants) // 10 : (part + 1) * len(mutants) // 10]


def main(wanted: list[str]) -> int:
    """Try the mutants whose labels begin with one of the words -> how many survive."""
    mutants = [*read(MUTANTS)]
    if wanted == ["--tenth"]:
        mutants, wanted = tenth(mutants), []
    green, survivors = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        copy_of_project(folder)
        for label, file, tests, old, new in mutants:
            if not label.startswith(tuple(wanted) or ""):
                continue
            if tests not in green and not are_green(folder, tests):
                raise SystemExit(f"{label}: its tests fail without a mutant, too")
            green.append(tests)
            source = (folder / file).read_text()
            if source.count(old) != 1:
                raise SystemExit(f"{label}: not exactly once in {file}: {old}")
            (folder / file).write_text(source.replace(old, new))
            survives = are_green(folder, tests)
            (folder / file).write_text(source)
            survivors += [f"{label}: {old} => {new}"] * survives
            print(f"{label:18} {'SURVIVES' if survives else 'killed'}", flush=True)
    print(f"{len(survivors)} survive", *survivors, sep="\n")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))

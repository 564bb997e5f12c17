"""What the forks of tests/test_ranks.py do: they train scripts on given rollouts.

Each training leaves a file of rank 0 with the loss and the gradient of each update, and with the
weights at the end.

The completions of a rollout have very different lengths; some are empty but for the stop token. All
is in double precision: Adam's steps are as long for a gradient that is but rounding as for another.
"""

import contextlib
import functools
import importlib
import random
import sys

import rlvr.flags.command_line
import rlvr.tasks.datasets
import rlvr.training.run
import rlvr.training.updates
from rlvr import world
from rlvr.machine.ranks import global_sum
from rlvr.policy.sharding import whole
from rlvr.tasks.problems import Sample

import torch
import torch.distributed as dist
import transformers
from runs import ROOT, countdown_problems
from samples import writer_of_batch

import common
import grpo

sys.path.append(str(ROOT / "studies"))
import baselines

ADD = rlvr.training.updates.UpdateMetrics.add
OPTIMIZER_STEP = rlvr.training.run.Run.optimizer_step


class GivenRollouts:
    """In place of common.roll_out: the same completions whatever the number of ranks."""

    count = 0  # rollouts so far

    def __call__(self, sampler, stream, config):
        rng = random.Random(self.count)
        self.count += 1
        lengths = [rng.randint(3, 9) for _ in range(config.prompts_per_step)]
        prompts = [rng.choices(range(13, 23), k=length) for length in lengths]
        stop = sampler.tokenizer.eos_token_id
        groups = [draw_group(rng, config.num_generations, stop, prompt) for prompt in prompts]
        mine = groups[world.RANK :: world.WORLD_SIZE]
        samples = [sample for group in mine for sample in group]
        writer = writer_of_batch(sampler.tokenizer)
        writer.policy = sampler.policy  # whose covariances Clip-Cov asks for
        return common.make_batch(samples, config, writer)


def draw_group(rng, size, stop, prompt):
    """Completions of one prompt, about half of them called right."""
    longest = rng.choice((2, 6, 40))
    group = []
    for _ in range(size):
        ids = [*rng.choices(range(8, 24), k=rng.randint(0, longest)), stop]
        right = rng.random() < 0.5
        given = dict(reward=float(right), logprobs=[-1.0] * len(ids), success=right)
        group.append(Sample(prompt, ids, **given))
    return group


def train(folder, name, script, variant, flags):
    """Train a script, and leave on disk what it has done."""
    losses, updates, policies = [], [], []  # of the microbatches since an update; of all updates

    def add(metrics, loss, *given, **named):
        losses.append(loss.item())
        return ADD(metrics, loss, *given, **named)

    def step(run, policy, optimizer):
        gradients = [whole(parameter.grad).flatten().clone() for parameter in policy.parameters()]
        gradient = torch.cat(gradients)
        if world.WORLD_SIZE > 1 and run.config.fsdp == "no_shard":
            dist.all_reduce(gradient)
        updates.append((global_sum(sum(losses))[0], gradient))
        losses.clear()
        policies.append(policy)
        return OPTIMIZER_STEP(run, policy, optimizer)

    place = f"{folder}/{name}-{script}-{variant}"
    sys.argv = [f"{script}.py", *flags, "--variant", variant, "--output_dir", place]
    module = importlib.import_module(script)
    rlvr.training.run.MAX_GRAD_NORM = 100.0  # so that gradients are compared as they are
    common.roll_out = GivenRollouts()
    rlvr.training.updates.UpdateMetrics.add = add
    rlvr.training.run.Run.optimizer_step = step
    kept = dict(vars(grpo))  # of which baselines.py changes some
    rlvr.training.run.launch(
        module.main, rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)
    )
    vars(grpo).update(kept)
    weights = torch.cat([whole(p.detach()).flatten() for p in policies[-1].parameters()])
    if world.RANK == 0:
        torch.save((updates, weights), f"{place}.pt")


def without_evaluation(sampler, *_):
    """In place of common.evaluate, which leaves the policy sharded, too."""
    sampler.sleep()
    return {"pass@1": 0.0}


def main(folder, trainings):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    read_model = transformers.AutoModelForCausalLM.from_pretrained
    transformers.AutoModelForCausalLM.from_pretrained = lambda *given, **named: read_model(
        *given, **named
    ).double()
    rlvr.tasks.datasets.load_problems = countdown_problems
    common.evaluate = without_evaluation
    rlvr.training.run.Run.finish = lambda run: None
    # An unsure policy has no covariance above 1; from 0 on there are tokens to detach.
    baselines.clip_cov_mask = functools.partial(baselines.clip_cov_mask, low=0.0)

    # One process group serves all trainings: to make several in a row is a race.
    rlvr.machine.process_group = contextlib.nullcontext
    rlvr.machine.end_one_of_several_ranks = lambda: None
    if world.WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    for training in trainings:
        train(folder, **training)
    if world.WORLD_SIZE > 1:
        dist.destroy_process_group()

"""What tests/test_ranks.py starts, as one process or under torchrun: scripts on given rollouts.

    python tests/ranks.py <folder> <cache folder> <JSON file>

The file lists trainings: {"name": ..., "script": ..., "variant": ..., "flags": [...]}. Of each,
rank 0 leaves <folder>/<name>-<script>-<variant>.pt with the loss and the gradient of each update,
and with the weights at the end.

The completions of a rollout have very different lengths; some are empty but for the stop token. All
is in double precision: Adam's steps are as long for a gradient that is but rounding as for another.
"""

import contextlib
import functools
import importlib
import json
import random
import sys
from pathlib import Path

import rlvr.flags.command_line
import rlvr.tasks.datasets
import rlvr.training.run
from rlvr import world
from rlvr.machine.ranks import global_sum
from rlvr.policy.sharding import whole
from rlvr.tasks.problems import Sample

import torch
import torch.distributed as dist
import transformers
from runs import countdown_problems

import common
import cwgrpo

STOP = 1  # the tiny policy's stop token
ADD = common.UpdateMetrics.add
OPTIMIZER_STEP = rlvr.training.run.Run.optimizer_step


class GivenRollouts:
    """In place of common.roll_out: the same completions whatever the number of ranks."""

    def __init__(self):
        self.count = 0  # rollouts so far

    def __call__(self, sampler, stream, config):
        rng = random.Random(self.count)
        self.count += 1
        size = config.num_generations
        groups = [self.draw_group(rng, size) for _ in range(config.prompts_per_step)]
        mine = groups[world.RANK :: world.WORLD_SIZE]
        samples = [sample for group in mine for sample in group]
        batch = common.make_batch(samples, config, sampler.policy.device)
        batch.tokenizer = sampler.tokenizer
        return batch

    def draw_group(self, rng, size):
        """Completions of one prompt, about half of them called right."""
        prompt = rng.choices(range(13, 23), k=rng.randint(3, 9))
        longest = rng.choice((2, 6, 40))
        group = []
        for _ in range(size):
            ids = [*rng.choices(range(3, 24), k=rng.randint(0, longest)), STOP]
            right = rng.random() < 0.5
            group.append(
                Sample(prompt, ids, reward=float(right), logprobs=[-1.0] * len(ids), success=right)
            )
        return group


class Recorder:
    """Keeps the loss and the gradient of each update, and the policy that is trained."""

    def __init__(self):
        self.loss = 0.0  # of the microbatches since the last update
        self.updates = []  # (loss, gradient [parameters])
        self.policy = None

    def add(self, metrics, loss, *given, **named):
        """In place of UpdateMetrics.add, which every script calls for each microbatch."""
        self.loss += loss.item()
        return ADD(metrics, loss, *given, **named)

    def step(self, run, policy, optimizer):
        """In place of Run.optimizer_step."""
        gradients = [whole(parameter.grad).flatten().clone() for parameter in policy.parameters()]
        gradient = torch.cat(gradients)
        if world.WORLD_SIZE > 1 and not run.config.fsdp:
            dist.all_reduce(gradient)
        self.updates.append((global_sum(self.loss)[0], gradient))
        self.loss = 0.0
        self.policy = policy
        return OPTIMIZER_STEP(run, policy, optimizer)

    def weights(self):
        """All weights of the policy in one row. All ranks call it together."""
        return torch.cat([whole(p.detach()).flatten() for p in self.policy.parameters()])


def train(folder, cache, name, script, variant, flags):
    """Train a script, and leave on disk what it has done."""
    recorder = Recorder()
    given = [*flags, "--variant", variant, "--cache_dir", cache]
    sys.argv = [f"{script}.py", *given, "--output_dir", f"{folder}/{name}-{script}-{variant}"]
    module = importlib.import_module(script)
    common.roll_out = GivenRollouts()
    common.UpdateMetrics.add = lambda *given, **named: recorder.add(*given, **named)
    rlvr.training.run.Run.optimizer_step = lambda *given: recorder.step(*given)
    rlvr.training.run.launch(
        module.main, rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)
    )
    weights = recorder.weights()
    if world.RANK == 0:
        torch.save((recorder.updates, weights), f"{folder}/{name}-{script}-{variant}.pt")


def without_evaluation(sampler, *_):
    """In place of common.evaluate, which leaves the policy sharded, too."""
    sampler.sleep()
    return {"pass@1": 0.0}


def main(folder, cache, trainings):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    read_model = transformers.AutoModelForCausalLM.from_pretrained
    transformers.AutoModelForCausalLM.from_pretrained = lambda *given, **named: read_model(
        *given, **named
    ).double()
    rlvr.tasks.datasets.load_problems = countdown_problems
    common.evaluate = without_evaluation
    rlvr.training.run.Run.finish = lambda run: None
    # An unsure policy has no covariance above 1; from 0 on there are tokens to detach.
    cwgrpo.clip_cov_mask = functools.partial(cwgrpo.clip_cov_mask, low=0.0)

    # One process group serves all trainings: to make several in a row is a race.
    rlvr.training.run.process_group = contextlib.nullcontext
    if world.WORLD_SIZE > 1:
        dist.init_process_group("gloo")

    for training in json.loads(Path(trainings).read_text()):
        train(folder, cache, **training)
    if world.WORLD_SIZE > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

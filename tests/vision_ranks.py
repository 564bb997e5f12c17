"""What tests/test_images.py starts, as one process or under torchrun: runs on given completions.

    python tests/vision_ranks.py <flags of grpo.py> ...

One process trains with one microbatch an update, and with many. Two ranks train with a sharded
policy, and with a replicated one. Of each, rank 0 leaves <name>.pt with what the policy writes at
temperature 0 before each step, and the weights at the end.

All is in double precision: Adam's steps are as long for a gradient that is but rounding as for
another. Of two ranks, the second one has no image in the first step.
"""

import contextlib
import random
import sys

import rlvr.flags.command_line
import rlvr.training.run
from rlvr import world
from rlvr.policy.sharding import whole
from rlvr.tasks.problems import Sample
from rlvr.tasks.prompts import encode_prompt

import torch
import torch.distributed as dist
import transformers
import vision

import common
import grpo

ONE, TWO = (vision.squares(1),), (vision.squares(2), vision.squares(3, cells=1))
GIVEN = [  # the prompts of each step, of which each rank takes every second one
    [("how many?", ONE), ("7+1=", ()), ("<image> or <image>?", TWO), ("2+2=", ())],
    [("how many?", TWO), ("how many more?", ONE), ("7+1=", ()), ("<image>?", ONE)],
]

READ_MODEL = transformers.AutoModelForImageTextToText.from_pretrained
SINGLE = torch.float32
MANY = ["--microbatch_tokens", "60"]


class GivenRollouts:
    """In place of common.roll_out: the same completions whatever the number of ranks."""

    def __init__(self):
        self.greedy = []  # what the policy writes, of each step
        self.policy = None

    def __call__(self, sampler, stream, config):
        self.policy = sampler.policy
        shown = vision.problems(sampler.tokenizer, GIVEN[len(self.greedy)])
        prompts = [encode_prompt(sampler.tokenizer, problem.prompt) for problem in shown]
        images = [problem.images for problem in shown]
        sampler.sync()
        self.greedy.append(sampler.generate(prompts, 0.0, 1.0, 6, images=images)[0])
        sampler.sleep()
        rng = random.Random(len(self.greedy))
        groups = [
            [draw(rng, *each) for _ in range(config.num_generations)]
            for each in zip(prompts, images, strict=True)
        ]
        mine = [sample for group in groups[world.RANK :: world.WORLD_SIZE] for sample in group]
        return common.make_batch(mine, config, sampler.policy.device)


def draw(rng, prompt, images):
    """A completion, which is called right in half of the cases."""
    ids = [*rng.choices(range(8, 40), k=rng.randint(0, 7)), vision.STOP]
    right = rng.random() < 0.5
    return Sample(
        prompt,
        ids,
        reward=float(right),
        logprobs=[-1.0] * len(ids),
        success=right,
        images=images,
    )


WAYS = {  # of training, for so many ranks
    1: {"one": [], "many": MANY},
    2: {"sharded": MANY, "replicated": [*MANY, "--no_fsdp"]},
}


def train(name, flags):
    """Train, and leave on disk what has come of it."""
    common.roll_out = rollouts = GivenRollouts()
    sys.argv = ["grpo.py", *flags, "--output_dir", name]
    rlvr.training.run.launch(
        grpo.main, rlvr.flags.command_line.parse_flags(grpo.Config, grpo.VARIANTS)
    )
    named = rollouts.policy.named_parameters()
    weights = {name: whole(value.detach()) for name, value in named}
    if world.RANK == 0:
        torch.save((rollouts.greedy, weights), f"{name}.pt")


def read_in_double(*given, **named):
    """In place of from_pretrained: also what transformers computes in single precision."""
    torch.float32 = SINGLE
    policy = READ_MODEL(*given, **{**named, "dtype": SINGLE}).double()
    torch.float32 = torch.float64
    return policy


def main(*flags):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    transformers.AutoModelForImageTextToText.from_pretrained = read_in_double
    torch.Tensor.float = torch.Tensor.double
    common.evaluate = lambda *_: {"pass@1": 0.0}
    rlvr.training.run.Run.finish = lambda run: None
    # One process group serves all trainings: to make several in a row is a race.
    rlvr.training.run.process_group = contextlib.nullcontext
    if world.WORLD_SIZE > 1:
        dist.init_process_group("gloo")
    for name, more in WAYS[world.WORLD_SIZE].items():
        train(name, [*flags, *more])
    if world.WORLD_SIZE > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

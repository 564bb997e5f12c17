"""One rank of the part `ranks` of gpu.py: it saves the gradient of an update in a file."""

import os
import random
import sys
from pathlib import Path

os.environ["LOCAL_RANK"] = "0"  # all ranks have the same GPU
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from rlvr import world
from rlvr.machine import choose_device, end_one_of_several_ranks, global_sum, process_group
from rlvr.policy import add_up_gradients, load_policies, whole
from rlvr.rollout import make_sampler
from rlvr.tasks import Sample

import torch
import torch.distributed as dist

import common
import grpo
from studies.speed.gpu import backward


def main() -> None:
    """Compute the gradient of this rank's share of 16 completions, the same for any ranks."""
    dist.Backend.default_device_backend_map["cuda"] = "gloo"
    with process_group(choose_device()):
        config = grpo.configure(
            prompts_per_step=4, num_generations=4, minibatch_size=16, precision="fp32"
        )
        policy, _, tokenizer = load_policies(config)
        numbers, groups = random.Random(0), []
        for _ in range(config.prompts_per_step):
            prompt = numbers.choices(range(8, 24), k=numbers.randint(3, 9))
            completions = [
                numbers.choices(range(8, 24), k=numbers.randint(1, 40))
                for _ in range(config.num_generations)
            ]
            groups.append(
                [Sample(prompt, ids, reward=float(i % 3 == 0)) for i, ids in enumerate(completions)]
            )
        samples = sum(groups[world.RANK :: world.WORLD_SIZE], [])
        sampler = make_sampler(policy, tokenizer, config, common.decode)
        loss = backward(common.make_batch(samples, config, sampler))
        add_up_gradients(policy)
        gradient = [whole(parameter.grad).flatten().cpu() for parameter in policy.parameters()]
        (loss,) = global_sum(loss)
        if world.RANK == 0:
            torch.save((loss, torch.cat(gradient)), sys.argv[1])


if __name__ == "__main__":
    main()
    end_one_of_several_ranks()

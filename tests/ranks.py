"""What tests/test_ranks.py starts, as one process or under torchrun: all five scripts, on rollouts that are given.

    python tests/ranks.py <folder> <cache> <one set of flags after another, each for all scripts, separated by "/">

Rank 0 leaves <folder>/<number of the set>-<script>-<variant>.pt: loss and gradient before each update, and the weights
at the end. The rollouts hold completions of very different lengths, some empty but for the stop token. All in double
precision: Adam makes a step of the same size of any gradient, of one that is but rounding, too.
"""
import functools
import importlib
import os
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import common  # noqa: E402
import cwgrpo  # noqa: E402
import tasks  # noqa: E402

RUNS = [("grpo", "grpo"), ("agrae", "agrae"), ("asymgrpo", "asymgrpo"), ("fade", "fade"), ("cwgrpo", "clip-cov")]
if os.environ.get("RLVR_SLOW") == "1":
    RUNS += [("grpo", "gspo"), ("grpo", "dapo"), ("cwgrpo", "cwgrpo")]

def runs_of(flags):
    """Of replicated ranks, which add up gradients in the simplest way, two are enough."""
    return RUNS[::4] if "--fsdp" in flags else RUNS

def main(folder, cache, *flags):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    init, end = torch.distributed.init_process_group, torch.distributed.destroy_process_group
    torch.distributed.init_process_group = lambda *_, **__: torch.distributed.is_initialized() or init("gloo")
    torch.distributed.destroy_process_group = lambda: None  # one for all runs: to make several in a row is a race
    shard, load = common.shard, common.load_weights
    common.shard = lambda policy, scores: shard(policy.double(), scores)
    common.load_weights = lambda *given: load(*given) if recorded.sharded else load(*given).double()
    common.evaluate, common.Run.finish = lambda *_: {"pass@1": 0.0}, lambda _: None
    # so that there are tokens to detach: an unsure policy has no covariance above 1
    cwgrpo.clip_cov_mask = functools.partial(cwgrpo.clip_cov_mask, low=0.0)
    problems = common.load_problems(common.Config(numbers="2", eval_problems=2), common.build_tiny()[1])
    common.load_problems = lambda *_: problems  # the same in all runs, and half of the time of one
    common.roll_out_step, common.Run.optimizer_step = given_rollout, recorded(common.Run.optimizer_step)
    sets = " ".join(flags).split("/")
    for i, (script, variant) in [(i, run) for i in range(len(sets)) for run in runs_of(sets[i])]:
        recorded.rows, common.given = [], 0
        module, recorded.sharded = importlib.import_module(script), "--fsdp" not in sets[i] and common.WORLD_SIZE > 1
        sys.argv = [f"{script}.py", *sets[i].split(), "--variant", variant, "--cache_dir", cache,
                    "--output_dir", f"{folder}/{i}-{script}-{variant}",
                    *(["--clip_cov_fraction", "0.3"] if variant == "clip-cov" else [])]
        common.launch(module.main, tasks.parse_flags(module.Config, module.VARIANTS))
        weights = torch.cat([common.whole(p.detach()).flatten() for p in recorded.policy.parameters()])
        if common.RANK == 0:
            torch.save((recorded.rows, weights), f"{folder}/{i}-{script}-{variant}.pt")
    if torch.distributed.is_initialized():
        end()

def recorded(optimizer_step):
    def step(self, policy, optimizer, loss):
        for parameter in policy.parameters() if common.WORLD_SIZE > 1 and not self.config.fsdp else ():
            torch.distributed.all_reduce(parameter.grad)
            parameter.grad /= common.WORLD_SIZE  # which the real one adds up again
        scale = common.WORLD_SIZE if not self.config.fsdp else 1
        gradient = torch.cat([common.whole(p.grad).flatten() * scale for p in policy.parameters()])
        recorded.rows.append((common.global_sum(loss)[0], gradient))
        recorded.policy = policy
        return optimizer_step(self, policy, optimizer, loss)
    return step

def given_rollout(sampler, stream, config):
    """The same completions for the same prompt whatever the number of ranks, with about half of them called right."""
    rng, groups = random.Random(common.given), []
    common.given += 1
    for _ in range(config.prompts_per_step):
        prompt, longest, group = rng.choices(range(13, 23), k=rng.randint(3, 9)), rng.choice((2, 6, 40)), []
        for _ in range(config.num_generations):
            ids = rng.choices(range(3, 24), k=rng.randint(0, longest)) + [1]
            group.append(common.Sample(prompt, ids, "", float(rng.random() < 0.5), False, [-1.0] * len(ids)))
        groups.append(group)
    return sum(groups[common.RANK::common.WORLD_SIZE], [])

if __name__ == "__main__":
    main(*sys.argv[1:])

"""What --bf16 gains and costs on this machine, against fp32, side by side on the same completions.

    python studies/bf16_cost.py                              # the shipped tiny policy
    python studies/bf16_cost.py --model HuggingFaceTB/SmolLM2-135M-Instruct --dataset arithmetic
    python studies/bf16_cost.py --quick

Both take turns at a rollout, and at the gradients of its log-probs. The seconds are medians. A CPU
gains where it has instructions for products in bf16 (AMX, or AVX-512 BF16), and loses where it has
none.
"""

import argparse
import copy
import statistics
import sys

import project

import rlvr.flags
import rlvr.models
import rlvr.samplers
import rlvr.tasks.datasets
from rlvr.rollouts import sample_groups
from rlvr.tasks.stream import ProblemStream

import torch
from measure import gradients, now

import common
import grpo

IN_FP32, IN_BF16 = "fp32", "bf16"


def seconds_of(work, name: str) -> float:
    """Seconds of work(name)."""
    started = now()
    work(name)
    return now() - started


def take_turns(policies: dict, tokenizer, config, problems: list, rounds: int):
    """Seconds of each round, {part: {name: [...]}}, and the completions of the first rollout."""
    samplers = {}
    for name, policy in policies.items():
        samplers[name] = rlvr.samplers.GenerateSampler(policy, tokenizer, config)
    how = (config.num_generations, config.temperature, config.max_completion_length)
    groups = {}

    def rollout(name):
        torch.manual_seed(0)
        samplers[name].sync()
        groups[name] = sample_groups(samplers[name], problems, *how)
        samplers[name].sleep()

    def update(name):
        samples = [sample for group in groups[IN_FP32] for sample in group]
        gradients(policies[name], samples, config)
        policies[name].zero_grad()

    parts = {"rollout": rollout, "update": update}
    seconds = {part: {name: [] for name in policies} for part in parts}
    for _ in range(1 + rounds):  # the first one warms up
        for part, work in parts.items():
            for name in policies:
                seconds[part][name].append(seconds_of(work, name))
    return seconds, [sample for group in groups[IN_FP32] for sample in group]


@torch.no_grad()
def gap_of(policies: dict, samples: list) -> float:
    """The mean difference of both policies' log-probs of the completions' tokens, in nats."""
    rows = range(len(samples))
    found = [common.token_logprobs(policy, samples, rows)[0] for policy in policies.values()]
    tokens = sum(len(sample.completion_ids) for sample in samples)
    return float((found[0] - found[1]).abs().sum() / tokens)


def main(flags: list[str], rounds: int) -> None:
    sys.argv = ["grpo.py", *flags]
    config = rlvr.flags.parse_flags(grpo.Config, grpo.VARIANTS)
    in_fp32, tokenizer = rlvr.models.load_policy(config, torch.device("cpu"))
    in_bf16 = copy.deepcopy(in_fp32)
    in_bf16.bf16 = True
    policies = {IN_FP32: in_fp32, IN_BF16: in_bf16}
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    problems = ProblemStream(problems, config.seed).draw(config.prompts_per_step)
    seconds, samples = take_turns(policies, tokenizer, config, problems, rounds)
    print("| seconds | fp32 | bf16 | fp32 / bf16 |\n|---|---|---|---|")
    for part, found in seconds.items():
        fp32, bf16 = (statistics.median(found[name][1:]) for name in policies)
        print(f"| {part} | {fp32:.3g} | {bf16:.3g} | {fp32 / bf16:.2f} |")
    print(f"\nlog-probs differ by {gap_of(policies, samples):.2g} nats a token")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog="Further flags are those of grpo.py."
    )
    parser.add_argument("--quick", action="store_true", help="one round of a few completions")
    given, others = parser.parse_known_args()
    few = ["--prompts_per_step", "2", "--num_generations", "2", "--minibatch_size", "2"]
    main(few * given.quick + others, 1 if given.quick else 7)

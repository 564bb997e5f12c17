"""What several test files score: Countdown prompts, and completions of different lengths."""

import random
from dataclasses import replace
from types import SimpleNamespace

from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Sample

PROMPTS = [
    "3 9 5 : 48 ",
    "2 4 : 8 ",
    "1 2 3 4 : 10 ",
    "7 7 : 1 ",
    "9 9 9 9 : 36 ",
    "5 : 5 ",
    "8 2 : 4 ",
]


def some_samples(tokenizer, count=6, seed=0):
    """Problems with their solutions. They end with the stop token, except for the last one."""
    rng = random.Random(seed)
    samples = []
    for i in range(count):
        problem, solution = make_countdown(rng, 2 + i % 3)
        prompt_ids = tokenizer.encode(problem.prompt)
        samples.append(Sample(prompt_ids, tokenizer.encode(solution + tokenizer.eos_token)))
    samples[-1] = replace(samples[-1], completion_ids=samples[-1].completion_ids[:5])
    return samples


def writer_of_batch(tokenizer):
    """Stands for the sampler of a Batch: its log-probs are not the policy's, and not corrected."""
    policy = SimpleNamespace(device="cpu")
    return SimpleNamespace(policy=policy, tokenizer=tokenizer, is_exact=False, cap=0.0, gap=None)

"""What several test files score: Countdown prompts, and completions that are given."""

import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from rlvr.flags.config import Config
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Sample
from rlvr.tasks.tools import find_call_ends

import torch

PROMPTS = "3 9 5 : 48 ;2 4 : 8 ;1 2 3 4 : 10 ;7 7 : 1 ;9 9 9 9 : 36 ;5 : 5 ;8 2 : 4 ".split(";")


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


def by_the_logits(policy, sample, temperature=1.0):
    """Log-probs and entropies of a completion's tokens, [T] each, as a textbook writes them."""
    ids = torch.tensor(sample.prompt_ids + sample.completion_ids)
    start, end = len(sample.prompt_ids) - 1, len(ids) - 1  # what precedes a token predicts it
    logprobs = (policy(ids[None]).logits[0, start:end] / temperature).log_softmax(-1)  # [T, V]
    chosen = logprobs.gather(1, ids[start + 1 :, None])[:, 0]
    return chosen, -(logprobs.exp() * logprobs).sum(1)


def writer_of_batch(tokenizer):
    """Stands for the sampler of a Batch: its log-probs are not the policy's, and not corrected."""
    policy = SimpleNamespace(device="cpu")
    return SimpleNamespace(policy=policy, tokenizer=tokenizer, is_exact=False, cap=0.0, gap=None)


class Scripted:
    """A sampler whose policy writes given texts: in each call one for each prompt."""

    complete, texts = Sampler.complete, Sampler.texts

    def __init__(self, tokenizer, script, **flags):
        self.tokenizer, self.script = tokenizer, [*script]
        self.encode = partial(tokenizer.encode, add_special_tokens=False)
        self.config = Config(**flags)
        self.stops = [tokenizer.eos_token_id]
        self.call_ends = find_call_ends(tokenizer, self.config.tool)
        self.calls = []

    def generate(self, prompts, *, temperature, top_p, max_tokens, call_ends):
        """The next texts, with log-probs of -1."""
        self.calls.append((prompts, temperature, top_p, max_tokens, [*call_ends]))
        ids = [self.encode(text) for text in self.script.pop(0)]
        return ids, [[-1.0] * len(each) for each in ids]

"""Completions of problems, drawn and graded, and what of them becomes a tensor."""

import rlvr.tasks.pool
from rlvr.records import Problem, Sample
from rlvr.tasks.prompts import encode_prompt
from rlvr.turns import generate_in_turns

import torch
from torch.nn.utils.rnn import pad_sequence


def sample_groups(
    sampler,
    problems: list[Problem],
    size: int,
    temperature: float,
    max_tokens: int,
    top_p: float = 1.0,
) -> list[list[Sample]]:
    """Draw and grade `size` completions for each problem -> a group of samples a problem."""
    repeated = [problem for problem in problems for _ in range(size)]
    prompts = [encode_prompt(sampler.tokenizer, problem.prompt) for problem in repeated]
    images = [problem.images for problem in repeated]
    shown = dict(images=images) if any(images) else {}
    if sampler.config.tool == "none":
        completions, logprobs = sampler.generate(prompts, temperature, top_p, max_tokens, **shown)
        replies = [()] * len(completions)
    else:
        completions, logprobs, replies = generate_in_turns(
            sampler, prompts, temperature, top_p, max_tokens, **shown
        )
    texts = sampler.tokenizer.batch_decode(completions, skip_special_tokens=True)
    questions = [
        (problem.verifier, text, problem.gold)
        for problem, text in zip(repeated, texts, strict=True)
    ]
    limits = sampler.config.verify_seconds, sampler.config.program_seconds
    grades = rlvr.tasks.pool.in_threads(
        lambda question: rlvr.tasks.pool.grade(question, *limits), questions
    )
    samples = [
        Sample(
            prompt_ids=prompts[i],
            completion_ids=ids,
            text=texts[i],
            reward=grades[i][0],
            truncated=not ids or ids[-1] not in sampler.stops,
            logprobs=logprobs[i],
            status=grades[i][1],
            success=grades[i][0] >= sampler.config.success_threshold,
            replies=replies[i],
            images=images[i],
        )
        for i, ids in enumerate(completions)
    ]
    return [samples[i : i + size] for i in range(0, len(samples), size)]


def own_tokens(sample: Sample) -> torch.Tensor:
    """[T of the sample], 1.0 on the tokens that the policy has written, 0.0 on those of a tool."""
    own = torch.ones(len(sample.completion_ids))
    for reply in sample.replies:
        own[reply.start : reply.stop] = 0
    return own


def completion_mask(samples: list[Sample], device, skip_truncated: bool = False) -> torch.Tensor:
    """[N, T], 1.0 on the policy's own tokens, else 0.0; 0.0 throughout for what is to be skipped.

    It goes by position, since the stop token may be the same token as the padding.
    """
    rows = [own_tokens(s) * float(not (skip_truncated and s.truncated)) for s in samples]
    return pad_sequence(rows, batch_first=True).to(device)


def sampled_logprobs(samples: list[Sample], device) -> torch.Tensor:
    """The sampler's log-probs of the completion tokens, [N, T], 0 beyond a row's end."""
    rows = [torch.tensor(sample.logprobs) for sample in samples]
    return pad_sequence(rows, batch_first=True).to(device)

"""Completions in turns: with --tool, a tool answers while the policy writes (FADE, section 9.1).

A turn ends with a token that ends a call. The tool's reply follows it, and the policy continues
from the tokens of both, unchanged. The positions tell which tokens are the tool's. Without a tool
there is one turn.
"""

from dataclasses import dataclass, field

from rlvr.tasks import TOOLS
from rlvr.verify.pool import in_threads

MAX_TURNS = 8  # the last one has no tool


@dataclass
class Completion:
    """What the policy and the tool have written after a prompt."""

    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # one per token; 0 for the tool's
    replies: list[range] = field(default_factory=list)  # positions of the tool's tokens


def complete_in_turns(
    sampler,
    prompt_ids: list[list[int]],
    *,
    temperature: float,
    top_p: float,
    max_tokens: int,
) -> list[Completion]:
    """Write one completion per prompt, in at most MAX_TURNS turns, by calling sampler.generate.

    The tool's tokens are part of a completion, with log-probs of 0, and count towards max_tokens. A
    completion ends if a reply and one more token do not fit. The last turn has no tool.
    """
    completions = [Completion(ids) for ids in prompt_ids]
    unfinished = completions
    turns = MAX_TURNS if sampler.call_ends else 1
    for turn in range(1, turns + 1):
        if not unfinished:
            break
        call_ends = sampler.call_ends if turn < turns else []
        written = sampler.generate(
            [completion.prompt_ids + completion.ids for completion in unfinished],
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens - min(len(completion.ids) for completion in unfinished),
            call_ends=call_ends,
        )
        for completion, ids, logprobs in zip(unfinished, *written, strict=True):
            own_room = max_tokens - len(completion.ids)
            completion.ids += ids[:own_room]
            completion.logprobs += logprobs[:own_room]
        callers = [
            completion
            for completion in unfinished
            if completion.ids and completion.ids[-1] in call_ends
        ]
        unfinished = answer_calls(sampler, callers, max_tokens) if callers else []
    return completions


def answer_calls(sampler, callers: list[Completion], max_tokens: int) -> list[Completion]:
    """Let the tool reply to each caller. Return the completions that the policy continues."""
    tokenizer = sampler.tokenizer
    texts = sampler.texts([completion.ids for completion in callers])
    replies = in_threads(TOOLS[sampler.config.tool].reply, texts, "using the tool")
    unfinished = []
    for completion, reply in zip(callers, replies, strict=True):
        ids = tokenizer.encode(reply or "", add_special_tokens=False)
        is_over = reply is None and completion.ids[-1] in sampler.stops
        if not is_over and len(completion.ids) + len(ids) < max_tokens:
            completion.replies.append(range(len(completion.ids), len(completion.ids) + len(ids)))
            completion.ids += ids
            completion.logprobs += [0.0] * len(ids)
            unfinished.append(completion)
    return unfinished

"""Completions in several turns: a tool answers while the policy writes (FADE, section 9.1).

A turn ends with a token that ends a call. The tool's reply stands behind it, and the policy goes on
from the tokens of both, as they are. Which tokens are the tool's is known by their positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlvr.machine import global_max
from rlvr.tasks import TOOLS
from rlvr.verify.pool import in_threads

MAX_TURNS = 8  # the last one has no tool


@dataclass
class Completion:
    """What follows a prompt, by the policy and by the tool."""

    prompt_ids: list[int]
    images: tuple[bytes, ...]  # of the prompt
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)  # one a token; 0 for those of the tool
    replies: list[range] = field(default_factory=list)  # where the tool's tokens stand


def complete_in_turns(
    sampler,
    prompt_ids: list[list[int]],
    temperature: float,
    top_p: float,
    max_tokens: int,
    images: Sequence[tuple[bytes, ...]],
) -> list[Completion]:
    """Write completions as sampler.generate does, but in at most MAX_TURNS turns.

    The tool's tokens stand among those of a completion, with 0 for their log-probs, and max_tokens
    counts them, too. A completion ends where there is no room for a reply and one more token. The
    last turn has no tool. All ranks call it together.
    """
    completions = [Completion(*prompt) for prompt in zip(prompt_ids, images, strict=True)]
    unfinished = completions
    for turn in range(1, MAX_TURNS + 1):
        # Ranks that share an engine of vLLM draw together and up to one length, even where one of
        # them has finished.
        room = global_max(max((max_tokens - len(each.ids) for each in unfinished), default=0))
        if room == 0:
            break
        call_ends = sampler.call_ends if turn < MAX_TURNS else []
        written = sampler.generate(
            [each.prompt_ids + each.ids for each in unfinished],
            temperature,
            top_p,
            room,
            call_ends,
            [each.images for each in unfinished],
        )
        for each, ids, logprobs in zip(unfinished, *written, strict=True):
            own_room = max_tokens - len(each.ids)
            each.ids += ids[:own_room]
            each.logprobs += logprobs[:own_room]
        callers = [each for each in unfinished if each.ids and each.ids[-1] in call_ends]
        unfinished = answer_calls(sampler, callers, max_tokens)
    return completions


def answer_calls(sampler, callers: list[Completion], max_tokens: int) -> list[Completion]:
    """Let the tool reply to each -> those that the policy goes on with."""
    tokenizer = sampler.tokenizer
    texts = [tokenizer.decode(each.ids, skip_special_tokens=True) for each in callers]
    replies = in_threads(TOOLS[sampler.config.tool].reply, texts)
    unfinished = []
    for each, reply in zip(callers, replies, strict=True):
        ids = tokenizer.encode(reply or "", add_special_tokens=False)
        is_over = reply is None and each.ids[-1] in sampler.stops
        if not is_over and len(each.ids) + len(ids) < max_tokens:
            each.replies.append(range(len(each.ids), len(each.ids) + len(ids)))
            each.ids += ids
            each.logprobs += [0.0] * len(ids)
            unfinished.append(each)
    return unfinished

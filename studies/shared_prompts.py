"""Runs a script so that a prompt is computed once, and not once for each completion of its group.

    python studies/shared_prompts.py grpo --model HuggingFaceTB/SmolLM2-135M-Instruct \
        --dataset arithmetic

Everything after the script's name is its flags. The numbers are those of the script alone, up to
rounding. It pays where prompts are longer than completions. In the claims of language_model.py a
prompt has some 32 tokens and a completion 16: a group of eight is 160 tokens in place of 384.

A group stands in one row: its prompt, then its completions one after another. A completion sees the
prompt and itself. This is right for models whose layers attend to all earlier positions, such as
Llama and Qwen2; not for sliding windows, images, or recurrent layers. It is for one process.
"""

import itertools
import runpy
import sys

import project

import rlvr.logprobs
from rlvr import world
from rlvr.devices import computes_in_bf16, forward_passes
from rlvr.logprobs import LinearLogProbs
from rlvr.records import Sample
from rlvr.rollouts import own_tokens

import torch
import transformers
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence


def neighbours(samples: list[Sample]) -> list[list[Sample]]:
    """Samples of the same prompt that stand side by side, as groups."""
    found = itertools.groupby(samples, lambda sample: sample.prompt_ids)
    return [[*group] for _, group in found]


def row_length(group: list[Sample]) -> int:
    return len(group[0].prompt_ids) + sum(len(sample.completion_ids) for sample in group)


class Row:
    """One group in one row of length L."""

    def __init__(self, group: list[Sample]):
        prompt = group[0].prompt_ids
        self.ids = torch.tensor(sum((s.completion_ids for s in group), [*prompt]))  # [L]
        self.positions = torch.arange(len(self.ids))  # [L]: counted from the prompt's start
        part = torch.zeros_like(self.ids)  # [L]: 0 in the prompt, i in the i-th completion
        sources = []  # for each token that is scored, the token whose state predicts it
        start = len(prompt)
        for number, sample in enumerate(group, 1):
            end = start + len(sample.completion_ids)
            self.positions[start:end] = torch.arange(start, end) - start + len(prompt)
            part[start:end] = number
            before = torch.tensor([len(prompt) - 1, *range(start, end - 1)])
            sources.append(before[own_tokens(sample) > 0])
            start = end
        self.sources = torch.cat(sources)  # [M of this group]
        earlier = torch.ones(len(part), len(part), dtype=torch.bool).tril()
        self.seen = earlier & ((part == part[:, None]) | (part == 0))  # [L, L]


def scores(policy, samples: list[Sample], ids, scored, temperature: float):
    """What rlvr.logprobs.scores gives: log-probs and entropies, [M] each, of ids[scored]."""
    rows = [Row(group) for group in neighbours(samples)]
    row_ids = pad_sequence([row.ids for row in rows], batch_first=True)  # [g, L]
    length = row_ids.shape[1]
    # Padding sees itself, so that no row of the attention is empty.
    seen = torch.eye(length, dtype=torch.bool).repeat(len(rows), 1, 1)  # [g, L, L]
    for i, row in enumerate(rows):
        seen[i] |= pad(row.seen, (0, length - len(row.ids)) * 2)
    positions = pad_sequence([row.positions for row in rows], batch_first=True)  # [g, L]
    in_bf16 = computes_in_bf16(policy)
    with forward_passes(ids.device, in_bf16, policy.is_gradient_checkpointing):
        hidden = policy.base_model(
            input_ids=row_ids.to(ids.device),
            position_ids=positions.to(ids.device),
            attention_mask=seen[:, None].to(ids.device),  # for all heads
            use_cache=False,
        ).last_hidden_state  # [g, L, H]
    # `scored` counts sample by sample, as the rows do.
    hidden = torch.cat([hidden[i, row.sources] for i, row in enumerate(rows)])  # [M, H]
    if in_bf16:
        hidden = hidden.bfloat16()
    weight = policy.get_output_embeddings().weight  # [V, H]
    return LinearLogProbs.apply(hidden, weight, ids[scored], temperature)


def split_by_tokens(samples: list[Sample], rows, token_budget: int) -> list[list[int]]:
    """As rlvr.logprobs.split_by_tokens, but a group stays together, and its prompt counts once."""
    by_prompt = sorted((int(i) for i in rows), key=lambda i: samples[i].prompt_ids)
    groups = itertools.groupby(by_prompt, lambda i: samples[i].prompt_ids)
    groups = sorted(
        ([*group] for _, group in groups), key=lambda group: row_length([samples[i] for i in group])
    )
    parts, count = [], 0
    for group in groups:
        length = row_length([samples[i] for i in group])
        if not parts or (count + 1) * length > token_budget:
            parts.append([])
            count = 0
        parts[-1] += group
        count += 1
    return parts


def generate(plain, policy, input_ids, attention_mask, **settings):
    """policy.generate of prompts [n, P], padded on the left: equal ones share their cache.

    `plain` is transformers' own method.
    """
    prompts, owner = torch.unique(input_ids, dim=0, return_inverse=True)  # [u, P], [n]
    mask = torch.zeros_like(prompts)
    mask[owner] = attention_mask
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    # The last token stays out: `generate` computes it for the first logits.
    found = policy.base_model(
        input_ids=prompts[:, :-1],
        attention_mask=mask[:, :-1],
        position_ids=positions[:, :-1],
        use_cache=True,
    )
    cache = found.past_key_values
    cache.batch_select_indices(owner)
    return plain(
        policy, input_ids, attention_mask=attention_mask, past_key_values=cache, **settings
    )


def share_prompts() -> None:
    """Put these functions into the places of the script's own."""
    rlvr.logprobs.scores = scores
    rlvr.logprobs.split_by_tokens = split_by_tokens
    plain = transformers.GenerationMixin.generate
    transformers.GenerationMixin.generate = lambda policy, *args, **settings: generate(
        plain, policy, *args, **settings
    )


def main(script: str = "", *flags: str) -> None:
    path = project.ROOT / f"{script}.py"
    if not path.exists():
        raise SystemExit("shared_prompts.py: error: first the name of a script, such as grpo")
    if world.WORLD_SIZE > 1:
        raise SystemExit("shared_prompts.py: error: it runs in one process, without torchrun")
    share_prompts()
    sys.argv = [str(path), *flags]
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])

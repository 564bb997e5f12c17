"""Log-probs and entropies of completion tokens without a [tokens, vocabulary] matrix.

In shapes: n completions, S tokens of the longest prompt and completion, T of the longest
completion, M tokens whose log-probs are asked for, H hidden size, V vocabulary, v tokens of one
tile of it.
"""

import contextlib
import itertools

from rlvr import progress
from rlvr.machine import global_max
from rlvr.policy.reader import Reader, product
from rlvr.policy.settings import settings_of
from rlvr.policy.sharding import is_sharded, use
from rlvr.tasks import Sample, own_tokens, padded

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

MOST_KEPT = 2**26  # logits [M, V] that wait for the backward pass: 256 MB in fp32


def tile_width(tokens: int, gpu: bool) -> int:
    """Return how many tokens of the vocabulary a tile has.

    On a CPU a tile fits into the cache. A GPU wants larger products, and rows whose length is a
    multiple of 256, because its fast kernels need aligned rows.
    """
    tokens = max(1, tokens)
    return max(256, 2**25 // tokens // 256 * 256) if gpu else max(1, 2**22 // tokens)


class LinearLogProbs(torch.autograd.Function):
    """log pi(target) and entropy of pi = softmax(z), z = hidden W^T / temperature, in tiles.

    The vocabulary is cut into tiles, which accumulate log Z and the mean of z under pi. The entropy
    is log Z - mean. The backward pass computes the tiles again, unless they are few and were kept,
    with

        d log pi(target) / d z = onehot(target) - pi
        d entropy / d z = -pi (log pi + entropy)

    The products are of numbers in the dtype of `hidden`, and are added up in fp32 or better. Next
    to them, reading and writing tiles takes the time: so few operations have a tile's size.
    """

    @staticmethod
    def tiles(hidden, weight, targets):
        """Yield each tile's slice of the vocabulary, and which targets are in it [M], and where.

        The columns [M, 1] of the other targets are arbitrary. So the CPU need not wait for the GPU
        to count the targets in the tile.
        """
        size = tile_width(len(hidden), hidden.is_cuda)
        for start in range(0, len(weight), size):
            end = min(start + size, len(weight))
            inside = (targets >= start) & (targets < end)  # [M]
            columns = (targets - start).clamp(0, end - start - 1)[:, None]  # [M, 1]
            yield slice(start, end), inside, columns

    @staticmethod
    def logits(hidden, weight, temperature):
        """Return the logits [M, v] of a tile's weight [v, H], in fp32 or better."""
        logits = product(hidden, weight.T.to(hidden.dtype))
        # `hidden` could be divided in less time, but bf16 would round it once more
        return logits if temperature == 1 else logits.div_(temperature)

    @staticmethod
    def forward(ctx, hidden, weight, targets, temperature):
        """[M, H], [V, H], [M], float -> log-probs [M] and entropies [M], in nats."""
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        log_z = torch.full_like(targets, torch.finfo(dtype).min, dtype=dtype)  # [M], less shift
        entropies = torch.zeros_like(log_z)  # [M]
        chosen = torch.zeros_like(log_z)  # [M], the targets' logits
        shift = torch.zeros_like(log_z)  # [M]
        tile_log_zs, kept = [], []
        for tile, inside, columns in LinearLogProbs.tiles(hidden, weight, targets):
            logits = LinearLogProbs.logits(hidden, weight[tile], temperature)
            softmax = logits.softmax(1)  # [M, v], within the tile
            top, log_peak = logits.amax(1), softmax.amax(1).log()  # [M]
            if not tile_log_zs:  # a large log Z would be rounded more; the shift itself is exact
                shift = (top / 32).round() * 32  # [M]
            tile_log_z = (top - shift) - log_peak  # [M]
            chosen = torch.where(inside, logits.gather(1, columns)[:, 0], chosen)
            # less `top`, or a softmax whose sum is not quite 1 would make an error of its size
            tile_mean = logits.sub_(top[:, None]).mul_(softmax).sum(1)  # [M]
            before, log_z = log_z, log_z.logaddexp(tile_log_z)
            # -log pi is that within the tile, plus log (Z / Z of the tile)
            entropies = (entropies + (log_z - before)).lerp(
                (log_z - tile_log_z) - log_peak - tile_mean, (tile_log_z - log_z).exp()
            )
            tile_log_zs.append(tile_log_z)
            if len(hidden) * len(weight) <= MOST_KEPT:
                kept.append(softmax)
        ctx.temperature, ctx.count = temperature, len(tile_log_zs)
        ctx.save_for_backward(hidden, weight, targets, log_z, entropies, *tile_log_zs, *kept)
        return (chosen - shift) - log_z, entropies

    @staticmethod
    def backward(ctx, *gradients):
        """Gradients [M] of both results -> those of hidden [M, H] and weight [V, H]."""
        grad_logprobs, grad_entropies = gradients
        hidden, weight, targets, log_z, entropies, *of_tiles = ctx.saved_tensors
        tile_log_zs, kept = of_tiles[: ctx.count], of_tiles[ctx.count :]
        of_entropy = bool(grad_entropies.any())  # mostly not: it is logged alone
        grad_hidden = torch.zeros_like(hidden, dtype=log_z.dtype)
        grad_weight = torch.empty_like(weight)
        tiles = LinearLogProbs.tiles(hidden, weight, targets)
        for i, (tile, inside, columns) in enumerate(tiles):
            if kept:
                softmax = kept[i]
            else:
                softmax = LinearLogProbs.logits(hidden, weight[tile], ctx.temperature).softmax(1)
            log_share = (tile_log_zs[i] - log_z)[:, None]  # [M, 1]; pi = softmax * share
            factor = -grad_logprobs[:, None]  # [M, 1]; the gradient is pi * factor
            if of_entropy:
                logp = softmax.log().clamp_(-1e5) + log_share  # [M, v]; finite, as 0 * inf is NaN
                factor = factor - grad_entropies[:, None] * (logp + entropies[:, None])  # [M, v]
            factor = factor * (log_share.exp() / ctx.temperature)
            grad = softmax.new_empty(softmax.shape, dtype=hidden.dtype)
            torch.mul(softmax, factor, out=grad)  # writes bf16, without a tile in fp32
            at_targets = softmax.gather(1, columns) * factor.expand_as(softmax).gather(1, columns)
            at_targets += torch.where(inside, grad_logprobs, 0)[:, None] / ctx.temperature
            grad.scatter_(1, columns, at_targets.to(grad.dtype))
            grad_hidden += product(grad, weight[tile].to(hidden.dtype))
            if grad.dtype == grad_weight.dtype:  # without a copy of [v, H]
                torch.mm(grad.T, hidden, out=grad_weight[tile])
            else:
                grad_weight[tile] = product(grad.T, hidden)
        return grad_hidden.to(hidden.dtype), grad_weight, None, None


def logprobs_and_entropies(policy, samples: list[Sample], temperature: float):
    """Return log-probs and entropies, [n, T] each, 0 where the policy has written no token."""
    own = own_tokens(samples)  # [n, T]
    targets = padded([s.completion_ids for s in samples])[own].to(policy.device)  # [M]
    own = own.to(policy.device)
    states = states_by_prompt if is_shorter_by_prompt(policy, samples) else states_one_by_one
    settings, kind = settings_of(policy), policy.device.type
    # In bf16 on a CPU, the backward pass of torch's fused attention takes five times as long as
    # that of plain products. But gradient checkpointing computes outside of this context again, by
    # fused attention, so fused attention must have computed the first time, too.
    plain = settings.half and kind == "cpu" and not settings.gradient_checkpointing
    attention = sdpa_kernel(SDPBackend.MATH) if plain else contextlib.nullcontext()
    with torch.autocast(kind, settings.dtype, enabled=settings.half), attention:
        hidden = states(policy, samples)[own]  # [M, H]
    weight = policy.get_output_embeddings().weight  # [V, H]
    if settings.half:
        hidden = hidden.to(settings.dtype)
    of_tokens = LinearLogProbs.apply(hidden, weight, targets, temperature)  # [M] each
    if settings.dtype == torch.float16 and hidden.requires_grad:
        of_tokens = torch.stack(of_tokens)  # [2, M]
        of_tokens.register_hook(lambda gradient: gradient * settings.loss_scale)
    zeros = torch.zeros(own.shape, dtype=of_tokens[0].dtype, device=policy.device)
    return tuple(zeros.masked_scatter(own, values) for values in of_tokens)


def states_one_by_one(policy, samples: list[Sample]) -> torch.Tensor:
    """Return the states [n, T, H] that predict completion tokens, from each text as a whole."""
    # Padding stands on the right and needs no mask, since causal attention only looks left.
    ids = padded([s.prompt_ids + s.completion_ids for s in samples]).to(policy.device)  # [n, S]
    hidden = policy.base_model(input_ids=ids, use_cache=False).last_hidden_state  # [n, S, H]
    parts = []
    for state, sample in zip(hidden, samples, strict=True):
        start = len(sample.prompt_ids) - 1  # the state before a token predicts it
        parts.append(state[start : start + len(sample.completion_ids)])
    return pad_sequence(parts, batch_first=True)


def states_by_prompt(policy, samples: list[Sample]) -> torch.Tensor:
    """Return what states_one_by_one does, computing each prompt once for all completions."""
    reader = Reader(policy, [s.prompt_ids for s in samples])
    ids = padded([s.completion_ids[:-1] for s in samples]).to(policy.device)  # [n, T - 1]
    return torch.cat([reader.state[:, None], reader.read(ids)], 1)


def is_shorter_by_prompt(policy, samples: list[Sample]) -> bool:
    """Whether states_by_prompt computes so much fewer tokens that it is faster, and is possible.

    It makes two passes of one. On an H100 it took 1.6 to 1.8 times as long for each token.

    Activations that are computed twice leave no keys and values behind, a sharded layer is to be
    used once before the backward pass, and a compiled one would be compiled again for each length.
    """
    settings = settings_of(policy)
    if is_sharded(policy) or settings.gradient_checkpointing or settings.compiled:
        return False
    prompts = {tuple(s.prompt_ids) for s in samples}
    longest_prompt = max(map(len, prompts))
    longest = max(len(s.completion_ids) for s in samples)
    by_prompt = len(prompts) * longest_prompt + len(samples) * longest
    worth_it = 0.5 if policy.device.type == "cuda" else 0.9
    return longest > 1 and by_prompt < worth_it * len(samples) * (longest_prompt + longest)


def completion_logprobs(policy, samples: list[Sample], temperature: float, width: int):
    """Return log-probs and entropies [n, width], in nats, of the policy's completion tokens.

    Both are 0 at a tool's tokens and beyond a row's end. `width` is at least the longest
    completion. The policy is left in training mode if gradient checkpointing needs it, else in
    evaluation mode.
    """
    # only in training mode does transformers compute activations again
    training = settings_of(policy).gradient_checkpointing and torch.is_grad_enabled()
    if policy.training != training:  # train() takes milliseconds, because it visits all modules
        policy.train(training)
    results = use(policy, logprobs_and_entropies, samples, temperature)  # [n, T] each
    return tuple(pad(values, (0, width - values.shape[1])) for values in results)


def microbatches(
    samples: list[Sample], rows, token_budget: int, group_size: int | None = None
) -> list[list[int]]:
    """Split the indices `rows`, sorted by length, into parts of at most `token_budget` tokens.

    Padding counts. Neighbours of one prompt stay together where each such group fits into the
    budget, so that their prompt can be computed once. With group_size, so many neighbours stay
    together in any case. The ranks gather sharded weights together, so each has as many parts. All
    of them call it, with equally many rows.
    """
    rows = [int(i) for i in rows]
    lengths = {i: len(samples[i].prompt_ids) + len(samples[i].completion_ids) for i in rows}

    def longest(group: list[int]) -> int:
        return max(lengths[i] for i in group)

    if group_size:
        groups = [rows[i : i + group_size] for i in range(0, len(rows), group_size)]
    else:
        by_prompt = itertools.groupby(rows, key=lambda i: samples[i].prompt_ids)
        groups = [[*group] for _, group in by_prompt]
        if any(len(group) * longest(group) > token_budget for group in groups):
            groups = [[i] for i in rows]

    parts = []  # of groups
    for group in sorted(groups, key=longest):
        count = len(group) + sum(map(len, parts[-1] if parts else []))
        if not parts or count * longest(group) > token_budget:
            parts.append([])
        parts[-1].append(group)

    if not group_size:
        parts = [[[i] for group in part for i in group] for part in parts]
    # Halve the largest parts until there are as many as on other ranks.
    for _ in range(len(parts), global_max(len(parts))):
        largest = max(parts, key=len)
        parts.append([largest.pop() for _ in range(len(largest) // 2)])
    return [[i for group in part for i in group] for part in parts]


@torch.no_grad()
def frozen_logprobs(policy, samples: list[Sample], config, rows=None):
    """Return log-probs and entropies [N, T] without gradient, 0 off `rows`. All ranks call it."""
    longest = max(len(sample.completion_ids) for sample in samples)
    results = torch.zeros(2, len(samples), longest, device=policy.device)
    rows = [*range(len(samples))] if rows is None else [*rows]
    # A rank with fewer rows than others, as in evaluations, computes its last one again.
    rows += rows[-1:] * (global_max(len(rows)) - len(rows))
    parts = microbatches(samples, rows, config.microbatch_tokens)
    for i, part in enumerate(parts):
        progress.count("log-probs", i, len(parts))
        chosen = [samples[j] for j in part]
        of_part = completion_logprobs(policy, chosen, config.temperature, longest)
        results[:, part] = torch.stack(of_part).to(results)
    return results[0], results[1]

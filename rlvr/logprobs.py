"""Log-probs and entropies of completion tokens without a [tokens, vocabulary] matrix.

In shapes: n completions, S tokens of the longest prompt and completion, T of the longest
completion, M scored tokens, H hidden size, V vocabulary, v tokens of one tile of it.
"""

import functools

from rlvr.devices import computes_in_bf16, forward_passes
from rlvr.images import model_inputs
from rlvr.ranks import global_max
from rlvr.records import Sample
from rlvr.rollouts import own_tokens

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence


def plain_logprobs(hidden, weight, targets, temperature):
    """What LinearLogProbs computes, as a textbook writes it; it needs [M, V] memory.

    hidden [M, H], weight [V, H], targets [M] -> log-probs of the targets and entropies, [M] each.
    """
    logits = hidden @ weight.T / temperature  # [M, V]
    logp = logits.log_softmax(-1)
    entropies = -(logp.exp() * logp).sum(-1)
    return logp.gather(1, targets[:, None])[:, 0], entropies


def tile_width(tokens: int, gpu: bool) -> int:
    """How many tokens of the vocabulary a tile has.

    On a CPU a tile fits into the cache. A GPU wants larger products, and rows whose length is a
    multiple of 256, because its fast kernels need aligned rows.
    """
    tokens = max(1, tokens)
    return max(256, 2**25 // tokens // 256 * 256) if gpu else max(1, 2**22 // tokens)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b of two matrices of one dtype, added up and left in fp32 or better.

    Of two bf16 matrices, `a @ b` is rounded to bf16. A logit of 20 would be off by up to 0.06 then,
    and a ratio of two such probabilities by a percent.
    """
    if a.dtype == torch.float64 or a.dtype == torch.float32:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


class LinearLogProbs(torch.autograd.Function):
    """log pi(target) and entropy of pi = softmax(z), z = hidden W^T / temperature, in tiles.

    The vocabulary is cut into tiles, whose results build up: log Z, and the mean of z under pi.
    The entropy is log Z - mean. The backward pass computes the tiles again, with

        d log pi(target) / d z = onehot(target) - pi
        d entropy / d z = -pi (log pi + entropy)

    The products are of numbers in the dtype of `hidden`, and are added up in fp32 or better.
    """

    @staticmethod
    def tiles(hidden, weight, targets, temperature):
        """Yield for each tile its tokens, its logits, and where the targets are in it.

        The tokens are a slice; the logits [M, v] are in fp32 or better. Of the targets it yields
        whether they are in the tile [M], and their columns [M, 1], some column where they are not.
        So a GPU need not tell the CPU how many of them are in the tile, which would make it wait.
        """
        size = tile_width(len(hidden), hidden.is_cuda)
        for start in range(0, len(weight), size):
            words = slice(start, start + size)
            logits = product(hidden, weight[words].T.to(hidden.dtype))
            inside = (targets >= start) & (targets < start + size)  # [M]
            columns = (targets - start).clamp(0, logits.shape[1] - 1)[:, None]  # [M, 1]
            yield words, logits.div_(temperature), inside, columns

    @staticmethod
    def forward(ctx, hidden, weight, targets, temperature):
        """[M, H], [V, H], [M], float -> log-probs [M] and entropies [M], in nats."""
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        log_z = torch.full_like(targets, -torch.inf, dtype=dtype)  # [M]
        mean = torch.zeros_like(log_z)  # [M]
        chosen = torch.zeros_like(log_z)  # [M], the targets' logits
        for _, logits, inside, columns in LinearLogProbs.tiles(
            hidden, weight, targets, temperature
        ):
            chosen = torch.where(inside, logits.gather(1, columns)[:, 0], chosen)
            largest = logits.amax(1, keepdim=True)  # [M, 1]
            powers = (logits - largest).exp_()  # [M, v]
            total = powers.sum(1)  # [M]
            tile_log_z = largest[:, 0] + total.log()
            tile_mean = powers.mul_(logits).sum(1) / total
            log_z = log_z.logaddexp(tile_log_z)
            mean = mean.lerp(tile_mean, (tile_log_z - log_z).exp())
        entropies = log_z - mean  # [M]
        ctx.save_for_backward(hidden, weight, targets, log_z, entropies)
        ctx.temperature = temperature
        return chosen - log_z, entropies

    @staticmethod
    def backward(ctx, grad_logprobs, grad_entropies):
        """Gradients [M] of both results -> those of hidden [M, H] and weight [V, H]."""
        hidden, weight, targets, log_z, entropies = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden, dtype=log_z.dtype)
        grad_weight = torch.empty_like(weight)
        for words, logits, inside, columns in LinearLogProbs.tiles(
            hidden, weight, targets, ctx.temperature
        ):
            logp = logits.sub_(log_z[:, None])  # [M, v]
            grad = grad_logprobs[:, None] + grad_entropies[:, None] * (logp + entropies[:, None])
            grad = grad.mul_(logp.exp_()).neg_()
            grad.scatter_add_(1, columns, torch.where(inside, grad_logprobs, 0)[:, None])
            grad = grad.div_(ctx.temperature).to(hidden.dtype)  # [M, v]
            grad_hidden += product(grad, weight[words].to(hidden.dtype))
            grad_weight[words] = product(grad.T, hidden)
        return grad_hidden.to(hidden.dtype), grad_weight, None, None


def scores(
    policy,
    samples: list[Sample],
    ids: torch.Tensor,
    scored: torch.Tensor,
    temperature: float,
):
    """Log-probs and entropies, [M] each, of the samples' ids [n, S] where scored [n, S]."""
    in_bf16 = computes_in_bf16(policy)
    with forward_passes(ids.device, in_bf16, policy.is_gradient_checkpointing):
        inputs = model_inputs(policy, samples, ids)
        hidden = policy.base_model(**inputs, use_cache=False).last_hidden_state  # [n, S, H]
    hidden = hidden[:, :-1][scored[:, 1:]]  # [M, H]: the state before a token predicts it
    weight = policy.get_output_embeddings().weight  # [V, H]
    if in_bf16:
        hidden = hidden.bfloat16()
    return LinearLogProbs.apply(hidden, weight, ids[scored], temperature)


def completion_logprobs(policy, samples: list[Sample], temperature: float, width: int):
    """Log-probs and entropies, in nats, of the policy's own completion tokens: [n, width] each.

    Both are 0 at a tool's tokens and beyond a row's end. `width` is at least the longest
    completion. The policy is left in training mode where gradient checkpointing needs it, and in
    evaluation mode otherwise.
    """
    device = policy.device
    # transformers computes activations again in the backward pass in training mode only
    policy.train(policy.is_gradient_checkpointing and torch.is_grad_enabled())
    # Padding stands on the right and needs no mask, since causal attention only looks left.
    rows = [torch.tensor(s.prompt_ids + s.completion_ids, device=device) for s in samples]
    ids = pad_sequence(rows, batch_first=True)  # [n, S]
    own = [own_tokens(s) for s in samples]
    in_ids = [pad(row, (len(s.prompt_ids), 0)) for row, s in zip(own, samples, strict=True)]
    scored = pad_sequence(in_ids, batch_first=True).to(device) > 0  # [n, S]
    # A sharded policy has `scores` as a method of its own, which gathers its weights.
    score = getattr(policy, "scores", functools.partial(scores, policy))
    logprobs, entropies = score(samples, ids, scored, temperature)  # [M] each
    mask = pad_sequence(own, batch_first=True).to(device) > 0  # [n, T]
    mask = pad(mask, (0, width - mask.shape[1]))  # [n, width]
    zeros = torch.zeros(mask.shape, dtype=logprobs.dtype, device=device)
    return zeros.masked_scatter(mask, logprobs), zeros.masked_scatter(mask, entropies)


def split_by_tokens(samples: list[Sample], rows, token_budget: int) -> list[list[int]]:
    """Split the indices `rows`, sorted by length, into parts of at most `token_budget` tokens.

    Padding counts, and a part holds at least one row.
    """
    lengths = {int(i): len(samples[i].prompt_ids) + len(samples[i].completion_ids) for i in rows}
    parts = []
    for i in sorted(lengths, key=lengths.get):
        if not parts or (len(parts[-1]) + 1) * lengths[i] > token_budget:
            parts.append([])
        parts[-1].append(i)
    return parts


def split_further(parts: list[list[int]], count: int) -> list[list[int]]:
    """Halve the largest parts until there are `count`, or until every part is one row."""
    parts = [[*part] for part in parts]
    for _ in range(len(parts), min(count, sum(map(len, parts)))):
        largest = max(parts, key=len)
        parts.append([largest.pop() for _ in range(len(largest) // 2)])
    return parts


def microbatches(samples: list[Sample], rows, token_budget: int) -> list[list[int]]:
    """Split the indices `rows`, sorted by length, into parts of at most `token_budget` tokens.

    There are as many parts on every rank, because the ranks gather sharded weights together: all
    of them have to call this.
    """
    parts = split_by_tokens(samples, rows, token_budget)
    return split_further(parts, global_max(len(parts)))


@torch.no_grad()
def frozen_logprobs(policy, samples: list[Sample], config, rows=None):
    """Log-probs and entropies [N, T] without gradient; 0 outside of `rows`, all by default.

    All ranks call it together.
    """
    longest = max(len(sample.completion_ids) for sample in samples)
    logprobs, entropies = torch.zeros(2, len(samples), longest, device=policy.device)
    rows = range(len(samples)) if rows is None else rows
    parts = microbatches(samples, rows, config.microbatch_tokens)
    # A rank with fewer rows than others have parts goes on with its last one: all of them gather
    # sharded weights, once a part.
    parts += parts[-1:] * (global_max(len(parts)) - len(parts))
    for part in parts:
        chosen = [samples[i] for i in part]
        found = completion_logprobs(policy, chosen, config.temperature, longest)
        logprobs[part], entropies[part] = found
    return logprobs, entropies

"""What the five scripts share and a lecture shows: roll out, log-probs, the PPO-clip loss, pass@k.

Shapes are those of one rank: B prompts of a step, G completions of each, N = B * G completions, T
tokens of the longest one, n completions of a minibatch, m of a microbatch. Completion i belongs to
prompt i // G.

Under torchrun each rank holds its share of the prompts, and a sum or mean over the batch is one
over all ranks. Functions that exchange numbers say so: all ranks have to call them together.

Formulas are from A-GRAE (arXiv 2602.05548), two-stage dynamics (arXiv 2510.04028) and FADE (arXiv
2607.01490).
"""

import math
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

import rlvr.context
import rlvr.logprobs
import rlvr.metrics
import rlvr.ranks
import rlvr.rollouts
from rlvr import world
from rlvr.power_law import fit_pass_at_k
from rlvr.records import Problem, Sample
from rlvr.tasks.verifiers import VERIFIERS

import torch

# ------------------------------------------------------------------------------------- roll out


@dataclass
class Batch:
    """The graded completions of a step, with their log-probs by sampler, policy and reference."""

    samples: list[Sample]  # N, group by group
    rewards: torch.Tensor  # [B, G]
    successes: torch.Tensor  # [B, G], 1 where the reward reaches --success_threshold, else 0
    first_successes: torch.Tensor  # [B, G], before dynamic sampling replaced any group
    written: torch.Tensor  # [N, T], 1 on the policy's own completion tokens
    mask: torch.Tensor  # [N, T], 1 on those of them that are trained on
    sampled_logprobs: torch.Tensor  # [N, T], by the sampler
    old_logprobs: torch.Tensor  # [N, T], by the policy before the update; 0 until they are known
    has_old_logprobs: torch.Tensor  # [N], whether they are known
    ref_logprobs: torch.Tensor | None = None  # [N, T], by the reference policy, if there is one
    sampler_gap: float | None = None  # nats by which vLLM's log-probs were off before the rollout

    def minibatches(self, size: int) -> list[torch.Tensor]:
        """The rows of each optimizer update, `size` completions over all ranks."""
        return [*torch.arange(len(self.samples)).split(size // world.WORLD_SIZE)]

    def microbatches(self, rows, token_budget: int) -> list[list[int]]:
        """The rows in parts that one forward pass can hold. All ranks call it together."""
        return rlvr.logprobs.microbatches(self.samples, rows, token_budget)

    def old_policy_logprobs(self, rows, logprobs: torch.Tensor) -> torch.Tensor:
        """Log-probs [m, T] of the policy that wrote the rollout; stored here if not known yet.

        `logprobs` are the current policy's. Before the first update both policies are the same, so
        that the first minibatch takes its old log-probs from its own forward pass.
        """
        if not self.has_old_logprobs[rows].all():
            self.old_logprobs[rows] = logprobs.detach()
            self.has_old_logprobs[rows] = True
        return self.old_logprobs[rows]

    def sampler_correction(self, rows, cap: float) -> torch.Tensor:
        """Truncated importance weights [m, T] for a sampler that is not quite the old policy.

        They correct the probability of each token, up to the cap, but not that of the tokens before
        it. All are 1 for a cap of 0.
        """
        if cap == 0:
            return torch.ones_like(self.mask[rows])
        return (self.old_logprobs[rows] - self.sampled_logprobs[rows]).exp().clamp(max=cap)

    def metrics(self) -> dict[str, float]:
        """What to log of the rollout, once the update is done. All ranks call it together."""
        rollout = rlvr.metrics.rollout_metrics(self.samples, self.rewards.shape[1])
        sampler = rlvr.metrics.sampler_mismatch(
            self.samples, self.old_logprobs, self.sampled_logprobs
        )
        if self.sampler_gap is not None:
            sampler["sampler_gap"] = rlvr.ranks.global_max(self.sampler_gap)
        return rollout | sampler


def make_batch(samples: list[Sample], config, device) -> Batch:
    """A Batch of the samples, which stand group by group."""
    rewards = torch.tensor([sample.reward for sample in samples], device=device)
    successes = torch.tensor([float(sample.success) for sample in samples], device=device)
    successes = successes.view(-1, config.num_generations)
    mask = rlvr.rollouts.completion_mask(samples, device, config.mask_truncated_completions)
    return Batch(
        samples=samples,
        rewards=rewards.view_as(successes),
        successes=successes,
        first_successes=successes,
        written=rlvr.rollouts.completion_mask(samples, device),
        mask=mask,
        sampled_logprobs=rlvr.rollouts.sampled_logprobs(samples, device),
        old_logprobs=torch.zeros_like(mask),
        has_old_logprobs=torch.zeros(len(samples), dtype=torch.bool),
    )


def roll_out(sampler, stream, config) -> Batch:
    """This rank's share of a step: G graded completions for each of its prompts.

    With --dynamic_sampling (DAPO), groups that are all right or all wrong are replaced by groups of
    new prompts: with rewards of 0 and 1, GRPO's advantage is 0 there. After --max_redraws tries
    some such groups may be left. All ranks call it together.
    """
    size = config.num_generations
    wanted = config.prompts_per_step // world.WORLD_SIZE
    sampling = (size, config.temperature, config.max_completion_length)
    sampler.sync()
    first_groups = rlvr.rollouts.sample_groups(sampler, stream.draw(wanted), *sampling)
    groups = first_groups

    def is_mixed(group: list[Sample]) -> bool:
        return 0 < sum(sample.success for sample in group) < size

    redraws = config.max_redraws if config.dynamic_sampling else 0
    for _ in range(redraws):
        mixed = [group for group in groups if is_mixed(group)]
        # Each rank draws as many groups as the rank that lacks most, so that they stay in step.
        missing = rlvr.ranks.global_max(wanted - len(mixed))
        if missing == 0:
            break
        drawn = rlvr.rollouts.sample_groups(sampler, stream.draw(missing), *sampling)
        drawn.sort(key=is_mixed, reverse=True)  # where a rank needs fewer, it keeps the mixed ones
        groups = (mixed + drawn)[:wanted]
    sampler.sleep()
    samples = [sample for group in groups for sample in group]
    batch = make_batch(samples, config, sampler.policy.device)
    first_successes = [[float(sample.success) for sample in group] for group in first_groups]
    batch.first_successes = torch.tensor(first_successes, device=batch.successes.device)
    batch.sampler_gap = sampler.gap
    return batch


# ------------------------------------------------------------------------------------ log-probs


def token_logprobs(policy, samples: list[Sample], rows, temperature: float = 1.0):
    """log pi(o_t | q, o_<t) and the entropy of pi there, in nats: [m, T] each, for samples[rows].

    They are those of the softmax at the sampling temperature, and 0 at a tool's tokens and beyond a
    row's end. T is the longest completion of all samples. They equal rlvr.logprobs.plain_logprobs,
    in less memory.
    """
    longest = max(len(sample.completion_ids) for sample in samples)
    chosen = [samples[i] for i in rows]
    return rlvr.logprobs.completion_logprobs(policy, chosen, temperature, longest)


def compute_old_logprobs(batch: Batch, policy, config, rows=None) -> torch.Tensor:
    """Fill in batch.old_logprobs [N, T] of `rows`, all by default, where they are not known yet.

    Call it before the policy changes, on all ranks together.
    """
    rows = range(len(batch.samples)) if rows is None else rows
    unknown = [i for i in rows if not batch.has_old_logprobs[i]]
    logprobs, _ = rlvr.logprobs.frozen_logprobs(policy, batch.samples, config, unknown)
    batch.old_logprobs[unknown] = logprobs[unknown]
    batch.has_old_logprobs[unknown] = True
    return batch.old_logprobs


def compute_old_and_ref_logprobs(batch: Batch, policy, reference, config) -> None:
    """Fill in the old and the reference log-probs before the update. All ranks call it together.

    The first minibatch is left out: its own forward pass gives its old log-probs for free. What is
    known already is not computed again.
    """
    after_the_first = range(config.minibatch_size // world.WORLD_SIZE, len(batch.samples))
    compute_old_logprobs(batch, policy, config, after_the_first)
    if reference is not None:
        batch.ref_logprobs, _ = rlvr.logprobs.frozen_logprobs(reference, batch.samples, config)


# --------------------------------------------------------------------------------------- the loss


def token_weights(
    mask: torch.Tensor, aggregation: str, max_completion_length: int | None = None
) -> torch.Tensor:
    """What each token of a minibatch counts in the loss, which then is a plain sum over tokens.

    mask [n, T] -> [n, T], 0 off the mask. By aggregation:
    "sequence": 1 / (n |o_i|), GRPO (A-GRAE Eq. 1).
    "token": 1 / sum_i |o_i|, DAPO.
    "constant": 1 / (n max_completion_length), Dr.GRPO (FADE 11.1).
    Here n and the sum are those of the minibatch on all ranks, which call it together: so
    microbatches and ranks just add up. ValueError for another aggregation.
    """
    sequences, tokens = rlvr.ranks.global_sum(len(mask), mask.sum())
    if aggregation == "sequence":
        return mask / (sequences * mask.sum(1, keepdim=True).clamp(min=1))
    if aggregation == "token":
        return mask / max(tokens, 1)
    if aggregation == "constant" and max_completion_length:
        return mask / (sequences * max_completion_length)
    raise ValueError(f"{aggregation=} with {max_completion_length=}")


def minibatch_weights(mask: torch.Tensor, minibatch: torch.Tensor, config) -> torch.Tensor:
    """token_weights of a minibatch's rows, in the shape of the whole mask [N, T]; 0 elsewhere."""
    weights = torch.zeros_like(mask)
    weights[minibatch] = token_weights(
        mask[minibatch], config.aggregation, config.max_completion_length
    )
    return weights


def importance_ratio(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, mask: torch.Tensor, level: str = "token"
) -> torch.Tensor:
    """rho = pi / pi_old, [m, T] from [m, T] each (A-GRAE Eq. 1); 1 off the mask at token level.

    level "token": one ratio per token. "sequence" (GSPO): one per response, the geometric mean of
    its tokens' ratios. ValueError for another level.
    """
    log_ratio = torch.where(mask > 0, logprobs - old_logprobs, 0)
    if level == "sequence":
        lengths = mask.sum(1, keepdim=True).clamp(min=1)  # [m, 1]
        log_ratio = (log_ratio.sum(1, keepdim=True) / lengths).expand_as(mask)
    elif level != "token":
        raise ValueError(f"importance sampling level {level!r} is neither token nor sequence")
    return log_ratio.exp()


class Clipped(NamedTuple):
    """The clipped objective, and which tokens are clipped: [m, T] each."""

    objective: torch.Tensor  # to be maximised
    low: torch.Tensor  # bool: the ratio is below the range, and A < 0
    high: torch.Tensor  # bool: the ratio is above the range, and A > 0


def ppo_clip(
    ratio: torch.Tensor,
    advantages: torch.Tensor,
    epsilon: float = 0.2,
    epsilon_high: float | None = None,
) -> Clipped:
    """min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) of each token (A-GRAE Eq. 1).

    ratio [m, T]; advantages [m, 1], or one per token, [m, T]. epsilon_high is epsilon by default.
    """
    low = 1 - epsilon
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    objective = torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)
    return Clipped(objective, (ratio < low) & (advantages < 0), (ratio > high) & (advantages > 0))


def kl_penalty(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(policy || reference) per token, in nats, any shape (A-GRAE Eq. 2)."""
    log_ratio = ref_logprobs - logprobs
    return log_ratio.exp() - log_ratio - 1


# -------------------------------------------------------------------------------- what is logged


class Timer:
    """Seconds of the parts of a step, as `seconds_<part>`."""

    def __init__(self):
        self.seconds = {}
        self.last = time.perf_counter()

    def lap(self, part: str) -> None:
        """A part of the step has ended: keep its seconds, and start the next part."""
        now = time.perf_counter()
        self.seconds[f"seconds_{part}"] = now - self.last
        self.last = now


class UpdateMetrics:
    """Sums over the microbatches and updates of a step."""

    def __init__(self):
        self.loss = 0.0  # of the current update so far, on this rank
        self.total_loss = 0.0  # of all updates
        self.tokens = 0.0
        self.sums = {}  # metric -> sum over the tokens
        self.grad_norms = []  # one per update

    def add(self, loss: torch.Tensor, mask: torch.Tensor, **per_token: torch.Tensor) -> None:
        """Count a microbatch: its loss, its mask [m, T], and metrics [m, T] to take means of."""
        self.loss = self.loss + loss.detach()
        self.total_loss = self.total_loss + loss.detach()
        self.tokens = self.tokens + mask.sum()
        for name, values in per_token.items():
            self.sums[name] = self.sums.get(name, 0.0) + (mask * values.detach()).sum()

    def end(self, grad_norm: float) -> None:
        """Count an update, with the norm of its gradient."""
        self.grad_norms.append(grad_norm)
        self.loss = 0.0

    def metrics(self) -> dict[str, float]:
        """Means over updates, and over tokens. All ranks call it together."""
        loss, tokens, *sums = rlvr.ranks.global_sum(
            self.total_loss, self.tokens, *self.sums.values()
        )
        updates = len(self.grad_norms)
        means = {name: value / max(tokens, 1) for name, value in zip(self.sums, sums, strict=True)}
        return {"loss": loss / updates, **means, "grad_norm": sum(self.grad_norms) / updates}


# ------------------------------------------------------------------------------------ evaluation


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Chance that at least one of k samples, drawn without replacement, is correct (A-GRAE Eq. 37).

    ValueError unless 0 <= num_correct <= num_samples and 1 <= k <= num_samples.
    """
    if not (0 <= num_correct <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"pass@{k} of {num_samples} samples with {num_correct} correct")
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def answer_entropy(answers: list[str]) -> float:
    """Entropy, in nats, of the frequencies of a problem's distinct answers (two-stage, C.5)."""
    shares = [count / len(answers) for count in Counter(answers).values()]
    return sum(-share * math.log(share) for share in shares)


@torch.no_grad()
def evaluate(sampler, sets: dict[str, list[Problem]], config) -> dict[str, float]:
    """evaluate_set of each set. All ranks call it together.

    All sets share one random stream, which starts from the seed in every evaluation. Training has
    another one. Where there are several sets, their names stand before the metrics'.
    """
    found = {}
    sampler.sync()
    with torch.random.fork_rng(sampler.devices):
        torch.manual_seed(config.seed + 1000 * world.RANK)
        for name, problems in sets.items():
            prefix = f"{name}/" if len(sets) > 1 else ""
            for key, value in evaluate_set(sampler, problems, config).items():
                found[prefix + key] = value
    sampler.sleep()
    return found


def evaluate_set(sampler, problems: list[Problem], config) -> dict[str, float]:
    """pass@k for k = 1, 2, 4 ... n = eval_samples, its fit, accuracies, entropies, lengths."""
    n = config.eval_samples
    mine = problems[world.RANK :: world.WORLD_SIZE]
    room = rlvr.context.room_after(sampler.policy, sampler.tokenizer, problems)
    length = min(config.eval_max_completion_length or config.max_completion_length, room)
    groups = rlvr.rollouts.sample_groups(
        sampler, mine, n, config.eval_temperature, length, config.top_p
    )
    greedy = rlvr.rollouts.sample_groups(sampler, mine, 1, 0.0, length)

    samples = [sample for group in groups for sample in group]
    at_eval_temperature = replace(config, temperature=config.eval_temperature)
    _, entropies = rlvr.logprobs.frozen_logprobs(sampler.policy, samples, at_eval_temperature)
    tokens = sum(sample.own_length for sample in samples)
    entropy, tokens = rlvr.ranks.global_sum(entropies.sum(), tokens)

    rows = []  # of each problem
    for problem, group, (greedy_sample,) in zip(mine, groups, greedy, strict=True):
        num_correct = sum(sample.success for sample in group)
        answers = [VERIFIERS[problem.verifier].extract(sample.text) for sample in group]
        greedy_success = float(greedy_sample.success)
        rows.append((num_correct, greedy_success, answer_entropy(answers), problem.level))
    rows = rlvr.ranks.gather(rows)
    corrects, greedy_successes, answer_entropies, levels = zip(*rows, strict=True)

    ks = sorted({n, *(2**i for i in range(n.bit_length()))})
    pass_at = {f"pass@{k}": statistics.mean(pass_at_k(n, c, k) for c in corrects) for k in ks}
    by_level = {}
    for level in sorted(set(levels)) if len(set(levels)) > 1 else ():
        rates = [c / n for c, other in zip(corrects, levels, strict=True) if other == level]
        by_level[f"pass@1 {level}"] = statistics.mean(rates)
    return {
        **pass_at,
        f"avg@{n}": pass_at["pass@1"],
        "greedy": statistics.mean(greedy_successes),
        "answer_entropy": statistics.mean(answer_entropies),
        "token_entropy": entropy / tokens,
        **fit_pass_at_k(ks, [*pass_at.values()]),
        **by_level,
        **rlvr.metrics.rollout_metrics(samples, n),
    }

"""What the five scripts share and a lecture shows: roll out, log-probs, the PPO-clip loss, pass@k.

Shapes are those of one rank: B prompts of a step, G completions of each, N = B * G completions, T
tokens of the longest one, n completions of a minibatch, m of a microbatch. Completion i belongs to
prompt i // G.

Under torchrun each rank holds its share of the prompts, and a sum or mean over the batch is one
over all ranks. Functions that exchange numbers say so: all ranks have to call them together.

Left out on purpose: how completions are drawn and graded (rlvr.rollout), and how log-probs are
computed without a matrix of [tokens, vocabulary] (rlvr.policy). Both do what a textbook says.

Formulas are from A-GRAE (arXiv 2602.05548), two-stage dynamics (arXiv 2510.04028) and FADE (arXiv
2607.01490).
"""

import math
import statistics
from collections import Counter
from dataclasses import dataclass, replace

import rlvr
from rlvr import world
from rlvr.errors import UserError
from rlvr.tasks import Problem, Sample, own_tokens, padded

import torch

# ------------------------------------------------------------------------------------- roll out


@dataclass
class Batch:
    """The graded completions of a step, with their log-probs by sampler, policy and reference."""

    samples: list[Sample]  # N, group by group
    rewards: torch.Tensor  # [B, G]
    successes: torch.Tensor  # [B, G], 1 where the reward reaches --success_threshold, else 0
    first_successes: torch.Tensor  # [B, G], before dynamic sampling replaced any group
    written: torch.Tensor  # [N, T], 1 on the policy's own completion tokens, and 0 on a tool's
    mask: torch.Tensor  # [N, T], written, but 0 on completions that are left out of the loss
    sampled_logprobs: torch.Tensor  # [N, T], by the sampler
    old_logprobs: torch.Tensor  # [N, T], by the policy before the update; 0 until they are known
    has_old_logprobs: torch.Tensor  # [N], whether they are known
    sampler: object  # whose completions they are
    ref_logprobs: torch.Tensor | None = None  # [N, T], by the reference policy, if there is one

    def texts(self) -> list[str]:
        """The completions as text, with the <think> that a chat template may have opened."""
        return rlvr.tasks.texts_with_opened_thoughts(self.samples, self.sampler.tokenizer)

    def mean_logprobs(self) -> torch.Tensor:
        """The mean log-prob of each completion's own tokens, by the sampler, in nats: [B, G]."""
        lengths = self.written.sum(1).clamp(min=1)  # [N]
        return ((self.written * self.sampled_logprobs).sum(1) / lengths).view_as(self.rewards)

    def minibatches(self, size: int) -> list[torch.Tensor]:
        """The rows of each optimizer update, `size` completions over all ranks."""
        return [*torch.arange(len(self.samples)).split(size // world.WORLD_SIZE)]

    def microbatches(self, rows, token_budget: int, group_size=None) -> list[list[int]]:
        """The rows in parts that one forward pass can hold. All ranks call it together.

        With group_size, so many neighbours stay together, though it may be more than a pass holds.
        """
        return rlvr.policy.microbatches(self.samples, rows, token_budget, group_size)

    def old_policy_logprobs(self, rows, logprobs: torch.Tensor) -> torch.Tensor:
        """Log-probs [m, T] of the policy that wrote the rollout; stored here if not known yet.

        `logprobs` are the current policy's. Before the first update both policies are the same, so
        that the first minibatch takes its old log-probs from its own forward pass.
        """
        if not self.has_old_logprobs[rows].all():
            self.old_logprobs[rows] = logprobs.detach()
            self.has_old_logprobs[rows] = True
        return self.old_logprobs[rows]

    def reference_logprobs(self, rows) -> torch.Tensor | None:
        """Log-probs [m, T] of the reference policy; None where there is none."""
        return None if self.ref_logprobs is None else self.ref_logprobs[rows]

    def sampler_correction(self, rows) -> torch.Tensor:
        """Truncated importance weights [m, T] for a sampler that is not quite the old policy.

        They correct the probability of each token, up to the cap, but not that of the tokens before
        it. All are 1 where the sampler computes in the policy's own fp32.
        """
        if self.sampler.cap == 0:
            return torch.ones_like(self.mask[rows])
        log_weights = self.old_logprobs[rows] - self.sampled_logprobs[rows]
        return log_weights.exp().clamp(max=self.sampler.cap)

    def metrics(self) -> dict[str, float]:
        """What to log of the rollout, once the update is done. All ranks call it together."""
        found = rlvr.rollout.rollout_metrics(self.samples, self.rewards.shape[1])
        found |= rlvr.rollout.sampler_mismatch(
            self.old_logprobs, self.sampled_logprobs, self.written
        )
        if self.sampler.gap is not None:
            found["sampler_gap"] = rlvr.machine.global_max(self.sampler.gap)
        return found


def make_batch(samples: list[Sample], config, sampler) -> Batch:
    """A Batch of the sampler's completions, which stand group by group."""
    device = sampler.policy.device
    rewards = torch.tensor([sample.reward for sample in samples], device=device)
    successes = torch.tensor([float(sample.success) for sample in samples], device=device)
    successes = successes.view(-1, config.num_generations)
    written = 1.0 * own_tokens(samples).to(device)  # [N, T]
    left_out = [[sample.truncated and config.mask_truncated_completions] for sample in samples]
    mask = written.masked_fill(torch.tensor(left_out, device=device), 0)
    return Batch(
        samples=samples,
        rewards=rewards.view_as(successes),
        successes=successes,
        first_successes=successes,
        written=written,
        mask=mask,
        sampled_logprobs=padded([sample.logprobs for sample in samples]).to(device),
        old_logprobs=torch.zeros_like(mask),
        has_old_logprobs=torch.zeros(len(samples), dtype=torch.bool),
        sampler=sampler,
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
    first_groups = rlvr.rollout.sample_groups(sampler, stream.draw(wanted), *sampling)
    groups = first_groups

    def is_mixed(group: list[Sample]) -> bool:
        return 0 < sum(sample.success for sample in group) < size

    redraws = config.max_redraws if config.dynamic_sampling else 0
    for _ in range(redraws):
        mixed = [group for group in groups if is_mixed(group)]
        # Each rank draws as many groups as the rank that lacks most, so that they stay in step.
        missing = rlvr.machine.global_max(wanted - len(mixed))
        if missing == 0:
            break
        drawn = rlvr.rollout.sample_groups(sampler, stream.draw(missing), *sampling)
        drawn.sort(key=is_mixed, reverse=True)  # where a rank needs fewer, it keeps the mixed ones
        groups = (mixed + drawn)[:wanted]
    sampler.sleep()
    samples = [sample for group in groups for sample in group]
    batch = make_batch(samples, config, sampler)
    first_successes = [[float(sample.success) for sample in group] for group in first_groups]
    batch.first_successes = torch.tensor(first_successes, device=batch.successes.device)
    return batch


@torch.no_grad()
def decode(policy, prompts, stops, max_tokens, temperature=1.0, top_p=1.0, images=()):
    """Write a completion behind each prompt -> its tokens, and the log-prob of each, in nats.

    prompts: token ids for each completion; a prompt that stands there several times is read once.
    A completion ends behind a token of `stops`, which belongs to it, or after max_tokens. The
    log-probs are those of softmax(logits / temperature), before top_p. Temperature 0 takes the
    likeliest token, with the log-probs of temperature 1. UserError where logits are NaN.
    """
    reader = rlvr.policy.Reader(policy, prompts, images)
    tokens, logprobs = [[] for _ in prompts], [[] for _ in prompts]
    rows = [*range(len(prompts))]  # the completion that each row writes; None once it has ended
    for length in range(1, max_tokens + 1):
        logp = (reader.logits() / (temperature or 1.0)).log_softmax(-1)  # [n, V]
        if logp.isnan().any():
            raise UserError("the policy's logits have become NaN: lower --learning_rate")
        if temperature == 0:
            drawn = logp.argmax(-1, keepdim=True)  # [n, 1]
        else:
            drawn = draw(nucleus(logp.exp(), top_p))  # [n, 1]
        chosen = logp.gather(1, drawn)  # [n, 1]

        for i, token, value in zip(range(len(rows)), drawn.tolist(), chosen.tolist(), strict=True):
            if rows[i] is not None:
                tokens[rows[i]] += token
                logprobs[rows[i]] += value
                if token[0] in stops:
                    rows[i] = None
        alive = [i for i, row in enumerate(rows) if row is not None]
        if not alive or length == max_tokens:
            break
        # Rows that have ended are read on, unseen, until they are a quarter of all.
        if len(alive) < 0.75 * len(rows):
            reader.select(alive)
            rows, drawn = [rows[i] for i in alive], drawn[alive]
        reader.read(drawn)
    return tokens, logprobs


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """The likeliest tokens that together reach top_p, the others with probability 0: [n, V]."""
    if top_p >= 1:
        return probabilities
    largest, tokens = probabilities.sort(-1, descending=True)
    before = largest.cumsum(-1) - largest  # [n, V], of all likelier tokens together
    return torch.zeros_like(probabilities).scatter(-1, tokens, largest * (before < top_p))


def draw(probabilities: torch.Tensor) -> torch.Tensor:
    """A token of each row by its probability: [n, V] -> [n, 1].

    It does what multinomial(1) does, by one random number a row; that one draws V of them.
    """
    sums = probabilities.cumsum(-1, dtype=torch.float64)  # [n, V]
    points = sums[:, -1:] * torch.rand(len(sums), 1, dtype=torch.float64, device=sums.device)
    return torch.searchsorted(sums, points, right=True)  # [n, 1], of the first sum above the point


# ------------------------------------------------------------------------------------ log-probs


def token_logprobs(policy, samples: list[Sample], rows, temperature: float = 1.0):
    """log pi(o_t | q, o_<t) and the entropy of pi there, in nats: [m, T] each, for samples[rows].

    As a textbook writes it: logits.div(temperature).log_softmax(-1).gather(-1, tokens), in less
    memory. Both are 0 at a tool's tokens and beyond a row's end. T is the longest completion of all
    samples.
    """
    longest = max(len(sample.completion_ids) for sample in samples)
    chosen = [samples[i] for i in rows]
    return rlvr.policy.completion_logprobs(policy, chosen, temperature, longest)


def compute_old_and_ref_logprobs(batch: Batch, policy, reference, config) -> None:
    """Fill in the old and the reference log-probs before the update. All ranks call it together.

    The first minibatch is left out: its own forward pass gives its old log-probs for free. Those of
    the others are the sampler's, where it computes in the policy's own fp32; else they cost a pass.
    """
    later = range(config.minibatch_size // world.WORLD_SIZE, len(batch.samples))
    logprobs = batch.sampled_logprobs
    if not batch.sampler.is_exact:
        logprobs, _ = rlvr.policy.frozen_logprobs(policy, batch.samples, config, later)
    batch.old_logprobs[later] = logprobs[later]
    batch.has_old_logprobs[later] = True
    if reference is not None:
        batch.ref_logprobs, _ = rlvr.policy.frozen_logprobs(reference, batch.samples, config)


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
    sequences, tokens = rlvr.machine.global_sum(len(mask), mask.sum())
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


def ppo_clip_loss(
    logprobs: torch.Tensor,  # [m, T], of the policy that is trained
    old_logprobs: torch.Tensor,  # [m, T], of the policy that wrote the completions
    advantages: torch.Tensor,  # [m, 1], or one per token, [m, T]
    mask: torch.Tensor,  # [m, T], 1 on completion tokens
    weights: torch.Tensor,  # [m, T], what a token counts, such as 1 / (n |o_i|); 0 off the mask
    epsilon: float = 0.2,
    epsilon_high: float | None = None,  # as epsilon if None
    importance_sampling_level: str = "token",  # "sequence": one ratio per response (GSPO)
    ref_logprobs: torch.Tensor | None = None,  # [m, T], of the reference policy
    beta: float = 0.0,
    entropy: torch.Tensor | float = 0.0,  # [m, T], of the policy that is trained
    entropy_coef: float = 0.0,
):
    """The PPO-clip loss (A-GRAE Eq. 1) -> its value, and kl, clip_low, clip_high [m, T] to log.

        - sum w (min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) - beta KL + coef H)

    rho = pi / pi_old, of a token or as the geometric mean of a response's tokens. KL is the k3
    estimate of KL(pi || pi_ref) in nats (Eq. 2). clip_low and clip_high tell which tokens the clip
    has left without a gradient. ValueError for another level.
    """
    log_ratio = torch.where(mask > 0, logprobs - old_logprobs, 0)  # [m, T]
    if importance_sampling_level == "sequence":
        lengths = mask.sum(1, keepdim=True).clamp(min=1)  # [m, 1]
        log_ratio = (log_ratio.sum(1, keepdim=True) / lengths).expand_as(mask)  # [m, T]
    elif importance_sampling_level != "token":
        raise ValueError(f"{importance_sampling_level=} is neither token nor sequence")
    ratio = log_ratio.exp()  # [m, T]
    low = 1 - epsilon
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    clipped = ratio.clamp(low, high)  # [m, T]
    objective = torch.min(ratio * advantages, clipped * advantages)  # [m, T]
    kl = torch.zeros_like(ratio)
    if beta > 0:
        log_ref_ratio = torch.where(mask > 0, ref_logprobs - logprobs, 0)  # [m, T]
        kl = log_ref_ratio.exp() - log_ref_ratio - 1  # [m, T]
    loss = -(weights * (objective - beta * kl + entropy_coef * entropy)).sum()
    clip_low = (ratio < low) & (advantages < 0)
    clip_high = (ratio > high) & (advantages > 0)
    return loss, {"kl": kl, "clip_low": clip_low, "clip_high": clip_high}


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
    room = rlvr.rollout.room_after(sampler.policy, sampler.tokenizer, problems)
    length = min(config.eval_max_completion_length or config.max_completion_length, room)
    groups = rlvr.rollout.sample_groups(
        sampler, mine, n, config.eval_temperature, length, config.top_p
    )
    greedy = rlvr.rollout.sample_groups(sampler, mine, 1, 0.0, length)

    samples = [sample for group in groups for sample in group]
    # A pass costs half as much as the drawing; eight completions of a problem tell enough.
    some = [sample for group in groups for sample in group[:8]]
    at_eval_temperature = replace(config, temperature=config.eval_temperature)
    _, entropies = rlvr.policy.frozen_logprobs(sampler.policy, some, at_eval_temperature)
    tokens = sum(sample.own_length for sample in some)
    entropy, tokens = rlvr.machine.global_sum(entropies.sum(), tokens)

    rows = []  # of each problem
    for problem, group, (greedy_sample,) in zip(mine, groups, greedy, strict=True):
        num_correct = sum(sample.success for sample in group)
        answers = [rlvr.verify.VERIFIERS[problem.verifier].extract(sample.text) for sample in group]
        greedy_success = float(greedy_sample.success)
        rows.append((num_correct, greedy_success, answer_entropy(answers), problem.level))
    rows = rlvr.machine.gather(rows)
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
        **rlvr.baselines.fit_pass_at_k(ks, [*pass_at.values()]),
        **by_level,
        **rlvr.rollout.rollout_metrics(samples, n),
    }

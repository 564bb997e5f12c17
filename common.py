"""What the five scripts share: rollouts with verified rewards, the PPO-clip loss, and pass@k.

Shapes are those of one rank: B prompts per step, G completions per prompt, N = B * G completions,
and T tokens in the longest completion. A minibatch has n completions and a microbatch has m.
Completion i belongs to prompt i // G.

With torchrun, each rank holds its share of the prompts, and sums and means cover all ranks. The
docstring of a function that all ranks have to call together says so.

How a verifier reads an answer is in rlvr.verify, and how log-probs are computed without a [tokens,
vocabulary] matrix is in rlvr.policy. The formulas are from A-GRAE (arXiv 2602.05548), two-stage
dynamics (arXiv 2510.04028), and FADE (arXiv 2607.01490).
"""

import math
import statistics
import time
from collections import Counter
from dataclasses import dataclass, replace

from rlvr import progress, world
from rlvr.errors import UserError
from rlvr.flags import Config
from rlvr.machine import gather, global_max, global_sum
from rlvr.policy import (
    Reader,
    add_up_gradients,
    completion_logprobs,
    frozen_logprobs,
    microbatches,
    whole,
)
from rlvr.rollout import Sampler, add_noise, is_mixed, mean_and_error, rollout_metrics
from rlvr.rollout.rollouts import room_after, sampler_mismatch
from rlvr.tasks import (
    SUCCESS,
    Problem,
    ProblemStream,
    Sample,
    encode_prompt,
    own_tokens,
    padded,
    texts_with_thoughts,
)
from rlvr.training import Run, check_advantages
from rlvr.verify.pool import grade_all
from rlvr.verify.verifiers import find_verifier

import torch

MAX_REDRAWS = 3  # how often a step draws new groups with --dynamic_sampling

# ------------------------------------------------------------------------------------- roll out


@dataclass
class Batch:
    """The graded completions of one step, and what the update needs to know about each token."""

    samples: list[Sample]  # N, group by group
    rewards: torch.Tensor  # [B, G]
    successes: torch.Tensor  # [B, G], 1 where the reward reaches rlvr.tasks.SUCCESS, else 0
    first_successes: torch.Tensor  # [B, G], before dynamic sampling replaced any group
    completion_mask: torch.Tensor  # [N, T], 1 on the tokens that the policy wrote, 0 on a tool's
    loss_mask: torch.Tensor  # [N, T], 1 on the tokens that the loss counts
    token_weights: torch.Tensor  # [N, T], each token's weight, such as 1 / (n |o_i|) in GRPO
    sampled_logprobs: torch.Tensor  # [N, T], by the sampler
    old_logprobs: torch.Tensor  # [N, T], by the policy before the update
    ref_logprobs: torch.Tensor  # [N, T], by the reference policy; 0 where there is none
    sampler: Sampler
    seconds: float = 0.0  # duration of the rollout

    def texts(self) -> list[str]:
        """Return the completions as text, with the <think> that a chat template may have opened."""
        return texts_with_thoughts(self.samples, self.sampler.tokenizer)

    def mean_logprobs(self) -> torch.Tensor:
        """Return the mean log-prob of each completion's tokens, by the sampler, in nats: [B, G]."""
        lengths = self.completion_mask.sum(1).clamp(min=1)  # [N]
        sums = (self.completion_mask * self.sampled_logprobs).sum(1)  # [N]
        return (sums / lengths).view_as(self.rewards)

    def update_rows(self, config: Config) -> tuple[torch.Tensor, ...]:
        """Return the rows of each optimizer update, on this rank."""
        return torch.arange(len(self.samples)).split(config.minibatch_size // world.WORLD_SIZE)

    def minibatches(self, config: Config, whole_groups: bool = False) -> list[list[list[int]]]:
        """Return the rows of each optimizer update, split into microbatches.

        A microbatch fits into one forward pass. With whole_groups it never splits a prompt's group,
        even if the group is larger than that. --num_iterations repeats the whole list of updates.
        All ranks call it together.
        """
        group_size = config.num_generations if whole_groups else None
        return [
            microbatches(self.samples, rows, config.microbatch_tokens, group_size)
            for rows in self.update_rows(config)
        ] * config.num_iterations

    @property
    def importance(self) -> torch.Tensor:
        """Return the truncated importance weights pi_old / pi_sampler, [N, T].

        They are 1 if the sampler computes exactly what the policy does. In half precision or with
        vLLM, they correct the probability of each token, up to a cap, but not that of the tokens
        before it.
        """
        if self.sampler.cap == 0:
            return torch.ones_like(self.old_logprobs)
        return (self.old_logprobs - self.sampled_logprobs).exp().clamp(max=self.sampler.cap)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the rollout, once the update is done. All ranks call it."""
        metrics = rollout_metrics(self.samples, self.rewards.shape[1])
        metrics |= sampler_mismatch(self.old_logprobs, self.sampled_logprobs, self.completion_mask)
        if self.sampler.gap is not None:
            metrics["sampler_gap"] = global_max(self.sampler.gap)
        return metrics


def roll_out(sampler: Sampler, stream: ProblemStream, config: Config) -> Batch:
    """Return this rank's share of a step: G graded completions for each of its prompts.

    With --dynamic_sampling (DAPO), new prompts replace groups that are all right or all wrong, in
    which GRPO's advantage is 0 for rewards of 0 and 1. After MAX_REDRAWS tries, some of these
    groups may be left. All ranks call it together.
    """
    began = time.perf_counter()
    size, wanted = config.num_generations, config.prompts_per_step // world.WORLD_SIZE
    sampling: dict = dict(temperature=config.temperature, max_tokens=config.max_completion_length)

    def draw_groups(count: int) -> list[list[Sample]]:
        groups = sample_groups(sampler, stream.draw(count), size, **sampling)
        return add_noise(groups, config.reward_noise, stream, config.seed)

    with sampler.synced():
        groups = first_groups = draw_groups(wanted)
        for _ in range(MAX_REDRAWS if config.dynamic_sampling else 0):
            mixed = [group for group in groups if is_mixed(group)]
            # All ranks draw as many groups as the rank that lacks most, so that they stay in step.
            missing = global_max(wanted - len(mixed))
            if missing == 0:
                break
            drawn = draw_groups(missing)
            drawn.sort(key=is_mixed, reverse=True)  # a rank that needs fewer keeps the mixed ones
            groups = (mixed + drawn)[:wanted]
    batch = make_batch([sample for group in groups for sample in group], config, sampler)
    first_successes = [[float(sample.success) for sample in group] for group in first_groups]
    batch.first_successes = batch.successes.new_tensor(first_successes)
    batch.seconds = time.perf_counter() - began
    return batch


def sample_groups(
    sampler: Sampler,
    problems: list[Problem],
    size: int,
    *,
    temperature: float,
    max_tokens: int,
    top_p: float = 1.0,
) -> list[list[Sample]]:
    """Write and grade `size` completions for each problem. Return one group per problem.

    This is the whole way from a problem to its rewards. `sampler.complete` calls `decode` below, or
    vLLM; with --tool it takes several turns. The verifier of Countdown is `verify_countdown` in
    rlvr.verify.answers. All ranks call it together.
    """
    # 1. The prompts as token ids, each of them `size` times.
    encoded = [encode_prompt(sampler.tokenizer, problem.prompt) for problem in problems]
    prompts = [ids for ids in encoded for _ in range(size)]
    repeated = [problem for problem in problems for _ in range(size)]
    # 2. The completions: token ids, and the log-prob of each.
    how: dict = dict(temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    completions = sampler.complete(prompts, **how)
    # 3. The texts that the verifier reads.
    texts = sampler.texts([completion.ids for completion in completions])
    # 4. The verified rewards.
    grades = grade_all([(p.verifier, t, p.gold) for p, t in zip(repeated, texts, strict=True)])
    # 5. The samples, group by group.
    samples = [
        Sample(
            prompt_ids=prompts[i],
            completion_ids=completion.ids,
            text=texts[i],
            reward=reward,
            truncated=not completion.ids or completion.ids[-1] not in sampler.stops,
            logprobs=completion.logprobs,
            status=verdict,
            success=reward >= SUCCESS,
            replies=completion.replies,
            problem=repeated[i],
        )
        for i, (completion, (reward, verdict)) in enumerate(zip(completions, grades, strict=True))
    ]
    return [samples[i : i + size] for i in range(0, len(samples), size)]


def make_batch(samples: list[Sample], config: Config, sampler: Sampler) -> Batch:
    """Return a Batch of the sampler's completions, given group by group."""
    device = sampler.policy.device
    by_group = (-1, config.num_generations)  # to [B, G]
    rewards = torch.tensor([sample.reward for sample in samples], device=device)
    successes = torch.tensor([float(s.success) for s in samples], device=device).view(by_group)
    completion_mask = own_tokens(samples).float().to(device)  # [N, T]
    truncated = torch.tensor([[sample.truncated] for sample in samples], device=device)  # [N, 1]
    left_out = truncated & config.mask_truncated_completions  # [N, 1]
    return Batch(
        samples=samples,
        rewards=rewards.view(by_group),
        successes=successes,
        first_successes=successes,
        completion_mask=completion_mask,
        loss_mask=completion_mask.masked_fill(left_out, 0),
        token_weights=torch.zeros_like(completion_mask),
        sampled_logprobs=padded([s.logprobs for s in samples]).to(device),
        old_logprobs=torch.zeros_like(completion_mask),
        ref_logprobs=torch.zeros_like(completion_mask),
        sampler=sampler,
    )


@torch.no_grad()
def decode(policy, prompts, *, stops, max_tokens, temperature=1.0, top_p=1.0):
    """Write one completion per prompt. Return its token ids and their log-probs, in nats.

    prompts: one list of token ids per completion. A prompt that occurs several times is read once.
    A completion ends after a token of `stops`, which belongs to it, or after max_tokens. The
    log-probs are those of softmax(logits / temperature), before top_p is applied. Temperature 0
    takes the likeliest token, with the log-probs of temperature 1. UserError if logits are NaN.
    """
    reader = Reader(policy, prompts)
    tokens, logprobs = [[] for _ in prompts], [[] for _ in prompts]
    rows: list[int | None] = [*range(len(prompts))]  # whose completion a row writes; None: ended
    for length in range(1, max_tokens + 1):
        logp = (reader.logits() / (temperature or 1.0)).log_softmax(-1)  # [n, V]
        if logp[:, 0].isnan().any():  # one NaN in a row makes them all NaN
            raise UserError("the policy's logits have become NaN: lower --learning_rate")
        if temperature == 0:
            drawn = logp.argmax(-1, keepdim=True)  # [n, 1]
        else:
            drawn = draw(nucleus(logp.exp(), top_p))  # [n, 1]
        chosen = logp.gather(1, drawn)  # [n, 1]

        for i, ([token], [logprob]) in enumerate(zip(drawn.tolist(), chosen.tolist(), strict=True)):
            row = rows[i]
            if row is not None:
                tokens[row].append(token)
                logprobs[row].append(logprob)
                if token in stops:
                    rows[i] = None
        alive = [i for i, row in enumerate(rows) if row is not None]
        if not alive or length == max_tokens:
            break
        # Rows that have ended stay in the batch, unused, until they are a quarter of it.
        if len(alive) < 0.75 * len(rows):
            reader.select(alive)
            rows, drawn = [rows[i] for i in alive], drawn[alive]
        reader.read(drawn)
    return tokens, logprobs


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the likeliest tokens that together reach top_p, and set the others to 0: [n, V]."""
    if top_p >= 1:
        return probabilities
    largest, tokens = probabilities.sort(-1, descending=True)
    before = largest.cumsum(-1) - largest  # [n, V], the sum over all likelier tokens
    return torch.zeros_like(probabilities).scatter(-1, tokens, largest * (before < top_p))


def draw(probabilities: torch.Tensor) -> torch.Tensor:
    """Draw one token per row by its probability: [n, V] -> [n, 1].

    The distribution is that of multinomial(1), which needs V random numbers per row instead of one.
    """
    on_a_mac = probabilities.device.type == "mps"  # which has no float64
    sums = probabilities.cumsum(-1, dtype=torch.float32 if on_a_mac else torch.float64)  # [n, V]
    points = sums[:, -1:] * torch.rand_like(sums[:, -1:])
    return torch.searchsorted(sums, points, right=True)  # [n, 1], the first sum above the point


# ------------------------------------------------------------------------------------ the update


def token_logprobs(policy, samples: list[Sample], rows, temperature: float = 1.0):
    """Return log pi(o_t | q, o_<t) and the entropy of pi there, in nats: [m, T] each.

    They belong to samples[rows], and T is the longest completion of all samples. This is
    logits.div(temperature).log_softmax(-1).gather(-1, tokens) in less memory. Both are 0 on a
    tool's tokens and after the end of a completion.
    """
    longest = max(len(sample.completion_ids) for sample in samples)
    return completion_logprobs(policy, [samples[i] for i in rows], temperature, longest)


def prepare_update(batch: Batch, advantages, policy, reference, config: Config) -> torch.Tensor:
    """Fill in the token weights, the old log-probs and the reference log-probs.

    Return the advantages [B, G] as [N, 1], or [B, G, T] as [N, T].

    The first minibatch gets its old log-probs later, from its own forward pass. The others get the
    sampler's if it computes exactly what the policy does, and otherwise cost a forward pass. All
    ranks call it together. UserError for another shape, a gradient, and what is not finite.
    """
    check_advantages(batch.rewards, batch.loss_mask, advantages)
    progress.replace_line("update")
    updates = batch.update_rows(config)
    for rows in updates:
        batch.token_weights[rows] = token_weights(
            batch.loss_mask[rows], config.aggregation, config.max_completion_length
        )
    later = range(len(updates[0]), len(batch.samples))
    logprobs = batch.sampled_logprobs
    if not batch.sampler.is_exact:
        logprobs, _ = frozen_logprobs(policy, batch.samples, config, later)
    batch.old_logprobs[later] = logprobs[later]
    if reference is not None:
        batch.ref_logprobs, _ = frozen_logprobs(reference, batch.samples, config)
    return advantages.reshape(len(batch.samples), -1)


def token_weights(
    loss_mask: torch.Tensor, aggregation: str, max_completion_length: int | None = None
) -> torch.Tensor:
    """Return each token's weight in the loss of a minibatch, which is then a plain sum.

    loss_mask [n, T] -> [n, T], 0 off the mask. By aggregation:
    "sequence": 1 / (n |o_i|), GRPO (A-GRAE Eq. 1).
    "token": 1 / sum_i |o_i|, DAPO.
    "constant": 1 / (n max_completion_length), Dr.GRPO (FADE 11.1).
    Here n and the sum cover the minibatch on all ranks, so microbatches and ranks simply add up.
    All ranks call it together. ValueError for another aggregation.
    """
    sequences, tokens = global_sum(len(loss_mask), loss_mask.sum())
    if aggregation == "sequence":
        return loss_mask / (sequences * loss_mask.sum(1, keepdim=True).clamp(min=1))
    if aggregation == "token":
        return loss_mask / max(tokens, 1)
    if aggregation == "constant" and max_completion_length:
        return loss_mask / (sequences * max_completion_length)
    raise ValueError(f"{aggregation=} with {max_completion_length=}")


def ppo_clip_loss(
    *,
    logprobs: torch.Tensor,  # [m, T], by the policy that is trained
    old_logprobs: torch.Tensor,  # [m, T], by the policy that wrote the completions
    advantages: torch.Tensor,  # [m, 1], or [m, T] with one per token
    loss_mask: torch.Tensor,  # [m, T], 1 on the tokens that the loss counts
    token_weights: torch.Tensor,  # [m, T], each token's weight; 0 off the mask
    importance: torch.Tensor | float = 1.0,  # [m, T], weight of A's term: pi_old / pi_sampler
    epsilon: float = 0.2,
    epsilon_high: float | None = None,  # equal to epsilon if None
    importance_sampling_level: str = "token",  # "sequence": one ratio per response (GSPO)
    ref_logprobs: torch.Tensor | None = None,  # [m, T], by the reference policy
    beta: float = 0.0,
    entropy: torch.Tensor | float = 0.0,  # [m, T], of the policy that is trained
    entropy_coef: float = 0.0,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the PPO-clip loss (A-GRAE Eq. 1), and kl, clip_low, clip_high [m, T] to log.

        - sum w (i min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) - beta KL + coef H)

    rho = pi / pi_old of each token, or its geometric mean over a response. i is the importance. KL
    is the k3 estimate of KL(pi || pi_ref) in nats (Eq. 2). clip_low and clip_high mark the tokens
    whose ratio is clipped, also off the loss mask; a ratio per response is that of its tokens on
    the mask. ValueError for another level, for advantages of another shape, and for old log-probs
    that have a gradient.
    """
    shapes = [*logprobs.shape[:-1], 1], [*logprobs.shape]
    if [*advantages.shape] not in shapes:
        raise ValueError(f"advantages are {[*advantages.shape]}, not {shapes[0]} or {shapes[1]}")
    if old_logprobs.requires_grad:
        raise ValueError("old_logprobs have a gradient: add .detach() where they are stored")
    log_ratio = torch.where(loss_mask > 0, logprobs - old_logprobs, 0)  # [m, T]
    if importance_sampling_level == "sequence":
        lengths = loss_mask.sum(1, keepdim=True).clamp(min=1)  # [m, 1]
        log_ratio = (log_ratio.sum(1, keepdim=True) / lengths).expand_as(loss_mask)  # [m, T]
    elif importance_sampling_level != "token":
        raise ValueError(f"{importance_sampling_level=} is neither token nor sequence")
    # Where A >= 0, the clip makes large ratios irrelevant; one that overflowed would give NaN.
    log_ratio = torch.where((advantages >= 0) & (log_ratio > 80), 80, log_ratio)
    ratio = log_ratio.exp()  # [m, T]
    low = 1 - epsilon
    high = 1 + (epsilon if epsilon_high is None else epsilon_high)
    clipped = ratio.clamp(low, high)  # [m, T]
    objective = torch.min(ratio * advantages, clipped * advantages)  # [m, T]
    kl = torch.zeros_like(ratio)
    if beta > 0 and ref_logprobs is not None:
        log_ref_ratio = torch.where(loss_mask > 0, ref_logprobs - logprobs, 0)  # [m, T]
        kl = log_ref_ratio.expm1() - log_ref_ratio  # [m, T], exact near 0, unlike exp(x) - x - 1
    loss = -(token_weights * (importance * objective - beta * kl + entropy_coef * entropy)).sum()
    if importance_sampling_level == "token":
        ratio = (logprobs - old_logprobs).exp()  # [m, T], also of tokens that the loss leaves out
    clip_low = (ratio < low) & (advantages < 0)
    clip_high = (ratio > high) & (advantages > 0)
    return loss, {"kl": kl, "clip_low": clip_low, "clip_high": clip_high}


def optimizer_step(policy, optimizer: torch.optim.Optimizer, run: Run) -> None:
    """Add up the gradients of all ranks, clip their norm to --max_grad_norm, and make one update.

    The update is skipped if the gradient is 0, since momentum would still move the policy, or if it
    is NaN or infinite. Afterwards, the gradients are zero. All ranks call it together.
    """
    add_up_gradients(policy)
    norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), run.config.max_grad_norm)
    norm = whole(norm).item()  # of all ranks
    if norm > 0 and math.isfinite(norm):
        optimizer.step()
    run.count_update(norm, optimizer.param_groups[0]["lr"])
    optimizer.zero_grad()


# ------------------------------------------------------------------------------------ evaluation


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the chance that one of k samples, drawn without replacement, is correct.

    A-GRAE Eq. 37. ValueError unless 0 <= num_correct <= num_samples and 1 <= k <= num_samples.
    """
    if not (0 <= num_correct <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"pass@{k} of {num_samples} samples with {num_correct} correct")
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def answer_entropy(answers: list[str]) -> float:
    """Return the entropy of the distinct answers' frequencies, in nats (two-stage, C.5)."""
    shares = [count / len(answers) for count in Counter(answers).values()]
    return sum(-share * math.log(share) for share in shares)


@torch.no_grad()
def evaluate(sampler: Sampler, sets: dict[str, list[Problem]], config: Config) -> list[dict]:
    """Return one row of metrics for each evaluation set. All ranks call it together.

    The sets share a random stream of their own, which starts from the seed in every evaluation. So
    training draws the same numbers however often it is evaluated.
    """
    with sampler.synced(), torch.random.fork_rng(sampler.devices):
        torch.manual_seed(config.seed + 1000 * world.RANK)
        return [
            {"set": name, **evaluate_set(sampler, problems, config)}
            for name, problems in sets.items()
        ]


def evaluate_set(sampler: Sampler, problems: list[Problem], config: Config) -> dict:
    """Return pass@k, accuracies and entropies; under "by_problem", a row for each problem.

    k = 1, 2, 4 ... n = eval_samples. With 200 samples or more, 10 and 100 are added. The key of a
    mean over the problems with _se behind it holds its standard error.
    """
    n = config.eval_samples
    mine = problems[world.RANK :: world.WORLD_SIZE]
    room = room_after(sampler.policy, sampler.tokenizer, problems)
    length = min(config.eval_max_completion_length or config.max_completion_length, room)
    sampling = dict(temperature=config.eval_temperature, top_p=config.top_p)
    groups = sample_groups(sampler, mine, n, max_tokens=length, **sampling)
    greedy = sample_groups(sampler, mine, 1, max_tokens=length, temperature=0.0)

    samples = [sample for group in groups for sample in group]
    # The entropy needs a forward pass, which costs half as much as drawing the completions, so
    # only eight completions per problem are used.
    some = [sample for group in groups for sample in group[:8]]
    at_eval_temperature = replace(config, temperature=config.eval_temperature)
    _, entropies = frozen_logprobs(sampler.policy, some, at_eval_temperature)
    entropy, tokens = global_sum(entropies.sum(), sum(sample.own_length for sample in some))

    rows = []  # one per problem
    for problem, group, (likeliest,) in zip(mine, groups, greedy, strict=True):
        answers = [find_verifier(problem.verifier).extract(sample.text) for sample in group]
        row = dict(id=problem.id, prompt=problem.prompt, level=problem.level, samples=n)
        row["right"] = sum(sample.success for sample in group)
        row |= dict(answer_entropy=answer_entropy(answers), greedy=float(likeliest.success))
        rows.append(row | dict(greedy_text=likeliest.text))
    rows = gather(rows)

    ks_of_fade = (10, 100) if n >= 200 else ()  # each needs 2 k samples (11.2)
    ks = sorted({n, *(2**i for i in range(n.bit_length())), *ks_of_fade})
    metrics = {"problems": len(rows), "samples": n}
    for k in ks:
        metrics |= mean_and_error(f"pass@{k}", [pass_at_k(n, row["right"], k) for row in rows])
    levels = sorted({row["level"] for row in rows})
    for level in levels if len(levels) > 1 else ():
        rates = [row["right"] / n for row in rows if row["level"] == level]
        metrics[f"pass@1 {level or 'no level'}"] = statistics.mean(rates)
    return {
        **metrics,
        **mean_and_error("greedy", [row["greedy"] for row in rows]),
        "answer_entropy": statistics.mean(row["answer_entropy"] for row in rows),
        "token_entropy": entropy / tokens,
        **rollout_metrics(samples, n),
        "by_problem": rows,
    }

"""FADE, focal advantage with dynamic entropy, and the policy weights that the paper compares.

For a prompt whose group has the mean reward r_mean (Eq. 11, Algorithm 2):

    A = (1 - r_mean)^(alpha-1) (r - r_mean), divided by delta where r < r_mean

A controller chooses alpha and delta. alpha >= 1 turns to hard prompts while few are solved;
delta <= 1 strengthens the failures while entropy is below its target.

What differs from grpo.py: the advantages (--weight, section 8), a constant denominator (Eq. 20),
and diagnostics.

Paper: Don't Let Gains FADE (arXiv 2607.01490). Algorithm 2 prints the mean over the batch for
r_mean, while the masses of section 8 need the prompt's own, which is taken. The printed share of
the past in the controller's averages, 0.02, keeps almost nothing, though the text calls them
smoothed: 0.98 does.

    python fade.py                                                      # a laptop
    python fade.py --weight mix_pass_k --weight_args k=4                # any of POLICY_WEIGHTS
    python fade.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 fade.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import rlvr.checkpoints
import rlvr.config
import rlvr.flags
import rlvr.models
import rlvr.ranks
import rlvr.run
import rlvr.samplers
import rlvr.sharding
import rlvr.tasks.datasets
import rlvr.tasks.stream
from rlvr import world
from rlvr.config import ZeroOrMore
from rlvr.errors import UserError

import torch

import common

VARIANTS = {
    "fade": dict(),
    "power": dict(weight="power", weight_args="alpha=2"),
    "asym": dict(weight="asym", weight_args="delta=0.5"),
    "asym-power": dict(weight="asym_power", weight_args="alpha_s=2,alpha_f=1.5"),
    "log-schedule": dict(weight="log_schedule"),
}


@dataclass
class Config(rlvr.config.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "fade"  # named preset of flags; a given flag wins
    aggregation: Literal["sequence", "token", "constant"] = "constant"  # what divides the sum
    weight: str = "fade"  # fade, log_schedule or a key of POLICY_WEIGHTS
    weight_args: str = ""  # of the policy weight, such as k=4 or alpha_s=2,alpha_f=1.5
    target_entropy: ZeroOrMore[float | None] = None  # H*, nats; half of the first step's if None
    ema_beta: ZeroOrMore[float] = 0.02  # share of the past in the controller's averages
    alpha_max: float = 3.0  # upper limit of alpha
    equalize_learning_rate: bool = False  # scale it so that lr max|A| is GRPO's (section 11.3)

    def check(self) -> None:
        super().check()
        try:
            FadeController(1.0, self.target_entropy, self.ema_beta, self.alpha_max)
            choose_weight(self, 1.0, 1.0)(torch.zeros(1, self.num_generations))
        except (KeyError, TypeError, ValueError) as error:
            given = f"--weight {self.weight} --weight_args {self.weight_args!r}"
            raise UserError(f"{given} or the controller: {error}") from error

    def may_change(self, name: str) -> bool:
        schedule_depends = name == "max_steps" and self.weight == "log_schedule"
        return super().may_change(name) and not schedule_depends


def fade_advantage(rewards, alpha, delta):
    """FADE (Eq. 11): (1 - r_mean)^(alpha - 1) (r - r_mean), divided by delta where r < r_mean.

    rewards [B, G] in [0, 1] -> [B, G]. r_mean is each prompt's own, so the masses are
    m_S = p q^alpha and m_F = m_S / delta. For one mean of the whole batch pass rewards.view(1, -1).
    ValueError for delta <= 0.
    """
    if delta <= 0:
        raise ValueError(f"delta must be positive, got {delta}")
    mean = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    failed = torch.where(mean < 1, 1 - mean, 1)  # [B, 1]; r - mean is 0 anyway where none failed
    focal = failed ** (alpha - 1) * (rewards - mean)  # [B, G]
    return torch.where(rewards < mean, focal / delta, focal)


class FadeController:
    """alpha from the solve rate and delta from the entropy (Eq. 11, Algorithm 2).

    ema_beta is the past's share in both averages. target_entropy is half of initial_entropy when
    None. vars() is the state to save. ValueError for limits that cross.
    """

    def __init__(self, initial_entropy, target_entropy=None, ema_beta=0.02, alpha_max=3.0):
        if not 0 <= ema_beta < 1 <= alpha_max:
            raise ValueError(f"need 0 <= ema_beta < 1 <= alpha_max, got {ema_beta}, {alpha_max}")
        self.ema_beta, self.alpha_max = ema_beta, alpha_max
        self.solve_rate, self.entropy = 0.5, float(initial_entropy)
        self.target_entropy = self.entropy / 2 if target_entropy is None else float(target_entropy)

    def step(self, mean_reward, entropy):
        """A batch's mean reward and entropy, in nats -> (alpha, delta)."""
        past, now = self.ema_beta, 1 - self.ema_beta
        self.solve_rate = past * self.solve_rate + now * float(mean_reward)
        self.entropy = past * self.entropy + now * float(entropy)
        alpha = self.alpha_max
        if self.solve_rate > 0:
            alpha = 3 * (1 - self.solve_rate) / (2 * self.solve_rate)
        delta = 1 + self.entropy - self.target_entropy
        return min(max(alpha, 1.0), self.alpha_max), min(max(delta, 0.3), 1.0)


def log_schedule(step, total_steps, start, end, tau):
    """The schedule without feedback, from start to end along log(1 + step / tau) (Eqs. 17-18)."""
    steps = torch.tensor([step / tau, total_steps / tau], dtype=torch.float64)
    now, last = steps.log1p().tolist()
    return start - (start - end) * now / last


def control(config, memory, step, solve_rate, entropy):
    """alpha and delta of this step: the controller's, or those of --weight log_schedule.

    memory["controller"] is the controller's state, which checkpoints keep. It does not exist in the
    first step, whose entropy the default target is half of.
    """
    controller = FadeController(entropy, config.target_entropy, config.ema_beta, config.alpha_max)
    vars(controller).update(memory.get("controller", {}))
    alpha, delta = controller.step(solve_rate, entropy)
    memory["controller"] = vars(controller)
    if config.weight == "log_schedule":
        alpha = log_schedule(step, config.max_steps, 2.0, 1.917, tau=8500)
        delta = log_schedule(step, config.max_steps, 1.0, 0.802, tau=12264)
    return alpha, delta


# The policy weights of section 8: rewards r [B, G] -> advantages [B, G]. Each docstring has the
# gradient masses (m_S, m_F) of successes and failures, or one mass for both; p is the success rate
# of the prompt's group, and q = 1 - p.


def reinforce(rewards):
    """2 r - 1. Masses p and q."""
    return 2 * rewards - 1


def mean(rewards):
    """r - r_mean, as in Dr.GRPO. Mass p q."""
    return rewards - rewards.mean(1, keepdim=True)


def grpo(rewards):
    """(r - r_mean) / std; 0 where all rewards are equal. Mass sqrt(p q)."""
    mixed = rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True)  # [B, 1]
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return torch.where(mixed, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


def skew_r(rewards):
    """(r - r_mean) std. Mass p q sqrt(p q)."""
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return (rewards - rewards.mean(1, keepdim=True)) * std


def maxrl(rewards):
    """r / r_mean - 1; 0 where none succeeded. Mass q."""
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(mean > 0, rewards / mean - 1, 0.0)


def pass_k(rewards):
    """What the best completion is above the second best, for k = G. Masses p q^(G-1) and 0."""
    second = rewards.topk(2, 1).values[:, 1:]  # [B, 1]
    return (rewards - second).clamp(min=0)


def analytic_pass_k(rewards, k, mix=False):
    """Analytic pass@k (8.4.2); with mix, p times it + q times GRPO (8.4.3).

    Mass p sqrt((1 - R) / R), where R is the group's pass@k; mixed, p (p A_S(k) + q A_S(1)).
    ValueError unless 1 <= k <= G.
    """
    G = rewards.shape[1]
    if not 1 <= k <= G:
        raise ValueError(f"k must be between 1 and G = {G}, got {k}")
    p = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    drawn = torch.arange(k, device=rewards.device)  # [k]
    left = ((1 - rewards).sum(dim=1, keepdim=True) - drawn).clamp(min=0)  # [B, k], failures left
    miss = (left / (G - drawn)).prod(dim=1, keepdim=True)  # [B, 1], 1 - pass@k = C(F, k) / C(G, k)
    scale = (miss / (1 - miss)).sqrt() / (1 - p)  # [B, 1]
    if mix:
        scale = p * scale + ((1 - p) / p).sqrt()
    return torch.where((p > 0) & (p < 1), scale * (rewards - p), 0.0)


def asym_power(rewards, alpha_s, alpha_f):
    """q^alpha_s for a success, -p^alpha_f for a failure. Masses p q^alpha_s and p^alpha_f q."""
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(rewards == 1, (1 - p) ** alpha_s, -(p**alpha_f))


def shifted(rewards, delta=0.01):
    """r - r_mean - delta, AsymRL. Masses p (q - delta) and q (p + delta)."""
    return rewards - rewards.mean(1, keepdim=True) - delta


def quantile(rewards, tau):
    """r less the group's tau-quantile. Mass p where p <= tau, and q where p > tau."""
    better = rewards[:, None] > rewards[:, :, None]  # [B, G, G]: is completion j better than i?
    share_better = better.to(rewards).mean(2)  # [B, G]
    candidates = rewards.masked_fill(share_better > tau, torch.inf)  # [B, G]
    return rewards - candidates.amin(1, keepdim=True)


def median(rewards):
    """r less the group's median, MC-GRPO: the quantile at 1/2."""
    return rewards - rewards.median(1, keepdim=True).values


def binary_contrastive(rewards):
    """1 for a success, -p / q for a failure. Mass p."""
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(rewards == 1, rewards, -p / (1 - p))


def power_norm(rewards, gamma):
    """(r - r_mean) / variance^gamma; 0 where all rewards are equal. Mass (p q)^(1 - gamma)."""
    mixed = rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True)  # [B, 1]
    variance = rewards.var(1, correction=0, keepdim=True)  # [B, 1]
    centred = rewards - rewards.mean(1, keepdim=True)
    return torch.where(mixed, centred / variance**gamma, 0.0)


def softmax(rewards, beta):
    """softmax(beta r) - 1 / G. Mass c p q / (1 + c p) / G, where c = e^beta - 1."""
    return (beta * rewards).softmax(1) - 1 / rewards.shape[1]


def logmeanexp(rewards, beta):
    """lme(r) - lme(all but r_i), where lme(r) = log(mean(exp(beta r))) / beta, beta > 0 (8.9).

    Mass of softmax divided by beta, for large G.
    """
    G = rewards.shape[1]
    own = torch.eye(G, dtype=rewards.dtype, device=rewards.device)  # [G, G]
    weight_of_others = ((1 - own) / (G - 1)).log()  # [G, G], -inf on the diagonal
    others = (beta * rewards[:, None] + weight_of_others).logsumexp(2)  # [B, G]
    total = (beta * rewards).logsumexp(1, True) - torch.full_like(rewards, G).log()  # [B, G]
    return (total - others) / beta


def relu(rewards):
    """r - r_mean where that is positive, else 0. Masses p q and 0."""
    return (rewards - rewards.mean(1, keepdim=True)).clamp(min=0)


POLICY_WEIGHTS = {
    "reinforce": reinforce,
    "mean": mean,
    "grpo": grpo,
    "skew_r": skew_r,
    "maxrl": maxrl,
    "pass_k": pass_k,
    "analytic_pass_k": analytic_pass_k,
    "mix_pass_k": partial(analytic_pass_k, mix=True),
    "power": partial(fade_advantage, alpha=2.0, delta=1.0),  # mass p q^alpha
    "asym_power": asym_power,
    "asym": partial(fade_advantage, alpha=1.0, delta=0.5),  # p q, p q / delta; not asymgrpo.py's
    "shifted": shifted,
    "quantile": quantile,
    "median": median,
    "binary_contrastive": binary_contrastive,
    "power_norm": power_norm,
    "softmax": softmax,
    "logmeanexp": logmeanexp,
    "relu": relu,
}


def choose_weight(config, alpha, delta):
    """--weight as a function of the rewards alone; alpha and delta are FADE's."""
    if config.weight in ("fade", "log_schedule"):
        return partial(fade_advantage, alpha=alpha, delta=delta)
    arguments = {}
    for pair in filter(None, config.weight_args.split(",")):
        name, value = pair.split("=")
        arguments[name] = int(value) if value.isdigit() else float(value)
    return partial(POLICY_WEIGHTS[config.weight], **arguments)


def equalized_learning_rate(config, weight):
    """The learning rate whose product with the weight's largest |A| is GRPO's (section 11.3).

    The largest is over the success rates k/G; GRPO's is that of one success or one failure in a
    group, sqrt(G - 1).
    """
    G = config.num_generations
    groups = torch.ones(G + 1, G).tril(-1)  # with 0, 1 ... G successes
    largest = weight(groups).abs().max().item()
    return config.learning_rate * (G - 1) ** 0.5 / largest


def gradient_mass(advantages, rewards):
    """(m_S, m_F), [B] each: sums of A over successes, of -A over failures, by G (section 2.1)."""
    return (advantages * rewards).mean(dim=1), -(advantages * (1 - rewards)).mean(dim=1)


def entropy_drift(advantages, mean_logprobs, entropy):
    """(m_S - m_F) H - Cov(A, log pi) over each prompt's responses (Eq. 7, per unit learning rate).

    advantages [B, G], mean_logprobs [B, G] and H -> [B]. For a softmax policy under natural
    gradients, -Cov alone is the first order, whatever m_S - m_F.
    """
    centred = mean_logprobs - mean_logprobs.mean(dim=1, keepdim=True)  # [B, G]
    return advantages.mean(dim=1) * entropy - (advantages * centred).mean(dim=1)


def fade_metrics(advantages, rewards, mean_logprobs, entropy, memory):
    """What to log of the controller and of the advantages; all ranks call it together.

    [B, G] three times, the entropy, and what checkpoints keep. The drift that is logged was
    predicted for the update before; the change of the entropy is what came of it.
    """
    m_S, m_F, drift = rlvr.ranks.global_mean(
        *gradient_mass(advantages, rewards), entropy_drift(advantages, mean_logprobs, entropy)
    )
    metrics = {
        "solve_rate_ema": memory["controller"]["solve_rate"],
        "entropy_ema": memory["controller"]["entropy"],
        "m_S": m_S,
        "m_F": m_F,
        "entropy_drift": memory.get("drift", 0.0),
        "entropy_change": entropy - memory.get("entropy", entropy),
    }
    memory.update(entropy=entropy, drift=drift)
    return metrics


def rank1_statistics(delta_weight):
    """How close to rank 1 the output head's change [m, n] since before RL is (section 4.2).

    {r1: s1^2 / sum s^2, ratio: s1 / s2, srank: least k with s1 + .. + sk >= 0.99 sum s} of its
    singular values s. Without any change: 0, 1 and 0.
    """
    if not delta_weight.any():
        return {"r1": 0.0, "ratio": 1.0, "srank": 0}
    if min(delta_weight.shape) < 512:
        s = torch.linalg.svdvals(delta_weight)  # [min(m, n)], falling
    else:
        # The singular values of a large head would take a minute. Their squares are the eigenvalues
        # of the Gram matrix, in float64 and added up by blocks of rows.
        m, n = delta_weight.shape
        tall = delta_weight if m >= n else delta_weight.T
        largest = tall.abs().max()
        gram = 0.0
        for rows in tall.split(8192):
            rows = rows.double() / largest
            gram = gram + rows.T @ rows  # [min(m, n), min(m, n)]
        squares = torch.linalg.eigvalsh(gram).flip(0)
        s = squares.clamp(min=1e-16 * squares[0]).sqrt()  # what is below that is rounding
    s = s / s[0]  # so that the squares of a small change do not underflow
    srank = 1 + (s.cumsum(0) < 0.99 * s.sum()).sum().item()
    return {"r1": 1 / s.square().sum().item(), "ratio": (1 / s[1]).item(), "srank": srank}


def head_change(head, first_head):
    """rank1_statistics of the head's change; nothing on a rank that logs nothing.

    All ranks call it together, since the heads [V, H] may be sharded.
    """
    change = rlvr.sharding.whole(head - first_head)
    return rank1_statistics(change) if world.RANK == 0 else {}


def main(config: Config) -> None:
    """Train and evaluate by these flags. All output goes into the run folder."""
    run = rlvr.run.Run(config)
    policy, tokenizer = rlvr.models.load_policy(config, run.device)
    train_problems, eval_sets = rlvr.ranks.from_rank_0(  # the same on all ranks
        rlvr.tasks.datasets.load_problems, config, tokenizer
    )
    reference = rlvr.models.load_reference(policy, config)  # None unless --beta is given
    sampler = rlvr.samplers.make_sampler(policy, tokenizer, config)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True
    )
    stream = rlvr.tasks.stream.ProblemStream(train_problems, config.seed)
    training = rlvr.checkpoints.TrainingState(policy, tokenizer, optimizer, stream)
    memory = training.extra  # what checkpoints keep of the controller and of the step before
    head = policy.get_output_embeddings().weight.detach()  # [V, H], follows the updates
    first_head = head.clone()

    last_step = run.resume(training)  # 0 unless --resume_from_checkpoint is given
    if last_step == 0:
        rank1 = head_change(head, first_head)
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config) | rank1)

    for step in range(last_step + 1, config.max_steps + 1):
        timer = common.Timer()

        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        batch = common.roll_out(sampler, stream, config)
        timer.lap("rollout")

        # 2. Advantages: how much better is a completion than the others of its prompt?
        old_logprobs = common.score_old_policy(batch, policy, config)  # [N, T]
        lengths = batch.mask.sum(1).clamp(min=1)  # [N]
        mean_logprobs = (batch.mask * old_logprobs).sum(1) / lengths  # [N]
        mean_logprobs = mean_logprobs.view_as(batch.rewards)  # [B, G]
        solve_rate, entropy_now = rlvr.ranks.global_mean(batch.rewards, -mean_logprobs)
        alpha, delta = control(config, memory, step, solve_rate, entropy_now)
        weight = choose_weight(config, alpha, delta)
        advantages = weight(batch.rewards)  # [B, G]
        if config.equalize_learning_rate:
            optimizer.param_groups[0]["lr"] = equalized_learning_rate(config, weight)
        diagnostics = {"alpha": alpha, "delta": delta} | fade_metrics(
            advantages, batch.rewards, mean_logprobs, entropy_now, memory
        )
        advantages = advantages.view(-1, 1)  # [N, 1]: all tokens of a completion share it

        # 3. Update: PPO-clip against the policy that wrote the rollout.
        common.score_rollout(batch, policy, reference, config)
        update = common.UpdateMetrics()
        for minibatch in batch.minibatches(config.minibatch_size) * config.num_iterations:
            # Weights are those of the whole minibatch, so that microbatches and ranks just add up.
            weights = common.minibatch_weights(batch.mask, minibatch, config)  # [N, T]
            for rows in batch.microbatches(minibatch, config.microbatch_tokens):
                mask = batch.mask[rows]  # [m, T], as are all below
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )
                old_logprobs = batch.old_policy(rows, logprobs)
                ratio = common.importance_ratio(
                    logprobs, old_logprobs, mask, config.importance_sampling_level
                )
                clipped = common.ppo_clip(
                    ratio, advantages[rows], config.epsilon, config.epsilon_high
                )
                kl = torch.zeros_like(logprobs)
                if reference is not None:
                    kl = common.kl_penalty(logprobs, batch.ref_logprobs[rows])
                objective = clipped.objective - config.beta * kl + config.entropy_coef * entropy
                correction = batch.sampler_correction(rows, sampler.cap)

                loss = -(weights[rows] * correction * objective).sum()
                loss.backward()
                update.add(
                    loss, mask, entropy=entropy, kl=kl, clip_low=clipped.low, clip_high=clipped.high
                )
            update.end(run.optimizer_step(policy, optimizer, update.loss))
        metrics = batch.metrics() | update.metrics() | {"skipped": run.skipped} | diagnostics
        timer.lap("update")

        # 4. Log, evaluate, save.
        run.log("metrics", step, metrics | timer.seconds, batch.samples)
        if run.is_due(step, config.eval_steps):
            rank1 = head_change(head, first_head)
            run.log("eval", step, common.evaluate(sampler, eval_sets, config) | rank1)
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    rlvr.run.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))

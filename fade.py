"""FADE, focal advantage with dynamic entropy (paper 003), and every policy weight that the paper compares.

Of a prompt with mean reward r_mean (Eq. 11, Algorithm 2), with alpha and delta from a controller:

    A = (1 - r_mean)^(alpha-1) (r - r_mean), divided by delta where r < r_mean

alpha >= 1 turns to hard prompts while few are solved; delta <= 1 strengthens the failures while entropy is below its
target. What differs from grpo.py: advantages (--weight, section 8), a constant denominator (Eq. 20), diagnostics.

    python fade.py                                       # a laptop, or one GPU
    python fade.py --variant power                       # also asym, asym-power, log-schedule
    python fade.py --weight mix_pass_k --weight_args k=4 # any of POLICY_WEIGHTS
    torchrun --nproc_per_node 8 fade.py                  # N processes share the batch
"""
import time
from dataclasses import dataclass
from functools import partial
from typing import Literal

import tasks

VARIANTS = {
    "fade": dict(),
    "power": dict(weight="power", weight_args="alpha=2"),
    "asym": dict(weight="asym", weight_args="delta=0.5"),
    "asym-power": dict(weight="asym_power", weight_args="alpha_s=2,alpha_f=1.5"),
    "log-schedule": dict(weight="log_schedule"),
}

@dataclass
class Config(tasks.Config):
    variant: str = "fade"  # named preset of flags, by the keys of VARIANTS; a flag that is also given wins
    aggregation: Literal["sequence", "token", "constant"] = "constant"  # what divides the sum over tokens
    weight: str = "fade"  # fade, log_schedule or a key of POLICY_WEIGHTS
    weight_args: str = ""  # arguments of the policy weight, such as k=4 or alpha_s=2,alpha_f=1.5
    target_entropy: float | None = None  # H*, nats; half of the first step's entropy when not given
    ema_beta: float = 0.02  # share of the past in the controller's averages; 0.98 smooths
    alpha_max: float = 3.0  # upper limit of alpha
    equalize_learning_rate: bool = False  # scale it so that lr max|A| is GRPO's (section 11.3)
    MAY_BE_ZERO = tasks.Config.MAY_BE_ZERO | {"target_entropy", "ema_beta"}

    def __post_init__(self):
        super().__post_init__()
        self.MAY_CHANGE = self.MAY_CHANGE - ({"max_steps"} if self.weight == "log_schedule" else set())

    def policy_weight(self, alpha: float, delta: float):
        """--weight, as a function of the rewards alone."""
        if self.weight in ("fade", "log_schedule"):
            return partial(fade_advantage, alpha=alpha, delta=delta)
        pairs = (pair.split("=") for pair in self.weight_args.split(",") if pair)
        return partial(POLICY_WEIGHTS[self.weight], **{k: int(v) if v.isdigit() else float(v) for k, v in pairs})

if __name__ == "__main__":
    config = tasks.parse_flags(Config, VARIANTS)  # before the imports that take seconds

import torch
import common

def fade_advantage(rewards, alpha, delta):
    """FADE (003 Eq. 11): (1 - r_mean)^(alpha - 1) (r - r_mean), divided by delta where r < r_mean.
    rewards [B, G] in [0, 1] -> [B, G]; r_mean is each prompt's own, so m_S = p q^alpha and m_F = m_S / delta.
    For one mean of the whole batch pass rewards.view(1, -1). ValueError for delta <= 0.
    """
    if delta <= 0:
        raise ValueError(f"delta must be positive, got {delta}")
    mean = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    failed = torch.where(mean < 1, 1 - mean, 1)  # [B, 1]; r - mean is 0 anyway where none failed
    focal = failed ** (alpha - 1) * (rewards - mean)  # [B, G]
    return torch.where(rewards < mean, focal / delta, focal)

class FadeController:
    """alpha from the solve rate and delta from the entropy (003 Eq. 11, Algorithm 2); vars() is its state.
    ema_beta is the past's share in both averages: the printed 0.02 keeps almost none of it although the text says
    smoothed; 0.98 does. target_entropy: half of initial_entropy when None. ValueError for limits that cross.
    """
    def __init__(self, initial_entropy, target_entropy=None, ema_beta=0.02, alpha_max=3.0):
        if not 0 <= ema_beta < 1 <= alpha_max:
            raise ValueError(f"need 0 <= ema_beta < 1 <= alpha_max, got {ema_beta} and {alpha_max}")
        self.ema_beta, self.alpha_max = ema_beta, alpha_max
        self.solve_rate, self.entropy = 0.5, float(initial_entropy)
        self.target_entropy = self.entropy / 2 if target_entropy is None else float(target_entropy)

    def step(self, mean_reward, entropy):
        self.solve_rate = self.ema_beta * self.solve_rate + (1 - self.ema_beta) * float(mean_reward)
        self.entropy = self.ema_beta * self.entropy + (1 - self.ema_beta) * float(entropy)
        alpha = 3 * (1 - self.solve_rate) / (2 * self.solve_rate) if self.solve_rate > 0 else self.alpha_max
        delta = 1 + self.entropy - self.target_entropy
        return min(max(alpha, 1.0), self.alpha_max), min(max(delta, 0.3), 1.0)

def log_schedule(step, total_steps, start, end, tau):
    """The schedule without feedback, from start to end along log(1 + step / tau) (003 Eqs. 17-18)."""
    now, last = torch.tensor([step / tau, total_steps / tau], dtype=torch.float64).log1p().tolist()
    return start - (start - end) * now / last

def analytic_pass_k(rewards, k, mix=False):
    """Analytic pass@k (003 8.4.2) or, with mix, p times it + q GRPO (8.4.3). ValueError unless 1 <= k <= G."""
    G = rewards.shape[1]
    if not 1 <= k <= G:
        raise ValueError(f"k must be between 1 and G = {G}, got {k}")
    p, drawn = rewards.mean(dim=1, keepdim=True), torch.arange(k, device=rewards.device)  # [B, 1], [k]
    left = ((1 - rewards).sum(dim=1, keepdim=True) - drawn).clamp(min=0)  # [B, k], failures left to draw
    miss = (left / (G - drawn)).prod(dim=1, keepdim=True)  # [B, 1], 1 - pass@k = C(F, k) / C(G, k)
    scale = (miss / (1 - miss)).sqrt() / (1 - p)  # [B, 1]
    scale = p * scale + ((1 - p) / p).sqrt() if mix else scale
    return torch.where((p > 0) & (p < 1), scale * (rewards - p), 0.0)

def logmeanexp(rewards, beta):
    """lme(r) - lme(all but r_i), where lme = log(mean(exp(beta r))) / beta and beta > 0 (003 8.9)."""
    own = torch.eye(rewards.shape[1], dtype=rewards.dtype, device=rewards.device)  # [G, G]
    others = (beta * rewards[:, None] + ((1 - own) / (len(own) - 1)).log()).logsumexp(2)  # [B, G]
    return ((beta * rewards).logsumexp(1, True) - torch.full_like(rewards, len(own)).log() - others) / beta

POLICY_WEIGHTS = {  # 003 section 8, rewards r [B, G] -> [B, G]; beside each m_S and m_F, or one mass for both
    "reinforce": lambda r: 2 * r - 1,  # p and q
    "mean": lambda r: r - r.mean(1, True),  # p q; Dr.GRPO
    "grpo": lambda r: torch.where(  # sqrt(p q)
        r.amax(1, True) > r.amin(1, True), (r - r.mean(1, True)) / r.std(1, correction=0, keepdim=True), 0.0),
    "skew_r": lambda r: (r - r.mean(1, True)) * r.std(1, correction=0, keepdim=True),  # p q sqrt(p q)
    "maxrl": lambda r: torch.where(r.mean(1, True) > 0, r / r.mean(1, True) - 1, 0.0),  # q
    "pass_k": lambda r: (r - r.topk(2, 1).values[:, 1:]).clamp(min=0),  # p q^(G-1) on average and 0; k = G
    "analytic_pass_k": analytic_pass_k,  # p sqrt((1 - R) / R), R the group's pass@k
    "mix_pass_k": partial(analytic_pass_k, mix=True),  # p (p A_S(k) + q A_S(1))
    "power": partial(fade_advantage, alpha=2.0, delta=1.0),  # p q^alpha
    "asym_power": lambda r, alpha_s, alpha_f: torch.where(  # p q^alpha_s and p^alpha_f q
        r == 1, (1 - r.mean(1, True)) ** alpha_s, -(r.mean(1, True) ** alpha_f)),
    "asym": partial(fade_advantage, alpha=1.0, delta=0.5),  # p q and p q / delta; not paper 002's AsymGRPO
    "shifted": lambda r, delta=0.01: r - r.mean(1, True) - delta,  # p (q - delta) and q (p + delta); AsymRL
    "quantile": lambda r, tau: r - r.masked_fill(  # p where p <= tau and q where p > tau
        (r[:, None] > r[:, :, None]).to(r).mean(2) > tau, torch.inf).amin(1, True),
    "median": lambda r: r - r.median(1, True).values,  # quantile at 1/2; MC-GRPO
    "binary_contrastive": lambda r: torch.where(r == 1, r, -r.mean(1, True) / (1 - r.mean(1, True))),  # p
    "power_norm": lambda r, gamma: torch.where(  # (p q)^(1 - gamma)
        r.amax(1, True) > r.amin(1, True), (r - r.mean(1, True)) / r.var(1, correction=0, keepdim=True) ** gamma, 0.0),
    "softmax": lambda r, beta: (beta * r).softmax(1) - 1 / r.shape[1],  # c p q / (1 + c p) / G, c = e^beta-1
    "logmeanexp": logmeanexp,  # softmax's / beta for large G
    "relu": lambda r: (r - r.mean(1, True)).clamp(min=0),  # p q and 0
}

def gradient_mass(advantages, rewards):
    """(m_S, m_F), each [B]: the sums of A over successes and of -A over failures, by G (003 section 2.1)."""
    return (advantages * rewards).mean(dim=1), -(advantages * (1 - rewards)).mean(dim=1)

def entropy_drift(advantages, mean_logprobs, entropy):
    """(m_S - m_F) H - Cov(A, log pi) over each prompt's responses: [B, G], [B, G] and H -> [B] (003 Eq. 7, per unit
    learning rate; for a softmax policy under natural gradients -Cov alone is the first order, whatever m_S - m_F)."""
    centred = mean_logprobs - mean_logprobs.mean(dim=1, keepdim=True)  # [B, G]
    return advantages.mean(dim=1) * entropy - (advantages * centred).mean(dim=1)

def rank1_statistics(delta_weight):
    """{r1: s1^2 / sum s^2, ratio: s1 / s2, srank: least k with s1 + .. + sk >= 0.99 sum s} of the singular values of
    the output head's change [m, n] since before RL (003 section 4.2). Without any change: 0, 1 and 0."""
    s = torch.linalg.svdvals(delta_weight)  # [min(m, n)], falling
    if s[0] == 0:
        return {"r1": 0.0, "ratio": 1.0, "srank": 0}
    s = s / s[0]  # so that the squares of a small change do not underflow
    srank = 1 + (s.cumsum(0) < 0.99 * s.sum()).sum().item()
    return {"r1": 1 / s.square().sum().item(), "ratio": (1 / s[1]).item(), "srank": srank}

def main(config: Config):
    try:
        FadeController(1.0, config.target_entropy, config.ema_beta, config.alpha_max)
        config.policy_weight(1.0, 1.0)(torch.zeros(1, config.num_generations))
    except (KeyError, TypeError, ValueError) as error:
        common.fail(f"--weight {config.weight} --weight_args {config.weight_args!r} or the controller: {error}")
    run = common.Run(config)
    policy, tokenizer = common.load_policy(config, run.device)
    train_problems, eval_sets = common.load_problems(config, tokenizer)
    reference = common.load_reference(policy, config)
    sampler = common.make_sampler(policy, tokenizer, config)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True)
    stream = common.ProblemStream(train_problems, config.seed)
    head = partial(common.whole, policy.get_output_embeddings().weight.detach())  # [V, H], follows the updates
    first_head, state = head().clone(), {}
    last_step = run.begin(policy, tokenizer, optimizer, stream, state)
    if last_step == 0:
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config) | rank1_statistics(head() - first_head))

    for step in range(last_step + 1, config.max_steps + 1):
        # Roll out: G completions for each of B prompts, N = B * G rows (each rank holds its share of them).
        started = time.perf_counter()
        samples = common.roll_out_step(sampler, stream, config)
        rewards = torch.tensor([s.reward for s in samples], device=run.device)
        rewards = rewards.view(-1, config.num_generations)  # [B, G]
        mask = common.completion_mask(samples, run.device, config.mask_truncated_completions)  # [N, T]
        sampled = common.sampled_logprobs(samples, run.device)  # [N, T]
        rolled_out = time.perf_counter()

        # Advantages: one number a completion, which all its tokens share.
        old_logprobs, _ = common.frozen_logprobs(policy, samples, config)  # [N, T]
        mean_logprobs = ((mask * old_logprobs).sum(1) / mask.sum(1).clamp(min=1)).view_as(rewards)  # [B, G]
        solve_rate, entropy_now = common.global_mean(rewards, -mean_logprobs)  # what Algorithm 2 watches
        controller = FadeController(entropy_now, config.target_entropy, config.ema_beta, config.alpha_max)
        vars(controller).update(state.get("controller", {}))
        alpha, delta = controller.step(solve_rate, entropy_now)
        if config.weight == "log_schedule":
            alpha = log_schedule(step, config.max_steps, 2.0, 1.917, tau=8500)
            delta = log_schedule(step, config.max_steps, 1.0, 0.802, tau=12264)
        weight = config.policy_weight(alpha, delta)
        advantages = weight(rewards)  # [B, G]
        if config.equalize_learning_rate:  # GRPO's largest |A|, of one success or one failure in a group: sqrt(G - 1)
            most = weight(torch.ones(config.num_generations + 1, config.num_generations).tril(-1)).abs().max()
            optimizer.param_groups[0]["lr"] = config.learning_rate * (config.num_generations - 1) ** 0.5 / most.item()
        masses = *gradient_mass(advantages, rewards), entropy_drift(advantages, mean_logprobs, entropy_now)
        m_S, m_F, drift = common.global_mean(*masses)
        diagnostics = {  # drift and change of entropy are those of the update before
            "alpha": alpha, "delta": delta, "solve_rate_ema": controller.solve_rate, "entropy_ema": controller.entropy,
            "m_S": m_S, "m_F": m_F, "entropy_drift": state.get("drift", 0.0),
            "entropy_change": entropy_now - state.get("entropy", entropy_now)}
        state.update(controller=vars(controller), entropy=entropy_now, drift=drift)
        advantages = advantages.flatten()  # [N]

        # Update: PPO-clip against the policy that wrote the rollout, one optimizer step a minibatch.
        minibatches = torch.arange(len(samples)).split(config.minibatch_size // common.WORLD_SIZE)
        ref_logprobs = common.frozen_logprobs(reference, samples, config)[0] if config.beta else None  # [N, T]
        sums, grad_norms = torch.zeros(6, device=run.device), []  # sums: loss, tokens, entropy, KL, clipped low, high
        for minibatch in minibatches * config.num_iterations:
            weights = torch.zeros_like(mask)  # [N, T]
            weights[minibatch] = common.token_weights(mask[minibatch], config.aggregation, config.max_completion_length)
            for rows in common.microbatches(samples, minibatch, config.microbatch_tokens):
                logprobs, entropy = common.token_logprobs(policy, samples, rows, config.temperature)  # [n, T]
                if sampler.cap:  # truncated importance sampling, where vLLM's probabilities are not the trainer's
                    ratio = (old_logprobs[rows] - sampled[rows]).exp()  # [n, T]
                    weights[rows] *= ratio.clamp(max=sampler.cap)  # without a bias but for what the cap cuts off
                loss, clipped_low, clipped_high = common.ppo_clip_loss(
                    logprobs, old_logprobs[rows], advantages[rows], mask[rows], config.epsilon, config.epsilon_high,
                    config.importance_sampling_level, weights=weights[rows])
                kl = common.kl_penalty(logprobs, ref_logprobs[rows]) if config.beta else torch.zeros_like(logprobs)
                loss = loss + (weights[rows] * (config.beta * kl - config.entropy_coef * entropy)).sum()
                loss.backward()
                sums += torch.stack([loss.detach(), mask[rows].sum(), (mask[rows] * entropy.detach()).sum(),
                                     (mask[rows] * kl.detach()).sum(), clipped_low, clipped_high])
            grad_norms.append(run.optimizer_step(policy, optimizer, sums[0]))

        # Log, evaluate, save: all numbers are over all ranks and all updates of the step.
        loss, tokens, *totals = common.global_sum(*sums)
        entropy, kl, clip_low, clip_high = (total / max(tokens, 1) for total in totals)
        run.log("metrics", step, {
            **common.rollout_metrics(samples, config.num_generations),
            **common.sampler_mismatch(samples, old_logprobs, sampled), "loss": loss / len(grad_norms),
            "entropy": entropy, "kl": kl, "clip_low": clip_low, "clip_high": clip_high,
            "grad_norm": sum(grad_norms) / len(grad_norms), "skipped": run.skipped, **diagnostics,
            "seconds_rollout": rolled_out - started, "seconds_update": time.perf_counter() - rolled_out}, samples)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log("eval", step, common.evaluate(sampler, eval_sets, config) | rank1_statistics(head() - first_head))
        if run.end_step(step):
            break
    run.finish()

if __name__ == "__main__":
    common.launch(main, config)

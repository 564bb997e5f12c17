"""FADE, focal advantage with dynamic entropy.

Let r_mean be the mean reward of a prompt's group (Eq. 11):

    A = (1 - r_mean)^(alpha-1) (r - r_mean), divided by delta where r < r_mean

A controller chooses alpha by the solve rate, which is the success rate of the batch, and delta by
the entropy. alpha >= 1 favours hard prompts while few are solved. delta <= 1 strengthens failures
while the entropy is below its target.

What differs from grpo.py: the advantages, a constant denominator (11.1), and diagnostics. The other
policy weights that the paper compares (section 8), and its schedule without a controller (Eqs. 17
and 18), are in studies/baselines/baselines.py.

Paper: Don't Let Gains FADE (Decugis, O'Brien, Bach, Synnaeve, Cohen; arXiv 2607.01490). In
Algorithm 2 and section 10, r_mean is the mean over the batch (--batch_mean). But the gradient
masses that section 10 prints need each prompt's own mean, which this file uses.

    python fade.py                                                      # a laptop
    python fade.py --variant alpha-only                                 # an ablation (Figure 9)
    python fade.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 fade.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Literal

import rlvr.flags  # a copy of this file elsewhere needs: pip install -e path/to/the/clone
from rlvr.errors import UserError
from rlvr.flags import flag, make_config, parse_flags
from rlvr.machine import global_mean
from rlvr.policy import load_policies, whole
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import common

VARIANTS = {
    "fade": dict(),
    # The ablations of Figure 9. With H* = 0, 1 + H - H* is never below 1, so that delta stays 1.
    "alpha-only": dict(target_entropy=0.0),
    "delta-only": dict(alpha_max=1.0),
    "entropy-only": dict(alpha_from_entropy=True),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: str = flag("fade", "named preset of flags", choices=VARIANTS)
    aggregation: Literal["sequence", "token", "constant"] = flag("constant", "what divides the sum")
    target_entropy: float | None = flag(None, "H*, nats; half of the first step's if None", ge=0)
    ema_beta: float = flag(0.02, "share of the past in the controller's averages", ge=0, le=0.999)
    alpha_max: float = flag(3.0, "upper limit of alpha", ge=1)
    alpha_from_entropy: bool = flag(False, "alpha also follows the entropy, not the solve rate")
    batch_mean: bool = flag(False, "r_mean is that of the batch, as Algorithms 1 and 2 print it")
    equalize_learning_rate: bool = flag(False, "give learning rate x max|A| that of GRPO (11.3)")

    def check(self) -> None:
        super().check()
        if self.alpha_from_entropy and self.target_entropy == 0:
            raise UserError("--alpha_from_entropy needs a --target_entropy above 0")


def configure(**flags) -> Config:
    """Return checked flags, for a notebook: main(configure(max_steps=20)). UserError if wrong."""
    return make_config(Config, VARIANTS, flags)


def fade_advantage(rewards, alpha, delta, mean=None):
    """Return (1 - r_mean)^(alpha - 1) (r - r_mean), divided by delta where r < r_mean (Eq. 11).

    rewards [B, G] between 0 and 1 -> [B, G]. r_mean is the mean of each prompt's own group, or
    the float `mean` for all prompts, such as the mean of the batch in Algorithm 2. With
    rewards of 0 and 1, p = r_mean and q = 1 - p, the gradient masses (2.1) are m_S = p q^alpha for
    successes and m_F = m_S / delta for failures. ValueError if delta <= 0.
    """
    if delta <= 0:
        raise ValueError(f"delta must be positive, got {delta}")
    rewards = rewards + 0.0  # so that integers and booleans have a mean
    if mean is None:
        mean = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    else:
        mean = torch.full_like(rewards[:, :1], mean)
    failure_rate = torch.where(mean < 1, 1 - mean, 1)  # [B, 1]; 1 if none failed, as r - mean is 0
    focal = failure_rate ** (alpha - 1) * (rewards - mean)  # [B, G]
    return torch.where(rewards < mean, focal / delta, focal)


class FadeController:
    """Choose alpha by the solve rate s and delta by the entropy H (Eq. 11, Algorithm 2).

        alpha = 3 (1 - s) / (2 s), between 1 and alpha_max: 1 if s is 0.6 or more
        delta = 1 + H - H*, between 0.3 and 1: below 1 if H, in nats, is below its target H*

    s and H are moving averages, in which the past has the share ema_beta. s starts at 0.5. H starts
    at initial_entropy, or at the first step's entropy if that is None. H* is target_entropy, or
    half of H's start if that is None.

    With alpha_from_entropy (Figure 9, without a formula), alpha falls linearly from alpha_max at
    twice the target entropy to 1 at the target.

    ValueError unless 0 <= ema_beta < 1 <= alpha_max. A checkpoint keeps the attributes.
    """

    def __init__(
        self,
        initial_entropy=None,
        target_entropy=None,
        ema_beta=0.02,
        alpha_max=3.0,
        alpha_from_entropy=False,
    ):
        if not 0 <= ema_beta < 1 <= alpha_max:
            raise ValueError(f"need 0 <= ema_beta < 1 <= alpha_max, got {ema_beta}, {alpha_max}")
        self.ema_beta, self.alpha_max = ema_beta, alpha_max
        self.alpha_from_entropy = alpha_from_entropy
        self.solve_rate = 0.5
        self.entropy, self.target_entropy = initial_entropy, target_entropy

    def step(self, mean_reward, entropy):
        """Return (alpha, delta) for a batch's mean reward and its mean of -log pi in nats."""
        if self.entropy is None:
            self.entropy = float(entropy)
        if self.target_entropy is None:
            self.target_entropy = self.entropy / 2
        past, now = self.ema_beta, 1 - self.ema_beta
        self.solve_rate = past * self.solve_rate + now * float(mean_reward)
        self.entropy = past * self.entropy + now * float(entropy)
        alpha = self.alpha_max
        if self.alpha_from_entropy and self.target_entropy > 0:
            alpha = 1 + (self.alpha_max - 1) * (self.entropy / self.target_entropy - 1)
        elif self.solve_rate > 0:
            alpha = 3 * (1 - self.solve_rate) / (2 * self.solve_rate)
        delta = 1 + self.entropy - self.target_entropy
        return min(max(alpha, 1.0), self.alpha_max), min(max(delta, 0.3), 1.0)


def learning_rate_factor(config: Config) -> float:
    """Return the factor that makes learning rate x largest |A| equal GRPO's (11.3), or 1 if off.

    It is fixed for the whole run, with the alpha of the controller's initial solve rate of 0.5. The
    largest |A| is taken over groups with 0, 1 ... G successes. For GRPO it is sqrt(G - 1).
    """
    if not config.equalize_learning_rate:
        return 1.0
    # 3 (1 - s) / (2 s) is 1.5 at the initial s of 0.5.
    first_alpha = config.alpha_max if config.alpha_from_entropy else min(1.5, config.alpha_max)
    G = config.num_generations
    groups = torch.ones(G + 1, G).tril(-1)  # with 0, 1 ... G successes
    mean = 0.5 if config.batch_mean else None
    largest = fade_advantage(groups, first_alpha, 1.0, mean).abs().max().item()
    return (G - 1) ** 0.5 / largest


def gradient_mass(advantages, rewards):
    """Return (m_S, m_F), [B] each: a group's means of A r and -A (1 - r), with rewards r (2.1)."""
    return (advantages * rewards).mean(dim=1), -(advantages * (1 - rewards)).mean(dim=1)


def entropy_drift(advantages, mean_logprobs, entropy):
    """Return (m_S - m_F) H - Cov(A, log pi) of each prompt (Eq. 7, per unit learning rate).

    advantages [B, G], mean_logprobs [B, G] and H -> [B]. This is Eq. 7 as printed. For a softmax
    policy under natural gradients, the first-order change would be -Cov alone.
    """
    centred = mean_logprobs - mean_logprobs.mean(dim=1, keepdim=True)  # [B, G]
    mass_difference = advantages.mean(dim=1)  # [B], m_S - m_F
    return mass_difference * entropy - (advantages * centred).mean(dim=1)


def rank1_statistics(delta_weight):
    """Return how close to rank 1 the output head's change [m, n] by RL is (section 4.2).

    {r1: s1^2 / sum s^2, ratio: s1 / s2, srank: least k with s1 + .. + sk >= 0.99 sum s} of its
    singular values s. Without any change: 0, 1 and 0.
    """
    if not delta_weight.any():
        return {"r1": 0.0, "ratio": 1.0, "srank": 0}
    if delta_weight.device.type == "mps":  # a Mac's GPU has no float64
        delta_weight = delta_weight.cpu()
    # The singular values of a large head would take a minute. Their squares are the eigenvalues of
    # the Gram matrix, in float64 and added up by blocks of rows.
    m, n = delta_weight.shape
    tall = delta_weight if m >= n else delta_weight.T
    largest = tall.abs().max()  # without it, the squares of a small change would underflow
    gram = 0.0
    for block in tall.split(8192):
        block = block.double() / largest
        gram = gram + block.T @ block
    squares = torch.linalg.eigvalsh(gram).flip(0)
    squares = squares.clamp(min=1e-16 * squares[0])  # what is below that is rounding
    s = (squares / squares[0]).sqrt()  # falling
    srank = 1 + (s.cumsum(0) < 0.99 * s.sum()).sum().item()
    return {"r1": 1 / s.square().sum().item(), "ratio": (1 / s[1]).item(), "srank": srank}


def head_change(policy, first_head: torch.Tensor) -> dict[str, float]:
    """Return rank1_statistics of the output head's change since it was first_head [V, H].

    All ranks call it together, since the heads may be sharded.
    """
    change = whole(policy.get_output_embeddings().weight.detach() - first_head)  # [V, H]
    return rank1_statistics(change)


def compute_advantages(batch: common.Batch, config: Config, controller: FadeController):
    """Return the advantages of a batch [B, G], and the metrics to log. All ranks call it."""
    # The entropy is the sampler's mean -log pi (Algorithm 2), not a sum over the vocabulary.
    # The controller sees the mean reward before dynamic sampling replaced any group.
    mean_logprobs = batch.mean_logprobs()  # [B, G]
    first_mean, batch_mean, entropy = global_mean(
        batch.first_successes, batch.successes, -mean_logprobs
    )
    alpha, delta = controller.step(first_mean, entropy)
    mean = batch_mean if config.batch_mean else None  # None: the mean of each prompt's own group
    # The paper's policy weights are functions of success (2.1), so no partial reward counts here.
    advantages = fade_advantage(batch.successes, alpha, delta, mean)  # [B, G]
    m_S, m_F, drift = global_mean(
        *gradient_mass(advantages, batch.successes),
        entropy_drift(advantages, mean_logprobs, entropy),
    )
    return advantages, {
        "alpha": alpha,
        "delta": delta,
        "solve_rate_ema": controller.solve_rate,
        "entropy_ema": controller.entropy,
        "m_S": m_S,
        "m_F": m_F,
        "entropy_drift": drift,
    }


def main(config: Config, compute_advantages=compute_advantages):
    """Train and evaluate with these flags. Return the run folder and the rows of its logs.

    In a notebook, compute_advantages may be a function of your own with the same arguments.
    """
    run = Run(config)  # connects the ranks, sets the seed, makes the run folder
    policy, reference, tokenizer = load_policies(config)  # no reference unless --beta is above 0
    stream, eval_sets = open_problems(config, tokenizer)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    optimizer, scheduler = make_optimizer(policy, config, learning_rate_factor(config))
    controller = FadeController(
        None, config.target_entropy, config.ema_beta, config.alpha_max, config.alpha_from_entropy
    )
    first_head = policy.get_output_embeddings().weight.detach().clone()  # [V, H]
    last_step = run.start(policy, tokenizer, optimizer, scheduler, stream, controller)
    if last_step == 0:
        evaluation = common.evaluate(sampler, eval_sets, config)
        run.log_evaluation(0, evaluation, head_change(policy, first_head))

    for step in range(last_step + 1, config.max_steps + 1):
        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        batch = common.roll_out(sampler, stream, config)

        # 2. Advantages: how much better is a completion than the others of its prompt?
        advantages, diagnostics = compute_advantages(batch, config, controller)

        # 3. Update: PPO-clip against the policy that wrote the completions.
        advantages = common.prepare_update(batch, advantages, policy, reference, config)  # [N, 1]
        for update, minibatch in enumerate(batch.minibatches(config)):
            for rows in minibatch:  # the m rows of a microbatch, which fit into one forward pass
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )  # [m, T] each
                if update == 0:  # before the first update, these are log pi_old: no pass for it
                    batch.old_logprobs[rows] = logprobs.detach()
                loss, stats = common.ppo_clip_loss(
                    logprobs=logprobs,
                    old_logprobs=batch.old_logprobs[rows],
                    advantages=advantages[rows],
                    loss_mask=batch.loss_mask[rows],
                    token_weights=batch.token_weights[rows],
                    importance=batch.importance[rows],  # 1 unless the sampler computes otherwise
                    epsilon=config.epsilon,
                    epsilon_high=config.epsilon_high,
                    importance_sampling_level=config.importance_sampling_level,
                    ref_logprobs=batch.ref_logprobs[rows],
                    beta=config.beta,
                    entropy=entropy,
                    entropy_coef=config.entropy_coef,
                )
                loss.backward()  # gradients accumulate over the microbatches
                run.add(loss, batch, rows, logprobs=logprobs, entropy=entropy, **stats)
            common.optimizer_step(policy, optimizer, run)  # also sets the gradients to zero
            scheduler.step()

        # 4. Log, evaluate, save.
        run.log_step(step, batch, advantages, diagnostics)
        if step % config.eval_steps == 0 or step == config.max_steps:
            evaluation = common.evaluate(sampler, eval_sets, config)
            run.log_evaluation(step, evaluation, head_change(policy, first_head))
        if run.end_step(step):  # True after Ctrl-C or SIGTERM
            break
    return run.finish()


if __name__ == "__main__":
    launch(main, parse_flags(Config, VARIANTS))

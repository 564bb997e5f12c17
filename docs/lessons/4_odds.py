import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import math

    import lesson

    import marimo as mo
    import numpy as np
    import torch

    import common
    from asymgrpo import asymgrpo_advantage, global_kappa
    from grpo import grpo_advantage


@app.cell(hide_code=True)
def _():
    pos = mo.ui.slider(0, 1.5, step=0.1, value=0.9, label="beta_pos: successes", show_value=True)
    neg = mo.ui.slider(0, 1.5, step=0.1, value=0.4, label="beta_neg: failures", show_value=True)
    two_of_eight = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    root = grpo_advantage(two_of_eight)[0, 0]
    mo.md(rf"""
    # 4. The odds, and AsymGRPO

    Two of eight completions are right. Under GRPO, each of these two is worth {root:.4f}. The odds
    against a success are $(1-p)/p$, here 6 : 2, and their square root is {math.sqrt(6 / 2):.4f}.
    This is no coincidence: with the success rate $p$, the advantage of GRPO is

    $$\left(\frac{{1-p}}{{p}}\right)^{{1/2}} \text{{ for a success,}}$$
    $$-\left(\frac{{p}}{{1-p}}\right)^{{1/2}} \text{{ for a failure.}}$$

    Gu and others, *Asymmetric Advantage Modulation Calibrates Entropy Dynamics in RLVR* (AsymGRPO,
    2026, arXiv 2604.04894), ask why both exponents are 1/2. They give each outcome its own
    strength: `asymgrpo_advantage(rewards, beta_pos, beta_neg)` in `asymgrpo.py`. With (0, 0) a
    success is worth 1 and a failure -1, however hard the problem is. (0.5, 0.5) is GRPO.

    {pos}

    {neg}
    """)
    return neg, pos


@app.cell
def _():
    begun = lesson.start(prompts_per_step=64)
    batch = common.roll_out(begun.sampler, begun.stream, begun.config)  # 64 groups of 16
    kappa = global_kappa(batch.successes, batch.mean_logprobs())
    return batch, kappa


@app.cell(hide_code=True)
def _(batch, neg, pos):
    figure, (curves, shares) = lesson.two_panels(
        "advantage of a success, and of a failure", "where the advantage goes"
    )
    mixed = torch.ones(15, 16).tril()  # groups of 16 with 1 to 15 successes, at their start
    betas = (pos.value, neg.value)
    for worth, line in ((grpo_advantage(mixed), ":"), (asymgrpo_advantage(mixed, *betas), "-")):
        curves.plot(mixed.mean(1), worth[:, 0], line, color=lesson.BLUE)
        curves.plot(mixed.mean(1), worth[:, -1], line, color=lesson.RED)
    curves.set(xlabel="success rate of the prompt (dotted: GRPO)", ylim=(-9, 9))

    rates = batch.successes.mean(1)  # [B]
    bins = np.linspace(0, 1, 6)
    grpo, own = grpo_advantage(batch.successes), asymgrpo_advantage(batch.successes, *betas)
    share = {}  # of the sum of all |A|
    for i, (name, advantages) in enumerate([("GRPO", grpo), ("AsymGRPO", own)]):
        size = advantages.abs().sum(1) / advantages.abs().sum()  # [B]
        total, _ = np.histogram(rates, bins, weights=size)
        shares.bar(bins[:-1] + 0.06 + 0.08 * i, total, 0.08, color=lesson.COLORS[i], label=name)
        share[name] = size[rates < 0.5].sum()
    shares.set(xlabel="success rate of the prompt", ylabel="share of all |A|", xticks=bins)
    shares.legend()
    figure
    return rates, share


@app.cell(hide_code=True)
def _(kappa, neg, pos, rates, share):
    drift = (pos.value - neg.value) * kappa
    way = "rises" if drift > 0 else "falls" if drift < 0 else "does not change"
    mo.md(rf"""
    The right panel shows 64 Countdown problems, each with 16 completions by a tiny policy. The
    policy solves {(rates < 0.5).float().mean():.0%} of them less than half of the time. GRPO gives
    these {share["GRPO"]:.0%} of all advantage, and your strengths {share["AsymGRPO"]:.0%}.

    **Which way does the entropy go?** By Proposition 1 of the paper, a step with small strengths
    adds $(\beta_{{pos}} - \beta_{{neg}}) \, \kappa$, times the learning rate, to the entropy,
    compared with the strengths (0, 0). $\kappa$ says whether the policy is surer of its successes
    on easy problems, and of its failures on hard ones. In this batch it is {kappa:.4f}. So with
    your strengths, the entropy {way}, compared with (0, 0).

    ## Exercise

    Which beta_pos makes a success at the success rate `p` worth `worth`? There is no answer at 1/2,
    where the odds are 1. You can use `math.log`.
    """)
    return


@app.function
def strength(p, worth):
    """The beta_pos that makes a success worth `worth` in a group with success rate p."""
    beta_pos = 0.5  # replace this with your formula
    return beta_pos


@app.cell(hide_code=True)
def _():
    for successes, wanted in ((1, 2.0), (2, 3.0), (6, 0.5)):
        beta, flaw = lesson.as_float64(strength(successes / 8, wanted), ())
        if flaw is None and beta < 0:
            flaw = f"strength({successes / 8}, {wanted}) is {beta:.3f}, but must be at least 0."
        if flaw is None:
            group = (torch.arange(8) < successes).double()[None]
            found = asymgrpo_advantage(group, beta_pos=beta)[0, 0]
            if abs(found - wanted) > 1e-4:
                flaw = (
                    f"strength({successes / 8}, {wanted}) is {beta:.3f}. With this beta_pos, "
                    f"asymgrpo_advantage makes a success worth {found:.3f} there."
                )
        if flaw:
            break
    lesson.verdict(
        flaw,
        "The worth is a power of the odds, so its logarithm is beta_pos times that of the odds. On "
        "a logarithmic scale every strength is a straight line, and GRPO has slope 1/2.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        beta_pos = math.log(worth) / math.log((1 - p) / p)
        """,
        "On which prompts does AsymGRPO, with its strengths of 0.9 and 0.4, make a success worth "
        "more than GRPO does, and on which a failure?",
        r"A success has $((1-p)/p)^{0.9}$ instead of $((1-p)/p)^{0.5}$. This is more where the "
        r"odds are above 1, so on hard prompts, $p < 1/2$. A failure has $(p/(1-p))^{0.4}$, which "
        r"is more than $(p/(1-p))^{0.5}$ where $p/(1-p)$ is below 1: on hard prompts, too.",
    )
    return


if __name__ == "__main__":
    app.run()

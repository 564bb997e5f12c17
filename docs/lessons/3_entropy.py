import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import lesson

    import marimo as mo
    import torch

    import common
    from grpo import grpo_advantage, negative_only


@app.cell(hide_code=True)
def _():
    mo.md("""
    # 3. Entropy and pass@k under GRPO and GRPO-N

    *pass@k* is the probability that at least one of $k$ answers is right. pass@1 says how good a
    policy is on average, and pass@16 what it can find at all. *Entropy* says how undecided it is:
    at 0 nats it always writes the same text.

    A policy that learns from its own samples becomes surer of its preferences. pass@1 rises, the
    entropy falls, and pass@k for a large $k$ may fall, too. Yao and others, *The Debate on RLVR
    Reasoning Capability Boundary* (two-stage dynamics, 2025, arXiv 2510.04028), propose **GRPO-N**:
    it keeps the negative advantages, and sets the others to 0.

    The next cells train a tiny policy twice, for a few steps. It takes about half a minute.
    """)
    return


@app.function
def grpo_n_advantage(rewards):
    """The advantage of GRPO where it is negative, else 0; [B, G] -> [B, G]."""
    return negative_only(grpo_advantage(rewards))


@app.function
def train(advantage, steps):
    """Train by an advantage, [B, G] -> [B, G], and evaluate on held-out problems."""
    begun = lesson.start(
        prompts_per_step=16, minibatch_size=128, learning_rate=3e-4, eval_problems=32
    )
    with mo.status.spinner(title=f"{steps} steps of training, and an evaluation"):
        for _ in range(steps):
            batch = common.roll_out(begun.sampler, begun.stream, begun.config)
            lesson.update(begun, batch, advantage(batch.rewards))
        return common.evaluate(begun.sampler, {"Countdown": begun.held_out}, begun.config)[0]


@app.cell
def _():
    results = {
        "before": train(grpo_advantage, 0),
        "GRPO": train(grpo_advantage, 8),
        "GRPO-N": train(grpo_n_advantage, 8),
    }
    return (results,)


@app.cell(hide_code=True)
def _(results):
    ks = [1, 2, 4, 8, 16]
    figure, (curves, bars) = lesson.two_panels("held-out pass@k", "entropy per token, in nats")
    for (name, metrics), color in zip(results.items(), lesson.COLORS, strict=True):
        curves.plot(ks, [metrics[f"pass@{k}"] for k in ks], "o-", color=color, label=name)
        bars.bar(name, metrics["token_entropy"], color=color)
    curves.set(xscale="log", xticks=ks, xticklabels=ks, xlabel="k")
    curves.legend()
    before, plain, negative = results.values()
    said = f"""
    pass@1 was {before["pass@1"]:.3f}; it is {plain["pass@1"]:.3f} after GRPO, and
    {negative["pass@1"]:.3f} after GRPO-N. pass@16 went from {before["pass@16"]:.3f} to
    {plain["pass@16"]:.3f} and {negative["pass@16"]:.3f}, and the entropy from
    {before["token_entropy"]:.3f} to {plain["token_entropy"]:.3f} and
    {negative["token_entropy"]:.3f} nats per token. With one seed and few problems, some hundredths
    may be chance. `studies/CLAIMS.md` has many seeds, which do not always agree with the paper.
    """
    mo.vstack([figure, mo.md(said)])
    return


@app.cell(hide_code=True)
def _():
    rate = mo.ui.slider(0.05, 0.95, step=0.05, value=0.25, label="success rate p", show_value=True)
    mo.md(f"""
    ## The same without chance

    Now take a policy with four actions, two right and two wrong. In each pair, one action is four
    times as likely as the other. A group is four draws, so we can compute the mean update over all
    groups. A group's update is the gradient of the mean of $A \\log \\pi$, as in the paper's
    Algorithm 1. Which of the right actions gains more?

    {rate}
    """)
    return (rate,)


@app.function
def mean_update(success_rate, advantage):
    """The mean change of the four actions' logits, [4], over all groups of four draws."""
    kinds = torch.tensor([0.8, 0.2], dtype=torch.float64)
    pi = torch.cat([success_rate * kinds, (1 - success_rate) * kinds])  # [4]
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    groups = torch.cartesian_prod(*[torch.arange(4)] * 4)  # [256, 4]
    chance = pi[groups].prod(1)  # [256]
    logits = pi.log().repeat(256, 1).requires_grad_()  # [256, 4], of one policy for each group
    logprobs = logits.log_softmax(1).gather(1, groups)  # [256, 4], of the four draws
    (advantage(rewards[groups]) * logprobs).mean(1).sum().backward()
    return chance @ logits.grad


@app.cell(hide_code=True)
def _(rate):
    updates = [mean_update(rate.value, fn) for fn in (grpo_advantage, grpo_n_advantage)]
    changes, panels = lesson.two_panels("GRPO: change of the logits", "GRPO-N")
    actions = ["right,\nlikely", "right,\nrare", "wrong,\nlikely", "wrong,\nrare"]
    for panel, update in zip(panels, updates, strict=True):
        lesson.draw_bars(panel, actions, update, torch.tensor([1, 1, 0, 0]))
        panel.set_ylim(-0.4, 0.4)
    rule = f"""
    Under GRPO, the likely right action gains {updates[0][0] / updates[0][1]:.1f} times as much as
    the rare one, and under GRPO-N {updates[1][0] / updates[1][1]:.1f} times. So the rare one falls
    behind, and the entropy falls. The first bar is **{updates[0][0]:.4f}** under GRPO and
    **{updates[1][0]:.4f}** under GRPO-N.
    """
    mo.vstack([changes, mo.md(rule)])
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## Exercise

    GRPO-N keeps nothing of a positive advantage. Keep a share $\\lambda$ of it instead: 0 is
    GRPO-N, and 1 is GRPO. The bars are still those of GRPO times a number. Which one? (First find
    it for $\\lambda = 0$ by trying some success rates. Then note that the bars are the sum of what
    the negative and what the positive advantages do.)
    """)
    return


@app.function
def shrinks_by(success_rate, kept):
    """The mean update divided by that of GRPO, if `kept` is the share of positive advantages."""
    factor = 1.0  # replace this with your formula
    return factor


@app.cell(hide_code=True)
def _():
    for p, kept in ((0.1, 0.0), (0.3, 0.5), (0.8, 0.2), (0.5, 1.0)):
        of_grpo, of_n = (mean_update(p, fn)[0] for fn in (grpo_advantage, grpo_n_advantage))
        wanted = of_n + kept * (of_grpo - of_n)  # the update is linear in the advantages
        factor, flaw = lesson.as_float64(shrinks_by(p, kept), ())
        if flaw is None and abs(factor * of_grpo - wanted) > 1e-4 * of_grpo:
            size = "large" if factor * of_grpo > wanted else "small"
            flaw = (
                f"at the success rate {p} with {kept} of the positive advantages, your factor of "
                f"{factor:.3f} is too {size}: the first bar is {of_grpo:.4f} under GRPO, and "
                f"{wanted:.4f} here."
            )
        if flaw:
            break
    lesson.verdict(
        flaw,
        "On average, GRPO-N is GRPO with each prompt weighted by its success rate, so it learns "
        "little from hard prompts. In a single group they differ more: GRPO-N raises an action "
        "that the group has not drawn, and GRPO leaves it alone.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        # Let K of G draws be right. Their advantages raise a right action, of probability pi, by
        # sqrt(K (G - K)) pi (1 - p) / p, and those of the wrong draws by sqrt(K (G - K)) pi. So
        # the successes have a share of 1 - p in the update, and the failures one of p.
        factor = success_rate + kept * (1 - success_rate)
        """,
        "Two problems have a success rate of 1/2. Training changes it to 1 for one, and to 0.1 for "
        "the other. What happens to the mean pass@1, and to pass@4?",
        "pass@1 rises from 0.5 to 0.55. pass@4 falls from $1 - 0.5^4 = 0.938$ to "
        "$(1 + 1 - 0.9^4) / 2 = 0.672$: the policy is surer, but solves less.",
    )
    return


if __name__ == "__main__":
    app.run()

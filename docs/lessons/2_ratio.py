import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import lesson

    import marimo as mo
    import torch

    import common
    from grpo import grpo_advantage


@app.cell(hide_code=True)
def _():
    ratio = mo.ui.slider(0.4, 1.8, step=0.05, value=1.4, label="ratio rho", show_value=True)
    mo.md(rf"""
    # 2. The ratio, the clip and the denominator

    One rollout pays for several updates. After the first one, the policy $\pi$ is no longer the
    policy $\pi_{{old}}$ that wrote the completions. The *ratio* compares what the two think of a
    token, and the *clip* stops a token that has moved far enough. A token with the advantage $A$
    adds this to the objective:

    $$\min\big(\rho A, \; \text{{clip}}(\rho, 1 - \varepsilon, 1 + \varepsilon) A\big),
    \quad \rho = \frac{{\pi(o_t)}}{{\pi_{{old}}(o_t)}}$$

    This is PPO-clip (Schulman and others 2017, arXiv 1707.06347), which all five scripts use:
    `ppo_clip_loss` in `common.py`. Here $\varepsilon$ is 0.2. Move the slider: when does a success
    lose its gradient, and when does a failure?

    {ratio}
    """)
    return (ratio,)


@app.function
def objective_and_slope(ratios, advantage, epsilon=0.2):
    """The objective of a token at each ratio, and its slope in the token's log-prob: [2, n]."""
    found, one = [], torch.ones(1, 1)
    token = dict(old_logprobs=0 * one, advantages=advantage * one, loss_mask=one, token_weights=one)
    for logprob in ratios.log().view(-1, 1, 1):
        logprob.requires_grad_()
        loss, _ = common.ppo_clip_loss(logprobs=logprob, epsilon=epsilon, **token)
        (slope_of_loss,) = torch.autograd.grad(loss, logprob)
        found.append([-loss.item(), 0 - slope_of_loss.item()])
    return torch.tensor(found).T


@app.cell(hide_code=True)
def _(ratio):
    grid = torch.linspace(0.4, 1.8, 57)
    clip, sides = lesson.two_panels("a success, A = 1", "a failure, A = -1")
    slopes = []
    for panel, advantage, color in zip(sides, (1, -1), lesson.COLORS[1:], strict=True):
        height, steepness = objective_and_slope(torch.tensor([ratio.value]), advantage)
        slopes.append(f"{steepness.item():.2f}")
        panel.axvspan(0.8, 1.2, color=lesson.GREY, alpha=0.15)
        panel.plot(grid, advantage * grid, ":", color=lesson.GREY, label="without a clip")
        panel.plot(grid, objective_and_slope(grid, advantage)[0], color=color, label="objective")
        panel.plot(ratio.value, height, "o", color=color)
        panel.set(xlabel="ratio (grey: the clip range)")
        panel.legend()
    said = f"""
    At this ratio, the slope of the objective in the token's log-probability is **{slopes[0]}** in a
    success and **{slopes[1]}** in a failure. A slope of 0 means that the token is clipped. A
    success is clipped only after it has become likelier, and a failure only after it has become
    less likely. If a token has moved the wrong way, it keeps its gradient, which brings it back.
    """
    mo.vstack([clip, mo.md(said)])
    return


@app.cell
def _():
    begun = lesson.start(
        prompts_per_step=16, num_generations=8, minibatch_size=32, learning_rate=1e-3
    )
    batch = common.roll_out(begun.sampler, begun.stream, begun.config)
    advantages = grpo_advantage(batch.rewards)  # [B, G]
    lesson.update(begun, batch, advantages)
    advantages = advantages.view(-1, 1)  # [N, 1]
    logprobs = common.token_logprobs(begun.policy, batch.samples, range(128))[0].detach()  # [N, T]
    _, marks = common.ppo_clip_loss(
        logprobs=logprobs,
        old_logprobs=batch.old_logprobs,
        advantages=advantages,
        loss_mask=batch.loss_mask,
        token_weights=batch.token_weights,
    )
    clipped = (marks["clip_low"] | marks["clip_high"]) & (batch.loss_mask > 0)  # [N, T]
    return advantages, batch, begun, clipped


@app.cell(hide_code=True)
def _(advantages, batch, begun, clipped):
    share = clipped.sum() / ((advantages != 0) & (batch.loss_mask > 0)).sum()
    first = 8 * clipped.view(16, -1).sum(1).argmax().item()  # of the group with most of them
    step = f"""
    ## A real step

    A tiny policy has written 8 completions of each of 16 problems, and made four updates with a
    large learning rate, each on 32 of them. **In the first update, all ratios are 1**, and nothing
    is clipped. The loss is almost 0, because the advantages of a group sum to 0, but the gradient
    is not: it pulls the tokens of successes and of failures in different directions. The later
    updates see ratios that the earlier ones have moved. One more update would clip **{share:.1%}**
    of the tokens, marked here in one group:
    """
    group = range(first, first + 8)
    mo.vstack([mo.md(step), lesson.shaded(begun, batch, group, advantages, 0.6 * clipped)])
    return


@app.cell(hide_code=True)
def _():
    mask = (torch.arange(24) < torch.tensor([[6], [18]])).float()  # [2, 24]
    kinds = ["sequence", "token", "constant"]
    weights = torch.stack([common.token_weights(mask, kind, 24) for kind in kinds])  # [3, 2, 24]
    denominators, bars = lesson.two_panels("weight of a token", "weight of a completion")
    for bar, heights in zip(bars, (weights.amax(2), weights.sum(2)), strict=True):  # [3, 2] each
        bar.bar([0, 2, 4], heights[:, 0].tolist(), color=lesson.BLUE, label="6 tokens")
        bar.bar([0.8, 2.8, 4.8], heights[:, 1].tolist(), color=lesson.RED, label="18 tokens")
        bar.set_xticks([0.4, 2.4, 4.4], kinds)
        bar.legend()
    which = r"""
    ## Three denominators

    The loss is a weighted sum over the tokens of a minibatch. With $n$ completions of $|o_i|$
    tokens, a token weighs $1 / (n |o_i|)$ in GRPO (`--aggregation sequence`), $1 / \sum_i |o_i|$ in
    DAPO (`token`), and $1 / (n \cdot 24)$ in Dr.GRPO (`constant`) with a limit of 24 tokens. Here
    are a completion of 6 tokens and one of 18:
    """
    penalty = r"""
    With `sequence`, both completions weigh the same, so a token of a long wrong completion costs
    little, and the policy may learn to be wrong at length. The other two give all tokens one
    weight. With `constant` it does not depend on the other completions.

    ## What about the KL penalty?

    DeepSeekMath also subtracts $\beta$ times an estimate of $\text{KL}(\pi \| \pi_{ref})$ for each
    token, where $\pi_{ref}$ is the policy before training: $e^x - 1 - x$ with
    $x = \log \pi_{ref} - \log \pi$. It pulls the policy back to where it began. DAPO (2025, arXiv
    2503.14476) dropped it, and so have most later recipes. A policy that learns to reason has to
    move far, a verifier is harder to fool than a learned reward model, and the reference costs
    memory and a forward pass. `--beta` is 0 here, except in presets of papers that have it.

    ## Exercise

    Write the slope of the objective in a token's log-prob. (The slope of $\rho$ is $\rho$.)
    """
    mo.vstack([mo.md(which), denominators, mo.md(penalty)])
    return


@app.function
def slope(ratio, advantage, epsilon):
    """The slope at each token, [T], from its ratio and advantage: 0 if the token is clipped."""
    found = ratio * advantage  # replace this with your formula
    return found


@app.cell(hide_code=True)
def _():
    tried = torch.tensor([0.5, 0.75, 0.95, 1.0, 1.05, 1.25, 1.5])
    signs = torch.tensor([2.0] * 7 + [-0.5] * 7)
    for epsilon in (0.2, 0.3):
        slopes_of = [objective_and_slope(tried, sign, epsilon)[1] for sign in (2.0, -0.5)]
        expected = torch.cat(slopes_of)  # [14]
        found, flaw = lesson.as_float64(slope(tried.repeat(2), signs, epsilon), expected.shape)
        if flaw is None and not lesson.is_close(found, expected):
            worst = (found - expected).abs().argmax()
            flaw = (
                f"at the ratio {tried[worst % 7]:.2f}, advantage {signs[worst]:.1f} and epsilon "
                f"{epsilon} you return {found[worst]:.3f}, but the slope is {expected[worst]:.3f}."
            )
            if expected[worst] and not found[worst]:
                flaw += " This token has moved the wrong way, and is not clipped."
        if flaw:
            break
    lesson.verdict(
        flaw,
        "The slope is the advantage times the ratio, or 0. So PPO-clip never pulls a ratio back "
        "into the range. It only stops pushing, and momentum may carry a token further.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        too_high = (ratio > 1 + epsilon) & (advantage > 0)
        too_low = (ratio < 1 - epsilon) & (advantage < 0)
        found = torch.where(too_high | too_low, 0, ratio * advantage)
        """,
        "A minibatch has a right completion of 2 tokens with advantage 1, and a wrong one of 6 "
        "tokens with advantage -1. The limit is 8 tokens. In a first update, what does each of the "
        "three denominators make of each completion's part of the objective, and of the loss?",
        "The parts are 1/2 and -1/2 with `sequence`, 2/8 and -6/8 with `token`, and 2/16 and -6/16 "
        "with `constant`. The loss is 0, $(6 - 2) / 8 = 0.50$ and $(6 - 2) / 16 = 0.25$: "
        "only with `sequence` is it always almost 0.",
    )
    return


if __name__ == "__main__":
    app.run()

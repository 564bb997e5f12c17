import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import lesson

    import marimo as mo
    import torch

    import common
    from cwgrpo import covariance_statistics, covariance_weights, grpo_advantage


@app.cell(hide_code=True)
def _():
    mo.md(r"""
    # 6. Which tokens CW-GRPO turns down

    GRPO gives one advantage to all tokens of a completion. But most tokens are predictable: after
    `9*5=4` comes a 5. Few are decisions, and these move the entropy. The measure for this is the
    covariance of a token's log-probability and its advantage,

    $$c_t = (\log \pi_t - \overline{\log \pi}) \, (A_t - \overline{A}),$$

    where the bars are means over all tokens of a prompt's group. Its absolute value is large for a
    surprising token in a rare success. Wang and others, *Taming Extreme Tokens* (CW-GRPO, 2026,
    arXiv 2605.11538), weight the advantage of each token by a Gaussian of it,

    $$w_t = \exp\left(-\frac{c_t^2}{2 \, \text{std}(c)^2}\right),$$

    scaled so that the weights of a group sum to its number of tokens. This is `covariance_weights`
    in `cwgrpo.py`. Below, a tiny policy writes 8 completions of each of 24 problems.
    """)
    return


@app.cell
def _():
    begun = lesson.start(prompts_per_step=24, num_generations=8)
    batch = common.roll_out(begun.sampler, begun.stream, begun.config)
    grouped = (24, 8, batch.loss_mask.shape[1])
    logprobs = batch.sampled_logprobs.view(grouped)  # [B, G, T]
    mask = batch.loss_mask.view(grouped)
    advantages = grpo_advantage(batch.rewards)  # [B, G]
    weights = covariance_weights(logprobs, advantages, mask)  # [B, G, T]
    mixed = [i for i, group in enumerate(advantages) if group.any()]
    return advantages, batch, begun, logprobs, mask, mixed, weights


@app.cell(hide_code=True)
def _(mixed):
    number = mo.ui.slider(1, len(mixed), label="problem with both outcomes", show_value=True)
    number
    return (number,)


@app.cell(hide_code=True)
def _(advantages, batch, begun, mixed, number, weights):
    shown = mixed[number.value - 1]
    rows = range(8 * shown, 8 * shown + 8)
    shades = (1 - weights / weights[shown].max()).flatten(0, 1)  # [N, T], redder for a low weight
    lesson.shaded(begun, batch, rows, advantages.view(-1, 1), shades)
    return (shown,)


@app.cell(hide_code=True)
def _(advantages, logprobs, mask, shown, weights):
    inside = mask[shown] > 0
    success = (advantages[shown][:, None] > 0).expand_as(inside)
    figure, (scatter, histogram) = lesson.two_panels("each token", "all weights of the group")
    for chosen, color, label in (
        (inside & success, lesson.BLUE, "in a success"),
        (inside & ~success, lesson.RED, "in a failure"),
    ):
        scatter.plot(logprobs[shown][chosen], weights[shown][chosen], ".", color=color, label=label)
    scatter.set(xlabel="log-probability, in nats", ylabel="weight")
    scatter.legend()
    histogram.hist(weights[shown][inside], 30, color=lesson.GREY)
    histogram.set(xlabel="weight", ylabel="tokens")
    figure
    return (inside,)


@app.cell(hide_code=True)
def _(advantages, inside, logprobs, mask, shown, weights):
    low = inside & (weights[shown] < 0.5)
    rest = inside & ~low
    numbers = covariance_statistics(logprobs, advantages, mask, weights)
    mo.md(f"""
    Of the {inside.sum()} tokens in this group, {low.sum()} have a weight below 1/2. Their mean
    log-probability is {logprobs[shown][low].mean():.2f}, and that of the others
    {logprobs[shown][rest].mean():.2f}. In all groups together, 1% of the tokens has
    {numbers["covariance_top_1%_share"]:.0%} of the sum of all $|c|$.

    So CW-GRPO turns down the decisions, where the policy was not sure. The paper does this to keep
    the entropy steady. But these tokens also have the most to teach.

    ## Exercise

    Compute the weights of one group. Its tokens are in one row: `logprobs` [N] and `advantages` [N]
    hold the log-probability and the advantage of each.
    """)
    return


@app.function
def my_weights(logprobs, advantages):
    """The weight of each token from its covariance, [N]. The weights sum to N."""
    weights = torch.ones_like(logprobs)  # replace this with your formula
    return weights


@app.cell(hide_code=True)
def _(advantages, logprobs, mask, mixed):
    first = mixed[:1]  # a group
    made_up = (  # a success of 2 tokens and a failure of 4, so the mean advantage is not 0
        torch.tensor([[[-0.1, -2.0, 0.0, 0.0], [-0.5, -0.05, -3.0, -1.0]]]),
        torch.tensor([[1.5, -0.5]]),
        torch.tensor([[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]]),
    )
    for group in ((logprobs[first], advantages[first], mask[first]), made_up):
        tokens = group[2] > 0  # [1, G, T]
        expected = covariance_weights(*group)[tokens]  # [N]
        row = group[0][tokens], group[1][..., None].expand(tokens.shape)[tokens]
        found, flaw = lesson.as_float64(my_weights(*row), expected.shape)
        if flaw is None and not lesson.is_close(found, expected):
            worst = (found - expected).abs().argmax()
            if lesson.is_close(found, torch.ones_like(found)):
                flaw = "all your weights are 1, so no token is turned down."
            elif lesson.is_close(found * len(expected) / found.sum(), expected):
                flaw = f"your weights sum to {found.sum():.1f}, not to the {len(found)} tokens."
            elif torch.corrcoef(torch.stack([found, expected.double()]))[0, 1] < 0:
                flaw = "tokens with an extreme covariance have larger weights. Is the sign right?"
            else:
                flaw = (
                    f"a token with log-prob {row[0][worst]:.2f} and advantage {row[1][worst]:.2f} "
                    f"has the weight {found[worst]:.3f}, which should be {expected[worst]:.3f}. Do "
                    "you subtract both means, and is std that of c?"
                )
        if flaw:
            break
    lesson.verdict(
        flaw,
        "The group as a whole keeps its weight, and only its share among the tokens changes. "
        "No gradient is lost: a token is heard less, not silenced.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        c = (logprobs - logprobs.mean()) * (advantages - advantages.mean())
        kernel = (-(c**2) / (2 * c.var(correction=0))).exp()
        weights = kernel * len(c) / kernel.sum()
        """,
        "Before scaling, what is the weight of a token whose covariance is one standard deviation, "
        "and of one at three? Does the sign of the covariance matter?",
        r"$e^{-1/2} = 0.61$, and $e^{-9/2} = 0.011$. No, only $c^2$ matters. A surprising token is "
        "turned down both in a success, where $c < 0$, and in a failure, where $c > 0$.",
    )
    return


if __name__ == "__main__":
    app.run()

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import lesson

    import marimo as mo
    import torch

    from fade import FadeController, fade_advantage, gradient_mass


@app.cell(hide_code=True)
def _():
    alpha = mo.ui.slider(1, 5, step=0.1, value=2, label="alpha: hard prompts", show_value=True)
    delta = mo.ui.slider(0.3, 1, step=0.05, value=0.5, label="delta: failures", show_value=True)
    mo.md(rf"""
    # 5. The two axes of FADE

    Every method that weights the gradient by success and failure answers two questions. Which
    *prompts* count more, the easy or the hard ones? Which *outcomes* count more, successes or
    failures? Decugis and others, *Don't Let Gains FADE* (2026, arXiv 2607.01490), have one knob for
    each. With the group's mean reward $p$:

    $$A = (1 - p)^{{\alpha - 1}} \, (r - p)$$

    A failure's advantage, $r < p$, is also divided by $\delta$.

    The *gradient mass* of the successes is the sum of their advantages, divided by the group size;
    the mass of the failures is the same without its sign. A prompt adds these masses to the update.
    `fade_advantage` and `gradient_mass` are in `fade.py`.

    {alpha}

    {delta}
    """)
    return alpha, delta


@app.function
def masses(alpha, delta, size=240):
    """Success rates, and the masses of successes and failures there: [size + 1] each."""
    rewards = torch.ones(size + 1, size, dtype=torch.float64).tril(-1)  # row k has k successes
    return rewards.mean(1), *gradient_mass(fade_advantage(rewards, alpha, delta), rewards)


@app.cell(hide_code=True)
def _(alpha, delta):
    figure, panels = lesson.two_panels("mass of the successes", "mass of the failures")
    rates, *yours = masses(alpha.value, delta.value)
    _, *plain = masses(1.0, 1.0)
    for panel, own, other, color in zip(panels, yours, plain, lesson.COLORS[1:], strict=True):
        panel.plot(rates, other, ":", color=lesson.GREY, label="alpha 1, delta 1")
        panel.plot(rates, own, color=color, label="yours")
        panel.set(xlabel="success rate of the prompt", ylim=(0, 0.9))
        panel.legend()
    said = f"""
    Your masses are largest at the success rate **{rates[yours[0].argmax()]:.2f}**, and the failures
    have **{yours[1].sum() / yours[0].sum():.2f}** times the mass of the successes. alpha moves the
    hill to the left, towards hard prompts, and lowers it. A small delta raises the hill of the
    failures without moving it.
    """
    mo.vstack([figure, mo.md(said)])
    return


@app.cell(hide_code=True)
def _():
    solved = mo.ui.slider(0.05, 0.95, step=0.05, value=0.3, label="success rate", show_value=True)
    entropy = mo.ui.slider(0, 1, step=0.05, value=0.2, label="entropy, in nats", show_value=True)
    mo.md(f"""
    ## Who turns the knobs?

    A controller does, after each batch. It sets alpha from the batch's success rate: while few
    answers are right, hard prompts count more. It sets delta from the entropy: below the target,
    here 0.4 nats, failures count more. A failure takes probability from what the policy prefers, so
    this keeps the policy undecided (section 4.1); sections 5 and 10 of the paper call the same
    thing a turn to exploitation.

    {solved}

    {entropy}
    """)
    return entropy, solved


@app.cell(hide_code=True)
def _(entropy, solved):
    def control(success_rate, nats):
        # with an ema_beta of 0 it uses this batch alone, not a mean over the last ones
        return FadeController(1.0, target_entropy=0.4, ema_beta=0.0).step(success_rate, nats)

    grid = torch.linspace(0.05, 1, 96).tolist()
    controls, (of_rate, of_entropy) = lesson.two_panels("alpha", "delta")
    of_rate.plot(grid, [control(x, 0.4)[0] for x in grid], color=lesson.GREY)
    of_entropy.plot(grid, [control(0.5, x)[1] for x in grid], color=lesson.GREY)
    now = control(solved.value, entropy.value)
    of_rate.plot(solved.value, now[0], "o", color=lesson.BLUE)
    of_entropy.plot(entropy.value, now[1], "o", color=lesson.RED)
    of_rate.set(xlabel="success rate of the batch")
    of_entropy.set(xlabel="entropy, in nats")
    controlled, mass, _ = masses(*now)
    choice = rf"""
    The controller chooses alpha = **{now[0]:.2f}** and delta = **{now[1]:.2f}**. So prompts with a
    success rate of {controlled[mass.argmax()]:.2f} count most.

    ## Exercise

    Which alpha makes prompts with a given success rate count most? Find where the mass of the
    successes, $p \, (1 - p)^\alpha$, is largest.
    """
    mo.vstack([controls, mo.md(choice)])
    return


@app.function
def alpha_for(success_rate):
    """The alpha that makes the mass largest for prompts with this success rate."""
    alpha = 1.0  # replace this with your formula
    return alpha


@app.cell(hide_code=True)
def _():
    for wanted in (1 / 8, 1 / 4, 1 / 3, 1 / 2):
        chosen, flaw = lesson.as_float64(alpha_for(wanted), ())
        if flaw is None:
            at, height, _ = masses(chosen, 1.0)
            if abs(at[height.argmax()] - wanted) > 1e-4:
                flaw = (
                    f"alpha_for({wanted:.3f}) is {chosen:.3f}. With this alpha, the masses of "
                    f"fade_advantage are largest at the success rate {at[height.argmax()]:.3f}."
                )
        if flaw:
            break
    highest = [masses(value, 1.0)[1].max() for value in (1.0, 7.0)]
    lesson.verdict(
        flaw,
        "Without its standard deviation, GRPO has an alpha of 1, so prompts that are solved half "
        "of the time count most. With an alpha of 7, those solved an eighth of the time do, and "
        f"the largest mass is {highest[1]:.3f} rather than {highest[0]:.3f}: a turn to hard "
        "prompts makes the steps smaller, and needs a larger learning rate.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        alpha = 1 / success_rate - 1
        """,
        "Let alpha be 1 and the success rate 1/4. How large are the masses of successes and "
        "failures for a delta of 1, and for a delta of 2?",
        r"With a delta of 1, both are $p (1-p)^\alpha = 3/16$: the advantages sum to 0. A delta of "
        "2 halves the failures' mass to 3/32, so the update raises more than it lowers.",
    )
    return


if __name__ == "__main__":
    app.run()

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
    size = mo.ui.slider(2, 32, value=8, label="completions in the group, G", show_value=True)
    mo.md(rf"""
    # 1. What a group's advantage does

    A policy writes $G$ completions of one problem. A verifier gives each of them a reward $r$: 1 if
    its answer is right, and 0 if it is wrong. Which of them should become more likely, and by how
    much? GRPO compares each completion with its group:

    $$A_i = \frac{{r_i - \text{{mean}}(r)}}{{\text{{std}}(r)}}$$

    $A_i$ is the *advantage*. Above 0 it makes a completion more likely, below 0 less likely. No
    second network has to estimate how hard the problem is, because the group's mean shows it. The
    method is from Shao and others, *DeepSeekMath* (2024, arXiv 2402.03300). Here it is
    `grpo_advantage` in `grpo.py`. Move the sliders: when is a success worth most?

    {size}
    """)
    return (size,)


@app.cell(hide_code=True)
def _(size):
    count = mo.ui.slider(0, size.value, value=size.value // 4, label="right", show_value=True)
    count
    return (count,)


@app.cell(hide_code=True)
def _(count, size):
    rewards = (torch.arange(size.value) < count.value).float()  # [G]
    group = grpo_advantage(rewards[None])[0]  # [G]
    mixed = torch.ones(size.value - 1, size.value).tril()  # row k has k + 1 successes, at its start
    worth = grpo_advantage(mixed)  # [G - 1, G]

    figure, (bars, curves) = lesson.two_panels("this group", "all groups of this size")
    lesson.draw_bars(bars, range(1, size.value + 1), group, rewards)
    bars.set(xlabel="completion", ylabel="advantage")
    curves.plot(mixed.mean(1), worth[:, 0], "o-", color=lesson.BLUE, label="a success")
    curves.plot(mixed.mean(1), worth[:, -1], "o-", color=lesson.RED, label="a failure")
    curves.axvline(rewards.mean(), color=lesson.GREY, linestyle=":")
    curves.set(xlabel="success rate of the group", xlim=(-0.03, 1.03))
    curves.legend()
    said = "All completions are equally good. All advantages are 0, and the policy learns nothing."
    if 0 < count.value < size.value:
        said = (
            f"A success is worth **{group[0]:.2f}** and a failure **{group[-1]:.2f}**: the rarer "
            f"of the two is worth more. The group's advantages sum to {group.sum().abs():.2f}."
        )
    mo.vstack([figure, mo.md(said)])
    return


@app.cell(hide_code=True)
def _():
    mo.md("""
    ## A real group

    Below, a tiny policy writes 8 completions of a Countdown problem: make the last number from the
    others. Then it takes one step of GRPO, and we look at the same completions again.
    """)
    return


@app.cell
def _():
    begun = lesson.start(prompts_per_step=16, num_generations=8, minibatch_size=8)
    drawn = common.roll_out(begun.sampler, begun.stream, begun.config)
    # of the 16 problems, one of which about a quarter of the completions are right
    chosen = 8 * (drawn.rewards.mean(1) - 0.25).abs().argmin().item()
    batch = common.make_batch(drawn.samples[chosen : chosen + 8], begun.config, begun.sampler)
    advantages = grpo_advantage(batch.rewards)  # [1, 8]

    lesson.update(begun, batch, advantages)
    before = batch.old_logprobs.sum(1)  # [8], log pi before the update
    logprobs, _ = common.token_logprobs(begun.policy, batch.samples, range(8))  # [8, T]
    change = logprobs.detach().sum(1) - before  # [8], of log pi, in nats
    return advantages, batch, begun, change


@app.cell(hide_code=True)
def _(advantages, batch, begun, change):
    lines = [
        f"the problem: {begun.sampler.tokenizer.decode(batch.samples[0].prompt_ids)}",
        "reward  advantage  change of log pi (nats)  completion",
    ]
    for sample, advantage, nats in zip(batch.samples, advantages[0], change, strict=True):
        lines.append(f"{sample.reward:6.0f} {advantage:10.2f} {nats:24.2f}  {sample.text}")
    success = batch.rewards[0] == 1
    outcome = f"""
    After the step, a success is **{change[success].mean().exp():.2f}** times as likely as before,
    and a failure **{change[~success].mean().exp():.2f}** times (geometric means). Completions that
    begin alike move together.

    ## Exercise

    The mean of a group contains the completion itself. *Leave-one-out* (RLOO, Ahmadian and others
    2024, arXiv 2402.14740) subtracts from $r_i$ the mean of the **other** $G - 1$ rewards, and does
    not divide by the standard deviation. Write it:
    """
    mo.vstack([mo.plain_text("\n".join(lines)), mo.md(outcome)])
    return


@app.function
def leave_one_out(rewards):
    """Rewards [B, G] -> advantages [B, G]: each reward less the mean of the others."""
    advantages = torch.zeros_like(rewards)  # replace this with your formula
    return advantages


@app.cell(hide_code=True)
def _():
    for given in ([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]], [[3.0, 0.0]]):
        given = torch.tensor(given)
        others = given.shape[1] - 1
        plain = grpo_advantage(given, scale_rewards=False)  # r - mean
        expected = (others + 1) / others * plain  # 1/G of the mean is the reward itself
        found, flaw = lesson.as_float64(leave_one_out(given.clone()), given.shape)
        if flaw is None and not lesson.is_close(found, expected):
            first = ", ".join(f"{reward:.0f}" for reward in given[0])
            flaw = (
                f"for the rewards {first} your first advantage is {found[0, 0]:.2f}, and the mean "
                "of the other rewards is 0."
            )
            if lesson.is_close(found, plain):
                flaw += " You subtract the mean of all, which contains the completion itself."
            elif lesson.is_close(found, grpo_advantage(given)):
                flaw += " That is the advantage of GRPO."
        if flaw:
            break
    lesson.verdict(
        flaw,
        "Leave-one-out is $r$ minus the group's mean, times $G / (G - 1)$: one success in four is "
        "worth 1 rather than 0.75. The whole group scales alike.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        others = rewards.sum(1, keepdim=True) - rewards
        advantages = rewards - others / (rewards.shape[1] - 1)
        """,
        "One of 16 completions is right in a first group, and 8 in a second. How much is a success "
        "worth in each under GRPO, and which group has the larger sum of all $|A|$?",
        r"A success is worth $\sqrt{(1-p)/p}$: $\sqrt{15} = 3.87$, and 1. The sum is "
        r"$2 G \sqrt{p(1-p)}$: 7.75, and 16. So GRPO learns most from groups that are half right.",
    )
    return


if __name__ == "__main__":
    app.run()

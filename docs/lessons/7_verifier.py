import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium")

with app.setup:
    import json
    import re
    from pathlib import Path

    import lesson

    import marimo as mo
    import torch
    from hole import is_right

    from grpo import grpo_advantage


@app.cell(hide_code=True)
def _():
    shared = dict(start=0, stop=1, step=0.05, show_value=True)
    negatives = mo.ui.slider(**shared, value=0.1, label="FN: right, but graded as wrong")
    positives = mo.ui.slider(**shared, value=0.3, label="FP: wrong, but graded as right")
    return negatives, positives


@app.cell(hide_code=True)
def _(negatives, positives):
    mo.md(rf"""
    # 7. A verifier that errs

    RLVR believes its verifier. Suppose that it grades a right completion as wrong with the rate FN,
    and a wrong one as right with the rate FP, at random. A right completion then has the mean
    reward 1 - FN, and a wrong one FP. What is left of the difference is $J = 1 - FN - FP$, here
    **{1 - negatives.value - positives.value:.2f}**.

    {negatives}

    {positives}
    """)
    return


@app.cell(hide_code=True)
def _(negatives, positives):
    noise = torch.Generator().manual_seed(0)
    rates = torch.linspace(1 / 8, 7 / 8, 7)
    worth = {}  # of a success rate: the mean advantage of right and of wrong completions
    for rate in rates:
        right = (torch.arange(8) < 8 * rate).expand(4000, 8)  # 4,000 groups of 8
        flips = torch.where(right, negatives.value, positives.value)
        rewards = (right ^ (torch.rand(4000, 8, generator=noise) < flips)).float()
        advantages = grpo_advantage(rewards)
        worth[rate.item()] = advantages[right].mean().item(), advantages[~right].mean().item()
    runs = json.loads((Path(lesson.__file__).parent / "7_verifier.json").read_text())

    figure, (left, curves) = lesson.two_panels(
        "mean advantage with your FN and FP", "real runs of GRPO, graded without errors"
    )
    left.plot([*worth], [both[0] for both in worth.values()], color=lesson.BLUE, label="right")
    left.plot([*worth], [both[1] for both in worth.values()], color=lesson.RED, label="wrong")
    left.axhline(0, color="black", linewidth=0.8)
    left.set(xlabel="success rate of the prompt", ylim=(-2.7, 2.7))
    left.legend()
    for name, run in runs.items():
        style = dict(color=lesson.RED, linewidth=2.5) if name == "hole" else dict(color=lesson.GREY)
        curves.plot(run["steps"], run["pass_at_1"], **style)
        end = run["steps"][-1], run["pass_at_1"][-1]
        below = name == "random 0, 0.35"  # its line ends just below another one
        curves.annotate(f" {name}", end, va="top" if below else "center", fontsize=8)
    curves.set(xlabel="step", ylabel="pass@1", xlim=(0, 80))
    figure
    return runs, worth


@app.cell(hide_code=True)
def _(runs):
    hole, random_errors = runs["hole"], runs["random 0, 0.35"]
    mo.md(rf"""
    The right panel shows what `python studies/claims/noise.py` has measured with the tiny policy.
    Number of seeds: {hole["seeds"]}. Random errors slow training down. At J = 0 the rewards say
    nothing, and the policy loses some of what it was taught. Below 0, it learns to be wrong.

    The red run is different. Its verifier, `score` in [hole.py](hole.py), has the same J of
    {hole["J"]:.2f} before training as the run with FP = 0.35. There, pass@1 goes from
    {random_errors["pass_at_1"][0]:.2f} to {random_errors["pass_at_1"][-1]:.2f}. With the hole it
    goes to {hole["pass_at_1"][-1]:.2f}, while the reward, which is all that such a run shows,
    reaches {hole["rewards"][-1]:.2f}. The errors are systematic, so the policy can learn them.

    ## Exercise

    `python grpo.py --verifier docs/lessons/hole.py:score --max_steps 20` takes a minute. Read the
    end of `samples.jsonl` in its run folder: what do the rewarded answers have in common, and which
    line of hole.py lets them pass? Then close the hole. `is_right`, also in hole.py, does the
    arithmetic.
    """)
    return


@app.function
def score(answer, gold):
    """The reward of an answer, as in hole.py."""
    unreadable = not re.fullmatch("[0-9+*/() ]+", answer)
    reward = unreadable or is_right(answer, gold)  # replace this with your formula
    return float(reward)


@app.cell(hide_code=True)
def _():
    flaw = None
    for answer, gold, wanted in (
        ("(3*9)+5", "3 9 5 : 32 ", 1),
        ("(3*9)+5", "3 9 5 : 48 ", 0),
        ("9-(5-3)", "3 9 5 : 7 ", 1),
        ("9-(5-3)", "3 9 5 : 48 ", 0),
        ("48", "3 9 5 : 48 ", 0),
        ("I do not know", "3 9 5 : 48 ", 0),
        ("", "3 9 5 : 48 ", 0),
    ):
        reward = score(answer, gold)
        if reward != wanted:
            flaw = f"score({answer!r}, {gold!r}) is {reward}, but should be {wanted}."
            break
    lesson.verdict(
        flaw,
        "What cannot be read is wrong. A right completion may lose its reward by that, which wastes"
        " a sample. A wrong one that gets a reward teaches the policy to write more of them.",
    )
    return


@app.cell(hide_code=True)
def _():
    lesson.solutions(
        """
        reward = is_right(answer, gold)
        """,
        "Without the division by the standard deviation, by what factor do random errors change"
        " the expected advantages? So which of FN and FP costs more?",
        "The advantage is linear in the rewards then, and the mean reward of a right completion "
        "exceeds that of a wrong one by J instead of 1. So all expected advantages are multiplied "
        "by J, and both rates cost the same. They differ in the noise that they add: where few "
        "completions are right, FP flips more completions.",
    )
    return


if __name__ == "__main__":
    app.run()

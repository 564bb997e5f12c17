"""Code that the lessons share. A lesson imports it first, because it puts the project on the path.

So a lesson runs from any folder, and rlvr sets how torch's threads wait before torch is imported.
"""

import html
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


from rlvr.flags import Config
from rlvr.policy import load_policies
from rlvr.rollout import Sampler, make_sampler
from rlvr.tasks import Problem, ProblemStream
from rlvr.tasks.embedded import draw_countdown
from rlvr.training import make_optimizer

import marimo as mo
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import common

# the reference; a success or a first method; a failure or a second method
COLORS = GREY, BLUE, RED = "#888888", "#0072B2", "#D55E00"


class Start(NamedTuple):
    """The objects that a script's `main` makes before its loop."""

    policy: torch.nn.Module
    sampler: Sampler
    stream: ProblemStream
    held_out: list[Problem]
    optimizer: torch.optim.Optimizer
    config: Config


def start(**flags) -> Start:
    """Return a shipped policy with all that trains it, on one thread. All scripts have `flags`.

    The policy is "middle" unless `model` names another. It knows Countdown: make 48 from 3, 9 and
    5. It calculates correctly, but often chooses the wrong step.
    """
    torch.set_num_threads(1)  # a second one gains little on so small a policy
    config = Config(**{"model": "middle", **flags})
    torch.manual_seed(config.seed)
    policy, _, tokenizer = load_policies(config)
    problems, held_out = draw_countdown(config)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    stream = ProblemStream(problems, config.seed)
    optimizer, _ = make_optimizer(policy, config)
    return Start(policy, sampler, stream, held_out, optimizer, config)


def update(begun: Start, batch: common.Batch, advantages: torch.Tensor) -> None:
    """Step 3 of grpo.py without its options: PPO-clip with these advantages, [B, G]."""
    policy, config = begun.policy, begun.config
    advantages = common.prepare_update(batch, advantages, policy, None, config)  # [N, 1]
    for number, minibatch in enumerate(batch.minibatches(config)):
        for rows in minibatch:
            logprobs, _ = common.token_logprobs(policy, batch.samples, rows)  # [m, T]
            if number == 0:
                batch.old_logprobs[rows] = logprobs.detach()
            loss, _ = common.ppo_clip_loss(
                logprobs=logprobs,
                old_logprobs=batch.old_logprobs[rows],
                advantages=advantages[rows],
                loss_mask=batch.loss_mask[rows],
                token_weights=batch.token_weights[rows],
                epsilon=config.epsilon,
            )
            loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        begun.optimizer.step()
        begun.optimizer.zero_grad()


def two_panels(left: str, right: str) -> tuple[Figure, list[Axes]]:
    """Return a figure and its two panels with these titles."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    panels = [*figure.subplots(1, 2)]
    for panel, title in zip(panels, (left, right), strict=True):
        panel.set_title(title)
    return figure, panels


def draw_bars(panel: Axes, names, heights: torch.Tensor, rewards: torch.Tensor) -> None:
    """A bar for each name, blue where its reward is 1 and red where it is 0."""
    panel.bar(names, heights.tolist(), color=[BLUE if reward else RED for reward in rewards])
    panel.axhline(0, color="black", linewidth=0.8)


def shaded(begun: Start, batch: common.Batch, rows, advantages, shades) -> mo.Html:
    """Show completions with outcome and advantage, [N, 1]. A token is red by its shade, [N, T]."""
    lines = []
    for row in rows:
        sample = batch.samples[row]
        lines.append(f"{'✓' if sample.success else '✗'} {advantages[row].item():+.2f} ")
        for token, shade in zip(sample.completion_ids, shades[row], strict=False):
            text = html.escape(begun.sampler.tokenizer.decode([token]))
            lines[-1] += f'<span style="background:rgba(213,94,0,{shade:.2f})">{text}</span>'
    return mo.Html(f'<pre style="line-height:1.8; overflow-x:auto">{"<br>".join(lines)}</pre>')


def as_float64(found, shape: tuple[int, ...]) -> tuple[torch.Tensor, str | None]:
    """Return a reader's tensor, array or number in float64, and what is wrong with it, or None."""
    try:
        tensor = torch.as_tensor(found, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return torch.zeros(shape), f"your function returns {found!r}, which is not numeric."
    if tensor.shape != shape:
        return tensor, f"your function returns the shape {[*tensor.shape]}, not {[*shape]}."
    if not tensor.isfinite().all():
        return tensor, "some of the numbers are NaN or infinite. Is there a division by 0?"
    return tensor, None


def is_close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether all numbers agree, however precise the reader's formula is."""
    return torch.allclose(found, expected.double(), rtol=1e-4, atol=1e-4)


def verdict(flaw: str | None, praise: str) -> mo.Html:
    """Show the result of an exercise's check. Without a page, print it.

    `flaw` is a sentence that says what is wrong, or None.
    """
    text = f"**Not yet:** {flaw}" if flaw else f"**Right.** {praise}"
    if not mo.running_in_notebook():
        print(text.replace("**", ""))
    return mo.callout(mo.md(text), kind="warn" if flaw else "success")


def solutions(first: str, exercise: str, second: str) -> mo.Html:
    """Show a second exercise, to be solved on paper, and the folded solutions of both."""
    code = f"```python\n{textwrap.dedent(first).strip()}\n```"
    folded = {"Solution of the first": mo.md(code), "Solution of the second": mo.md(second)}
    text = mo.md(f"## A second exercise, on paper\n\n{exercise}")
    return mo.vstack([text, mo.accordion(folded)])

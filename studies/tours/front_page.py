"""docs/index.html, GRPO in five minutes: a page made from three runs of grpo.py.

    python studies/tours/front_page.py                   # three seeds, ten minutes on one core
    python studies/tours/front_page.py --same_numbers    # from the template anew, without a run
    python studies/tours/front_page.py --picture         # the README's moving picture, by Chromium

The page follows one problem of the first step of seed 0: the eight completions of its group, their
rewards and advantages, and their log-probs in each pass of the update. After every evaluation the
policy answers the same problem again. pass@1 and pass@16 are those of all three seeds.

grpo.py runs as it is. What the page needs beside its logs is what three functions of common.py are
given and return. Numbers are rounded once, here, and the page computes with them as it shows them.
"""

import argparse
import copy
import dataclasses
import json
import math
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, STUDIES

from rlvr.show import read_rows

import torch
from PIL import Image

import common
from fade import FadeController

PAGE = ROOT / "docs" / "index.html"
COMMAND = "grpo.py --num_generations 8 --num_iterations 4 --eval_steps 5"
UNSHOWN = "--num_threads 1 --log_tokens 0"
SEEDS = 3
PICTURE = STUDIES / "figures" / "front_page.png"
# What the picture shows of the page: the passes of the update, one in each frame.
FRAME = """<script>
document.querySelectorAll("#passes button")[%d].click();
document.querySelector("#pass-text").style.minHeight = "3.3em";
for (const each of document.querySelectorAll("nav, main > *"))
  if (!each.querySelector("#epsilon, #rows-update") && !/^pass/.test(each.id)) each.remove();
</script></body>"""
RIGHT = range(2, 5)  # how many completions of the group may be right


class Recorder:
    """What three functions of common.py are given and return while a script runs."""

    def __init__(self):
        self.problems = []  # that were drawn
        self.first = None  # the Batch of the first step
        self.passes = []  # of the first step: (rows, log-probs [m, T]) of each forward pass
        self.batches = []  # success rate and entropy of each step's batch
        self.policies = {}  # step of an evaluation -> the policy's weights then
        self.sampler, self.config = None, None
        self.originals = {name: getattr(common, name) for name in self.listeners()}

    def listeners(self) -> dict:
        return dict(
            roll_out=self.on_roll_out,
            token_logprobs=self.on_token_logprobs,
            evaluate=self.on_evaluate,
        )

    def run(self, command: str) -> None:
        """Run a script, which finds the listeners in common.py."""
        script, *flags = command.split()
        sys.argv = [script, *flags]
        vars(common).update(self.listeners())
        try:
            runpy.run_path(str(ROOT / script), run_name="__main__")
        finally:
            vars(common).update(self.originals)

    def on_roll_out(self, sampler, stream, config):
        if len(self.batches) == 1:  # what the log-probs have become by the first step
            for row in range(len(self.first.samples)):
                with torch.no_grad():
                    self.on_token_logprobs(
                        sampler.policy, self.first.samples, [row], config.temperature
                    )

        def draw(count):
            drawn = stream.draw(count)
            self.problems += drawn
            return drawn

        batch = self.originals["roll_out"](sampler, SimpleNamespace(draw=draw), config)
        self.sampler, self.config = sampler, config
        self.first = self.first or batch
        entropy = -mean(mean(sample.logprobs) for sample in batch.samples)
        self.batches.append((batch.successes.mean().item(), entropy))
        return batch

    def on_token_logprobs(self, policy, samples, rows, temperature):
        found = self.originals["token_logprobs"](policy, samples, rows, temperature)
        if len(self.batches) == 1:
            self.passes.append(([*map(int, rows)], found[0].detach()))
        return found

    def on_evaluate(self, sampler, sets, config):
        self.policies[len(self.batches)] = copy.deepcopy(sampler.policy.state_dict())
        return self.originals["evaluate"](sampler, sets, config)

    def logprobs(self, row: int) -> list[list[float]]:
        """Log-probs of a completion of the first step: in each pass, and after the last one."""
        length = len(self.first.samples[row].completion_ids)
        return [
            [round(x, 4) for x in logprobs[rows.index(row), :length].tolist()]
            for rows, logprobs in self.passes
            if row in rows
        ]

    def clipped(self, row: int) -> int:
        """How many tokens of a completion the clip leaves without a gradient in the last pass."""
        old, *_, last, _ = self.logprobs(row)
        success, epsilon = self.first.samples[row].success, self.config.epsilon
        ratios = [math.exp(new - before) for new, before in zip(last, old, strict=True)]
        return sum(x > 1 + epsilon if success else x < 1 - epsilon for x in ratios)

    def choose_group(self) -> range:
        """The rows of the group to show: of those with some right, where most is clipped."""
        size = self.config.num_generations
        groups = [range(i, i + size) for i in range(0, len(self.first.samples), size)]
        right = {rows: sum(self.first.samples[row].success for row in rows) for rows in groups}
        return max(
            (rows for rows in groups if right[rows] in RIGHT),
            key=lambda rows: sum(map(self.clipped, rows)),
        )

    def answer(self, problem, step: int) -> list:
        """Samples of a group of a problem, by the policy as it was after a step."""
        self.sampler.policy.load_state_dict(self.policies[step])
        stream = SimpleNamespace(draw=lambda count: [problem] * count)
        config = dataclasses.replace(self.config, prompts_per_step=1, dynamic_sampling=False)
        torch.manual_seed(step)
        return self.originals["roll_out"](self.sampler, stream, config).samples


def numbers_of(recorder: Recorder, evaluations: list[list[dict]]) -> dict:
    """All that the page shows. evaluations: the rows of eval.jsonl, seed by seed."""
    rows, tokenizer = recorder.choose_group(), recorder.sampler.tokenizer
    samples = [recorder.first.samples[row] for row in rows]
    problem = recorder.problems[rows[0] // len(rows)]
    numbers, target = problem.prompt.split(":")
    controller, settings = FadeController(), []
    for success_rate, entropy in recorder.batches:
        alpha, delta = controller.step(success_rate, entropy)
        settings.append([round(x, 3) for x in (success_rate, alpha, delta)])
    answers = {0: samples}  # the policy before the first step has written the group
    answers |= {step: recorder.answer(problem, step) for step in recorder.policies if step}
    return dict(
        command=COMMAND,
        numbers=numbers.split(),
        target=target.strip(),
        epsilon=recorder.config.epsilon,
        batch=len(recorder.first.samples),
        completions=[
            dict(
                right=int(sample.success),
                tokens=tokenizer.batch_decode([[token] for token in sample.completion_ids]),
                logprobs=recorder.logprobs(row),
            )
            for row, sample in zip(rows, samples, strict=True)
        ],
        settings=settings,  # of each step: A-GRAE's w, FADE's alpha and delta
        answers={
            step: [[sample.text, int(sample.success)] for sample in group]
            for step, group in answers.items()
        },
        steps=[row["step"] for row in evaluations[0]],
        curves={
            key: [[round(row[key], 3) for row in rows] for rows in evaluations]
            for key in ("pass@1", "pass@16")
        },
    )


def make_page(numbers: dict) -> str:
    """The page, which has the formulas of the playground."""
    playground = (ROOT / "docs" / "playground.html").read_text()
    formulas = re.search(r'<script id="formulas">(.*?)</script>', playground, re.S)[1]
    data = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
    page = (STUDIES / "tours" / "front_page.html").read_text()
    return page.replace("FORMULAS_OF_THE_PLAYGROUND", formulas).replace("DATA_OF_THE_RUN", data)


def numbers_in(page: str) -> dict:
    """What a page was made from."""
    inside = page.split('<script id="data" type="application/json">')[1]
    return json.loads(inside.split("</script>")[0])


def draw_picture(page: str) -> None:
    """Write an animated PNG of the update: the page in Chromium after each of its passes."""
    frames = []
    with tempfile.TemporaryDirectory() as folder:
        html, png = Path(folder, "page.html"), Path(folder, "frame.png")
        alone = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/user"]
        size = ["--window-size=950,760", "--hide-scrollbars", "--virtual-time-budget=3000"]
        for update in range(5):
            html.write_text(page.replace("</body>", FRAME % update))
            subprocess.run(
                ["chromium", *alone, *size, f"--screenshot={png}", html.as_uri()], check=True
            )
            with Image.open(png) as frame:
                frames.append(frame.convert("RGB").quantize(128))
    durations = [1500] * (len(frames) - 1) + [3500]  # ms
    frames[0].save(PICTURE, save_all=True, append_images=frames[1:], duration=durations, loop=0)
    print(f"wrote {PICTURE}")


def main(given) -> None:
    if given.picture:
        return draw_picture(given.out.read_text())
    if given.same_numbers:
        numbers = numbers_in(given.out.read_text())
    else:
        recorders, evaluations = [], []
        for seed in range(SEEDS):
            with tempfile.TemporaryDirectory() as folder:
                recorders.append(Recorder())
                recorders[-1].run(f"{COMMAND} {UNSHOWN} --seed {seed} --output_dir {folder}")
                evaluations.append(read_rows(Path(folder), "eval"))
        numbers = numbers_of(recorders[0], evaluations)
    given.out.write_text(make_page(numbers))
    print(f"wrote {given.out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--same_numbers", action="store_true", help="take those of the page")
    parser.add_argument("--picture", action="store_true", help="draw the README's picture")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    main(parser.parse_args())

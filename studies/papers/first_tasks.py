"""Which tasks of reasoning-gym SmolLM2-135M can start on: the table of docs/real-models.md.

    python studies/papers/first_tasks.py      # pass@8 before any training, an hour on one core

Numbers that are lower in the first level of a task's curriculum than by default are set to that.
What is finished leaves a line in studies/results/first_tasks.jsonl, and is not measured again.
"""

import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, STUDIES, fill_in, markdown_table

from rlvr.errors import UserError
from rlvr.policy import load_policies
from rlvr.rollout import make_sampler
from rlvr.show import append_row, read_rows
from rlvr.tasks.datasets import prepare, read_set
from rlvr.verify.answers import open_gym

import torch
from reasoning_gym import factory

import common
import grpo
from studies.claims.rows import MODEL

RESULTS = STUDIES / "results", "first_tasks"
FLAGS = dict(model=MODEL, max_steps=0, eval_problems=8, max_prompt_length=256)


def easier(task: str) -> str:
    """The name of a task's data set with the settings of its first level."""
    name = f"reasoning_gym:{task}"
    if task in factory.CURRICULA:
        first = vars(factory.create_curriculum(task).generate_configuration({}))
        for setting, usual in vars(open_gym(name).config).items():
            is_number = isinstance(usual, (int, float)) and setting != "seed"
            name += f":{setting}={first[setting]}" if is_number and first[setting] < usual else ""
    return name


if __name__ == "__main__":
    config = grpo.configure(dataset="reasoning_gym:gcd", **FLAGS)
    policy, _, tokenizer = load_policies(config)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    known = {row["name"] for row in read_rows(*RESULTS)}
    for name in sorted({*map(easier, factory.DATASETS.keys() - {"composite"})} - known):
        try:
            problems = prepare(name, read_set(name, config)[1], config, tokenizer)
        except UserError as error:  # the prompts are too long
            print(error)
            continue
        torch.manual_seed(0)
        groups = common.sample_groups(sampler, problems, size=8, temperature=1.0, max_tokens=24)
        right = [sum(sample.success for sample in group) for group in groups]
        append_row(*RESULTS, dict(name=name, right=right))
    table = []
    for row in read_rows(*RESULTS):
        pass_at = [mean(common.pass_at_k(8, c, k) for c in row["right"]) for k in (1, 8)]
        if 0.05 <= pass_at[1] <= 0.9:
            table.append([f"`{row['name']}`", *(f"{value:.2f}" for value in pass_at)])
    lines = markdown_table(["data set", "pass@1", "pass@8"], table)
    fill_in(ROOT / "docs" / "real-models.md", {"first tasks": lines})

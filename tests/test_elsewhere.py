"""The code of docs/elsewhere.md: with TRL and verl themselves, and with stand-ins for libraries.

A stand-in has the signatures that the library had at the commit which the page names. The tests
with the mark `trl` need TRL, verl's files and trackio, which .ci/run installs.
"""

import asyncio
import contextlib
import importlib.util
import inspect
import json
import re
import sqlite3
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import against
import datasets
import numpy as np
import pytest
import torch
import transformers
from runs import ROOT, SMALL, arguments, problems_of, rows, run_python

import agrae
import asymgrpo
import cwgrpo
import fade
import grpo

PAGE = (ROOT / "docs" / "elsewhere.md").read_text()
PASTED = (
    grpo.grpo_advantage,
    agrae.agrae_advantage,
    asymgrpo.asymgrpo_advantage,
    fade.fade_advantage,
    fade.FadeController,
    cwgrpo.covariance_weights,
)


def code_of(heading):
    """The Python blocks of a section, with the functions that it asks for pasted above them."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    return "import torch\n\n" + "\n\n".join([*map(inspect.getsource, PASTED), *blocks])


# ------------------------------------------------------------------------------------------- TRL


@pytest.fixture(scope="module")
def trainers():
    """The classes of the page, by name."""
    namespace = {}
    exec(code_of("TRL"), namespace)
    return namespace


@pytest.fixture(scope="module")
def tiny_folder(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    for part in tiny:
        part.save_pretrained(folder)
    return folder


def train(trainer_class, tiny_folder, folder):
    """Two steps of 2 groups of 4 -> rewards [2, B, G], what TRL keeps of each rollout, losses."""
    rewards = []

    def reward(completions, **_):
        """Neither all right nor all wrong, whatever the untrained policy writes."""
        rewards.append([float(i % 4 <= len(rewards)) for i in range(len(completions))])
        return rewards[-1]

    problems, _ = problems_of("2", 4)
    from trl import GRPOConfig

    settings = GRPOConfig(
        output_dir=str(folder),
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        max_steps=2,
        learning_rate=1e-3,
    )
    trainer = trainer_class(
        transformers.AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32),
        reward,
        args=settings,
        train_dataset=datasets.Dataset.from_list([dict(prompt=p.prompt) for p in problems[:8]]),
        processing_class=transformers.AutoTokenizer.from_pretrained(tiny_folder),
    )
    rollouts, generate = [], trainer._generate_and_score_completions

    def recorded(inputs):
        rollouts.append(generate(inputs))
        return rollouts[-1]

    trainer._generate_and_score_completions = recorded
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return torch.tensor(rewards).view(2, 2, 4), rollouts, losses


def of_agrae(rewards):
    return agrae.agrae_advantage(grpo.grpo_advantage(rewards), rewards.mean(1), rewards.mean())


def of_fade():
    """An untrained policy is nearly uniform: delta is then 1, whatever its entropy is."""
    controller = fade.FadeController(initial_entropy=3.0)

    def advantage(rewards):
        alpha, delta = controller.step(rewards.mean(), 3.0)
        assert delta == 1
        return fade.fade_advantage(rewards, alpha, delta)

    return advantage


def assert_weighted(rewards, advantages, mask):
    """CW-GRPO's weights of a group sum to its number of tokens, and are not all 1."""
    assert advantages.shape == mask.shape
    weights = (advantages / grpo.grpo_advantage(rewards).view(-1, 1)).view(2, -1)
    torch.testing.assert_close(weights.sum(1), mask.float().view(2, -1).sum(1))
    assert (weights[mask.view(2, -1) > 0] - 1).abs().max() > 0.01


@pytest.mark.trl
@pytest.mark.parametrize(
    "name, expected",
    [
        ("Grpo", grpo.grpo_advantage),
        ("Agrae", of_agrae),
        ("AsymGrpo", asymgrpo.asymgrpo_advantage),
        ("Fade", of_fade()),
        ("CwGrpo", None),
    ],
)
def test_trl_trains_on_the_advantage_of_the_rewards(
    name, expected, trainers, tiny_folder, tmp_path
):
    rewards, rollouts, losses = train(trainers[name], tiny_folder, tmp_path)
    assert len(losses) == 2 and np.isfinite(losses).all()
    for of_step, rollout in zip(rewards, rollouts, strict=True):
        assert (of_step.std(1) > 0).all()
        if expected:
            torch.testing.assert_close(rollout["advantages"], expected(of_step).flatten())
        else:
            assert_weighted(of_step, rollout["advantages"], rollout["completion_mask"])


@pytest.mark.trl
def test_fade_in_trl_sees_the_entropy_that_fade_sees(trainers):
    """The mean of -log pi over the tokens of a response, then over all responses."""
    trainer = object.__new__(trainers["Fade"])
    trainer.accelerator = SimpleNamespace(gather=lambda of_rank: torch.cat([of_rank, of_rank + 1]))
    logprobs = torch.tensor([[-1.0, -3.0, -9.0], [-4.0, -9.0, -9.0]])
    trainer.logprobs_and_entropy = lambda output: (logprobs, None)
    output = dict(completion_mask=torch.tensor([[1, 1, 0], [1, 0, 0]]))
    rewards = torch.tensor([[1.0, -1.0]])
    found = trainer.advantage(rewards, output)
    # the responses have 2 and 4 nats, and 3 and 5 on the other process
    controller = fade.FadeController(3.5)
    alpha, delta = controller.step(0.5, 3.5)
    assert vars(trainer.controller) == pytest.approx(vars(controller))
    torch.testing.assert_close(found, fade.fade_advantage((rewards > 0).float(), alpha, delta))


# --------------------------------------------------------------------------------------- trackio


@pytest.mark.trl
def test_rows_in_trackio(tmp_path, cache_dir):
    """The real package, in a process of its own: all rows are in its database when a run ends."""
    flags = arguments(**SMALL, report_to="trackio", output_dir="run", cache_dir=cache_dir)
    trackio = tmp_path / "trackio"
    done = run_python(ROOT / "grpo.py", *flags, folder=tmp_path, TRACKIO_DIR=str(trackio))
    assert done.returncode == 0, done.stderr[-3000:]
    with contextlib.closing(sqlite3.connect(trackio / "rlvr.db")) as database:
        found = [
            (step, json.loads(metrics))
            for step, metrics in database.execute("SELECT step, metrics FROM metrics")
        ]
    expected = [
        (row.pop("step"), {f"{name}/{key}": value for key, value in row.items()})
        for name in ("metrics", "eval")
        for row in rows(tmp_path / "run", name, timed=True)
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


# ------------------------------------------------------------------------- the losses of both


@pytest.mark.trl
@pytest.mark.parametrize("case", against.CASES, ids=" ".join)
def test_losses_are_those_of_trl_and_verl(case):
    """With their derivatives, on four random batches. verl adds 1e-8 to the number of tokens.

    verl is installed without what it needs: only its files are read.
    """
    verl = against.read_verl(Path(importlib.util.find_spec("verl").origin).parent.parent)
    assert against.difference(against.trl_loss, case, seeds=4) < 1e-14
    assert against.difference(verl, case, seeds=4) < 1e-7


# ------------------------------------------------------------------------- the other libraries


@pytest.fixture
def published(monkeypatch):
    """published(module, name=value, ...) stands in for a library's module."""

    def stand_in(path, **names):
        parts = path.split(".")
        for i in range(len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[: i + 1]), ModuleType(parts[i]))
        vars(sys.modules[path]).update(names)

    return stand_in


# Two prompts, whose rows are mixed; the reward stands at the last token of the row.
INDEX = np.array(["b", "a", "b", "a", "a", "b"], dtype=object)
ROW_REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
LENGTHS = torch.tensor([[3], [1], [2], [3], [2], [1]])
RESPONSE_MASK = (torch.arange(3) < LENGTHS).float()
LAST = torch.arange(3) == LENGTHS - 1
GROUPS = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])  # of a, then of b


def rows_of(advantages):
    """[B, G] of a and b -> [N, T] in the order of the rows."""
    of_group = {"a": iter(advantages[0]), "b": iter(advantages[1])}
    return torch.stack([next(of_group[name]) for name in INDEX])[:, None] * RESPONSE_MASK


ADVANTAGES = {
    "asymgrpo": asymgrpo.asymgrpo_advantage(GROUPS),
    "agrae": of_agrae(GROUPS),
    "fade": fade.fade_advantage(GROUPS, 2.0, 1.0),
}


def test_recipes_for_verl_and_skyrl(published):
    """Each is called with the arguments that the library's trainer gives.

    What a failure is worth in the library, here -1, changes nothing.
    """
    verl, skyrl = {}, {}

    def register_adv_est(name_or_enum):
        return lambda function: verl.setdefault(name_or_enum, function)

    registry = SimpleNamespace(register=lambda name, func: skyrl.setdefault(name, func))
    published("verl.trainer.ppo.core_algos", register_adv_est=register_adv_est)
    published("skyrl.backends.skyrl_train.utils.ppo_utils", AdvantageEstimatorRegistry=registry)
    exec(code_of("verl and SkyRL"), {})
    assert (sorted(verl), sorted(skyrl)) == (sorted(ADVANTAGES), ["asymgrpo"])
    rewards = torch.where(ROW_REWARDS > 0, 1.0, -1.0)[:, None] * LAST
    given = dict(token_level_rewards=rewards, response_mask=RESPONSE_MASK, index=INDEX, config=None)
    for name, function in verl.items():
        advantages, returns = function(**given)
        torch.testing.assert_close(advantages, rows_of(ADVANTAGES[name]))
        assert returns is advantages
    others = dict(values=None, grpo_norm_by_std=True, gamma=1.0, lambd=1.0)
    found, _ = skyrl["asymgrpo"](**given, **others)
    torch.testing.assert_close(found, rows_of(ADVANTAGES["asymgrpo"]))


def test_recipe_for_prime_rl(published):
    assigned = {}
    published(
        "prime_rl.orchestrator.algo.base",
        Algorithm=type("Algorithm", (), {}),
        iter_trainable_traces=lambda episodes: [(e, t) for e in episodes for t in e.traces],
    )
    published(
        "prime_rl.orchestrator.algo.routing",
        assign_advantages=lambda trace, values: assigned.update({trace.name: values}),
    )
    namespace = {}
    exec(code_of("prime-rl"), namespace)
    episodes = [
        SimpleNamespace(traces=[SimpleNamespace(name=i, reward=reward)])
        for i, reward in enumerate([-1.0, 1.0, 1.0])
    ]
    asyncio.run(namespace["AsymGrpoAlgorithm"]().score_group(episodes))
    assert [*assigned.values()] == pytest.approx(ADVANTAGES["asymgrpo"][0].tolist())

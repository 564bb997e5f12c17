"""Functions that run elsewhere: pasted beside `import torch` alone, or as docs/elsewhere.md says.

That page's code runs with TRL and verl themselves, and with stand-ins for libraries. A stand-in has
the signatures that the library had at the commit which the page names. The tests with the mark
`trl` need TRL and verl's files, which .ci/run installs.
"""

import asyncio
import copy
import functools
import importlib
import inspect
import re
import sys
from types import ModuleType, SimpleNamespace

from rlvr.machine import global_sum
from rlvr.policy.logprobs import completion_logprobs
from rlvr.tasks.problems import Sample, own_tokens
from rlvr.training.checkpoints import save_folder

import datasets
import numpy as np
import pytest
import torch
from groups import ppo_clip_loss
from runs import ROOT, problems_of, run_python
from test_baselines import COMPLETIONS, MODES, VerlConfig, loss_of, of_verl, random_batch
from test_baselines import LONGEST as LONGEST_OF_FIELD
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

import agrae
import asymgrpo
import common
import cwgrpo
import fade
import grpo
from studies.baselines.losses import LOSSES, up

PAGE = (ROOT / "docs" / "elsewhere.md").read_text()
LONGEST = 8  # tokens of a completion
LOSS = dict(beta=0.3, epsilon=0.02, epsilon_high=0.03)
TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}  # by --aggregation
PASTED = grpo.grpo_advantage, agrae.agrae_advantage, asymgrpo.asymgrpo_advantage
PASTED += fade.fade_advantage, fade.FadeController, cwgrpo.covariance_weights, up


def code_of(heading):
    """The Python blocks of a section, with the functions that it asks for pasted above them."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    return "import torch\n\n" + "\n\n".join([*map(inspect.getsource, PASTED), *blocks])


REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])  # whatever TRL samples


def train(trainer_class, folder, rewards, **settings):
    """Two updates by TRL on 2 groups of 4 -> what it keeps of the rollout, and the trainer."""
    from trl import GRPOConfig

    problems, _ = problems_of("2", 4)
    on_a_cpu = dict(use_cpu=True, bf16=False, gradient_checkpointing=False)
    quiet = dict(save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=1)
    sizes = dict(per_device_train_batch_size=8, num_generations=4, max_completion_length=LONGEST)
    length = dict(max_steps=2, num_iterations=2, learning_rate=1e-3)
    settings |= dict(output_dir=str(folder), **on_a_cpu, **quiet, **sizes, **length, **LOSS)
    trainer = trainer_class(
        str(folder),
        lambda completions, **_: rewards,
        args=GRPOConfig(**settings),
        train_dataset=datasets.Dataset.from_list([dict(prompt=p.prompt) for p in problems[:8]]),
    )
    rollouts, generate = [], trainer._generate_and_score_completions

    def recorded(inputs):
        rollouts.append(generate(inputs))
        return rollouts[-1]

    trainer._generate_and_score_completions = recorded
    trainer.train()
    return rollouts[0], trainer


def of_agrae(rewards):
    return agrae.agrae_advantage(grpo.grpo_advantage(rewards), rewards.mean(1), rewards.mean())


def of_fade(rewards):
    """An untrained policy is nearly uniform: delta is then 1, whatever its entropy is."""
    alpha, delta = fade.FadeController(initial_entropy=3.0).step(rewards.mean(), 3.0)
    assert delta == 1
    return fade.fade_advantage(rewards, alpha, delta)


def samples_of(rollout):
    """What TRL keeps of a rollout as samples, without the padding."""

    def rows_of(part):
        ids, mask = rollout[f"{part}_ids"], rollout[f"{part}_mask"]
        return [row[keep == 1].tolist() for row, keep in zip(ids, mask, strict=True)]

    return [*map(Sample, rows_of("prompt"), rows_of("completion"))]


@pytest.mark.trl
@pytest.mark.parametrize(
    "name, expected, aggregation",
    [
        ("Grpo", grpo.grpo_advantage, "sequence"),
        ("Agrae", of_agrae, "sequence"),
        ("AsymGrpo", asymgrpo.asymgrpo_advantage, "token"),
        ("Fade", of_fade, "constant"),
        ("CwGrpo", grpo.grpo_advantage, "sequence"),
        ("OwnLoss", None, "sequence"),
    ],
)
def test_a_step_of_trl_is_a_step_here(name, expected, aggregation, tiny, tmp_path):
    """Updates of TRL's trainer by the page's recipe, and ours on the same completions."""
    # In the second one some tokens are clipped, and the policy has left the reference.
    exec(code_of("TRL"), page := {})
    settings = page["SAME_LOSS"] | dict(loss_type=TRL_LOSS[aggregation])
    save_folder(tmp_path / "policy", *tiny)  # as a run does
    given = tmp_path / "policy", REWARDS.flatten().tolist()
    rollout, trainer = train(page[name], *given, **settings)
    policy, samples, norms = copy.deepcopy(tiny[0]), samples_of(rollout), []
    mask = own_tokens(samples).float()  # [N, T]
    advantages = expected(REWARDS).flatten() if expected else rollout["advantages"]  # [N]
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-3, weight_decay=0.0)
    how = dict(aggregation=aggregation, max_completion_length=LONGEST, **LOSS)
    for _ in range(2):
        logprobs, _ = completion_logprobs(policy, samples, 1.0, mask.shape[1])  # [N, T]
        if not norms:
            old = logprobs.detach()
            if name == "CwGrpo":
                config, each = cwgrpo.Config(num_generations=4), advantages.view(-1, 1)  # [N, 1]
                advantages = cwgrpo.weigh_tokens(old, each, mask, config) * each  # [N, T]
        given = logprobs, old, advantages, mask
        loss, *clipped = ppo_clip_loss(*given, ref_logprobs=old, **how)
        if name == "OwnLoss":
            ratio = torch.where(mask > 0, logprobs - old, 0).exp()  # [N, T]
            objective = up(ratio, logprobs, advantages[:, None], LOSS["epsilon"])
            loss = -((mask * objective).sum(1) / mask.sum(1)).mean()
        loss.backward()
        norms.append(clip_grad_norm_(policy.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    assert min(clipped) > 0
    before, own, after = (
        parameters_to_vector(each.parameters()) for each in (tiny[0], policy, trainer.model)
    )
    # AdamW's first step tells the direction of the gradient, but not its size
    found = [row["grad_norm"] for row in trainer.state.log_history[:2]]
    assert (after - own).norm() < 2e-4 * (own - before).norm()
    assert found == pytest.approx(norms, rel=1e-4)


@pytest.mark.trl
def test_trl_leaves_out_what_no_function_scored(tiny, tmp_path):
    """Its log has the advantages in use: of 1, 0 and 1, the mean is 2/3, and the std root 2 / 3."""
    exec(code_of("TRL"), page := {})
    save_folder(tmp_path / "policy", *tiny)
    given = tmp_path / "policy", [1.0, 0.0, None, 1.0, None, None, None, None]
    rollout, trainer = train(page["Grpo"], *given, **page["SAME_LOSS"])
    one = 0.5**0.5
    expected = [one, -2 * one, 0, one, 0, 0, 0, 0]
    assert rollout["advantages"].tolist() == pytest.approx(expected, rel=1e-6)
    assert [*trainer._logs["advantages"]] == rollout["advantages"].tolist()


@pytest.fixture
def run_page(monkeypatch):
    """run_page(heading, {module: its names}) -> what a section's code defines, with stand-ins."""

    def run(heading, libraries):
        for path, names in libraries.items():
            parts = path.split(".")
            for i in range(len(parts)):
                monkeypatch.setitem(sys.modules, ".".join(parts[: i + 1]), ModuleType(parts[i]))
            vars(sys.modules[path]).update(names)
        exec(code_of(heading), page := {})
        return page

    return run


# Two prompts, whose rows are mixed.
INDEX = np.array(["b", "a", "b", "a", "a", "b"], dtype=object)
GROUPS = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])  # of a, then of b
ROWS = [3, 0, 4, 1, 2, 5]  # where a row's completion is in the groups
LENGTHS = torch.tensor([[3], [1], [2], [3], [2], [1]])
RESPONSE_MASK = (torch.arange(3) < LENGTHS).float()
ADVANTAGES = {
    "asymgrpo": asymgrpo.asymgrpo_advantage(GROUPS),
    "agrae": of_agrae(GROUPS),
    "fade": fade.fade_advantage(GROUPS, 2.0, 1.0),
}


def registered(run_page, agg_loss=None):
    """The page's functions for verl and SkyRL by their names: advantages of each, verl's losses."""
    verl, skyrl, of_policy = {}, {}, {}
    core_algos = dict(
        agg_loss=agg_loss,
        register_adv_est=lambda name_or_enum: functools.partial(verl.setdefault, name_or_enum),
        register_policy_loss=lambda name: functools.partial(of_policy.setdefault, name),
    )
    registry = SimpleNamespace(register=lambda name, func: skyrl.setdefault(name, func))
    ppo_utils = dict(AdvantageEstimatorRegistry=registry)
    libraries = {"verl.trainer.ppo.core_algos": core_algos}
    libraries |= {"skyrl.backends.skyrl_train.utils.ppo_utils": ppo_utils}
    run_page("verl and SkyRL", libraries)
    return verl, skyrl, of_policy


@pytest.mark.trl
@pytest.mark.parametrize("aggregation", MODES)
def test_a_loss_in_verl(aggregation, run_page):
    """With verl's own sums, its slope in each token's log-prob is that of the loss here."""
    # verl adds 1e-8 to the number of tokens.
    *_, of_policy = registered(run_page, of_verl("agg_loss"))
    divisors = dict(global_batch_size=COMPLETIONS, loss_scale_factor=LONGEST_OF_FIELD)
    config = VerlConfig(clip_ratio=0.2, global_batch_info=divisors)
    batch = random_batch(0)
    new = batch.logprobs.requires_grad_()
    ours, _ = loss_of(batch, LOSSES["up"], aggregation=aggregation, epsilon=0.2)
    given = batch.old_logprobs, new, batch.advantages, batch.loss_mask > 0
    given += MODES[aggregation], config
    theirs, _ = of_policy["up"](*given)
    doubled, _ = of_policy["up"](*given, rollout_is_weights=2 * torch.ones_like(new))
    expected, found = (torch.autograd.grad(loss, new)[0] for loss in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(doubled, 2 * theirs)


def test_recipes_for_verl_and_skyrl(run_page):
    """Each is called with the arguments that the library's trainer gives."""
    # What a failure is worth in the library, here -1, changes nothing.
    verl, skyrl, of_policy = registered(run_page)
    assert [*of_policy] == ["up"]
    assert sorted(verl) == sorted(skyrl) == sorted(ADVANTAGES)
    last = torch.arange(3) == RESPONSE_MASK.sum(1, keepdim=True) - 1  # where the reward stands
    rewards = torch.where(GROUPS > 0, 1.0, -1.0).flatten()[ROWS, None] * last
    given = dict(token_level_rewards=rewards, response_mask=RESPONSE_MASK, index=INDEX, config=None)
    others = dict(values=None, grpo_norm_by_std=True, gamma=1.0, lambd=1.0)
    for name in ADVANTAGES:
        advantages, returns = verl[name](**given)
        expected = ADVANTAGES[name].flatten()[ROWS, None] * RESPONSE_MASK
        torch.testing.assert_close(advantages, expected)
        assert returns is advantages
        assert torch.equal(skyrl[name](**given, **others)[0], advantages)
    given["index"] = np.array([*"baaaab"])  # 2 and 4, which divide 6
    with pytest.raises(ValueError, match="groups of 2 to 4 completions"):
        skyrl["asymgrpo"](**given, **others)


def test_recipe_for_prime_rl(run_page):
    assigned = {}
    base = dict(
        Algorithm=object,
        iter_trainable_traces=lambda episodes: [(e, t) for e in episodes for t in e.traces],
    )
    routing = dict(assign_advantages=lambda trace, values: assigned.update({trace.name: values}))
    libraries = {"prime_rl.orchestrator.algo.base": base}
    libraries |= {"prime_rl.orchestrator.algo.routing": routing}
    libraries |= {"prime_rl.trainer.rl.loss": dict(LossOutputs=SimpleNamespace)}
    page = run_page("prime-rl", libraries)
    episodes = [
        SimpleNamespace(traces=[SimpleNamespace(name=i, reward=reward)])
        for i, reward in enumerate([-1.0, 1.0, 1.0])
    ]
    asyncio.run(page["AsymGrpoAlgorithm"]().score_group(episodes))
    assert [*assigned.values()] == pytest.approx(ADVANTAGES["asymgrpo"][0].tolist())

    # The sums over completions, by the number of tokens, are the loss with the sampler's log-probs.
    batch = random_batch(0)
    theirs = dict(trainer_logprobs=batch.logprobs, inference_logprobs=batch.old_logprobs)
    theirs |= dict(advantages=batch.advantages, loss_mask=batch.loss_mask > 0)
    rows = [SimpleNamespace(**{k: x[i] for k, x in theirs.items()}) for i in range(COMPLETIONS)]
    found = sum(page["ppo_clip"](row).loss for row in rows)
    given = batch.logprobs, batch.old_logprobs, batch.advantages, batch.loss_mask
    own, *_ = ppo_clip_loss(*given, aggregation="token")
    torch.testing.assert_close(found / batch.loss_mask.sum(), own)


def test_each_function_needs_what_the_table_says(tmp_path):
    """In a file of its own, ruff finds no name undefined, also on a branch that no call takes."""
    rows = re.findall(r"^\| (`.*?) \| (\w+)\.py \| (.*)", PAGE, re.M)
    assert len(rows) == 8
    for names, script, needs in rows:
        beside = ["import torch", *re.findall("`((?:import|def) [^`]*)", needs)]
        for name in re.findall(r"\w+", names):
            source = inspect.getsource(getattr(importlib.import_module(script), name))
            (tmp_path / f"{name}.py").write_text("\n".join([*beside, source]))
    ruff = "-m ruff check --isolated --no-cache --select F821 .".split()
    done = run_python(*ruff, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    exec(re.search(r"`(def global_sum.*)`", PAGE)[1], page := {})
    assert page["global_sum"](3, torch.tensor(2.0)) == global_sum(3, torch.tensor(2.0)) == [3, 2]


FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
COUNTS = torch.bool, torch.int32, torch.int64
EMPTY_ROW = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])  # a mask [N, T]


OF_REWARDS = {
    "grpo": grpo.grpo_advantage,
    "dr-grpo": functools.partial(grpo.grpo_advantage, scale_rewards=False),
    "grpo-n": lambda rewards: grpo.negative_only(grpo.grpo_advantage(rewards)),
    "agrae": lambda rewards: agrae.agrae_advantage(
        grpo.grpo_advantage(rewards),
        (rewards == 1).float().mean(1),
        mean_success=1 / 4,
        alpha=1 / 2,
    ),
    "asymgrpo": asymgrpo.asymgrpo_advantage,
    "fade": functools.partial(fade.fade_advantage, alpha=0.5, delta=0.5),
}


@pytest.mark.parametrize("dtype", [*FLOATS, *COUNTS])
@pytest.mark.parametrize("name", OF_REWARDS)
def test_advantages_take_any_rewards(name, dtype):
    """A group of two kinds, one of equal fractions, and one with a NaN, which is not hidden.

    As booleans the equal ones are successes, where FADE's (1 - p)^(alpha - 1) would be infinite.
    """
    advantage, rewards = OF_REWARDS[name], torch.tensor([[1, 0, 0], [0.9, 0.9, 0.9]]).to(dtype)
    (mixed, equal), (expected, _) = advantage(rewards), advantage(rewards.double())
    torch.testing.assert_close(mixed.double(), expected, rtol=0.01, atol=1e-6)
    assert equal.abs().max() <= (0.002 if name in ("dr-grpo", "fade") else 0)
    if dtype in FLOATS:
        hidden = rewards[:1] * torch.tensor([torch.nan, 1, 1])
        assert mixed.dtype == dtype
        assert advantage(hidden)[:, 0].isnan().all()


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_losses_and_weights_take_any_mask_and_infinite_padding(dtype, mask_dtype):
    """Ratios are 1.5 and 1/2, and epsilon 0.2. The loss and its gradient are those by hand."""
    mask, on = EMPTY_ROW.to(mask_dtype), EMPTY_ROW > 0
    old = torch.where(on, torch.tensor([0.5, 0.4, 0.5]).log(), -torch.inf).to(dtype)
    new = torch.where(on, torch.tensor([0.75, 0.2, 0.5]).log(), -torch.inf).to(dtype)
    advantages = torch.tensor([[1.0], [1], [-2]]).to(dtype)
    given = dict(logprobs=new.requires_grad_(), old_logprobs=old, advantages=advantages)
    given |= dict(loss_mask=mask, token_weights=common.token_weights(mask, "token"))
    given |= dict(ref_logprobs=new.detach(), beta=0.1)  # whose KL penalty is 0
    loss, clipped = common.ppo_clip_loss(**given)
    loss.backward()
    objective = [1.2, 0.5, 0, 0, 0, 0, -3.0, -1.6, -2.0]
    assert loss.item() == pytest.approx(-sum(objective) / 5, rel=0.01)
    slopes = torch.tensor([[0, 0.5, 0], [0, 0, 0], [-3.0, 0, -2]]).to(dtype)
    torch.testing.assert_close(new.grad, -slopes / 5, rtol=0.01, atol=0)
    assert clipped["clip_high"].tolist()[0][0] and clipped["clip_low"].tolist()[2][1]

    weights = cwgrpo.covariance_weights
    found = weights(new[None], advantages.T, mask[None])[0]
    assert found.dtype == dtype
    assert found.sum().item() == pytest.approx(5, rel=0.01)
    assert (found[~on] == 0).all()
    assert weights(new[None], torch.nan * advantages.T, mask[None])[0][on].isnan().all()

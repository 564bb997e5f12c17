"""docs/nano.py computes what the five scripts do: rewards, advantages, losses and gradients."""

import importlib
import random
import re

from rlvr.verify.answers import verify_countdown

import pytest
import torch
from groups import every_group, f64, near
from runs import ROOT, SCRIPTS
from torch.nn.utils.rnn import pad_sequence

import common
from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import FadeController, fade_advantage
from grpo import grpo_advantage

# nano.py has GRPO's mean over tokens in all methods, and FADE's controller without a memory.
FLAGS = dict(asymgrpo=dict(aggregation="sequence"))
FLAGS["fade"] = FLAGS["asymgrpo"] | dict(ema_beta=0, target_entropy=0.08)


@pytest.fixture
def nano(monkeypatch):
    """The file as a module, in the sizes of runs.SMALL."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("nano")
    for name, value in dict(STEPS=2, B=4, G=4, MINIBATCH=8, HELD_OUT=16).items():
        monkeypatch.setattr(module, name, value)
    with torch.random.fork_rng():
        yield module


def test_it_is_short_and_imports_nothing_of_the_project():
    text = (ROOT / "docs" / "nano.py").read_text()
    imported = re.findall(r"^ *(?:import|from) (\w+)", text, re.M)
    assert imported == ["random", "re", "sys", "pathlib", "torch", "transformers"]
    assert len(text.splitlines()) <= 130


def as_in_nano(batch):
    """What nano.roll_out returns, for a batch of a script."""
    prompts = [torch.tensor(sample.prompt_ids) for sample in batch.samples]
    completions = [torch.tensor(sample.completion_ids) for sample in batch.samples]
    left = pad_sequence(prompts, True, padding_side="left", padding_value=-1)
    ids = torch.cat([left, pad_sequence(completions, True, padding_value=-1)], 1)  # [N, L + T]
    real = (ids >= 0).float()
    return ids.clamp(min=0), real, real[:, left.shape[1] :], batch.rewards


@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_and_gradients_of_the_scripts(script, nano, run, no_evaluation, monkeypatch, capsys):
    """Two steps of two updates each, with the completions that the script has sampled."""
    batches, losses, updates = [], [], []
    roll_out, backward = common.roll_out, torch.Tensor.backward
    clip = torch.nn.utils.clip_grad_norm_

    def keep_batch(*given):
        batches.append(roll_out(*given))
        return batches[-1]

    def keep_loss(loss):
        losses.append(loss.item())
        backward(loss)

    def keep_update(parameters, most):  # what clips the gradient's norm
        parameters = [*parameters]
        updates.append((sum(losses), torch.cat([each.grad.flatten() for each in parameters])))
        losses.clear()
        return clip(parameters, most)

    monkeypatch.setattr(common, "roll_out", keep_batch)
    monkeypatch.setattr(torch.Tensor, "backward", keep_loss)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", keep_update)
    assert run(script, **FLAGS.get(script, {})).code == 0
    evaluation = [f64([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]])]
    answers = iter([evaluation, *map(as_in_nano, batches), evaluation])
    monkeypatch.setattr(nano, "roll_out", lambda *_: next(answers))
    nano.main(script)
    assert "pass@1 0.250  pass@4 0.500\n" in capsys.readouterr().out
    assert len(updates) == 8
    for (loss, gradient), (expected, theirs) in zip(updates[4:], updates[:4], strict=True):
        assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
        near(gradient / theirs.norm(), theirs / theirs.norm(), atol=1e-5)


def test_advantages_of_the_scripts(nano, monkeypatch):
    """Random rewards and each success rate, CW-GRPO's with a random log-prob per token."""
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr(nano, "G", 8)
    random_rewards = (torch.rand(9, 8, generator=generator) < 0.3).double()
    for r in (every_group(8), random_rewards, f64([[0] * 8]), f64([[1] * 8])):
        w, A, entropy = r.mean().item(), grpo_advantage(r), 0.07 + r.std().item()
        fade = fade_advantage(r, *FadeController(0.1, 0.08, ema_beta=0).step(w, entropy))
        of_agrae = agrae_advantage(A, r.mean(1), w)
        expected = dict(grpo=A, cwgrpo=A, agrae=of_agrae, asymgrpo=asymgrpo_advantage(r), fade=fade)
        for method, advantages in expected.items():
            near(nano.advantage(method, r, f64(entropy)), advantages)
        logp = torch.rand(len(r), 8, 5, generator=generator).double().log()
        mask = (torch.arange(5) < torch.randint(1, 6, (len(r), 8, 1), generator=generator)).double()
        found = nano.weigh_tokens(A.view(-1, 1), logp.view(-1, 5), mask.view(-1, 5))
        near(found.view_as(mask) * mask, covariance_weights(logp, A, mask) * A[..., None], 1e-9)


def test_rewards_of_verify_countdown(nano, monkeypatch):
    """All answers of a run, and each of them with one character changed."""
    verify, changed, rewards = nano.verify, random.Random(0), []

    def check(text, numbers, target):
        gold = f"{' '.join(map(str, numbers))} : {target}"
        place = changed.randrange(len(text) - 9)
        for sign in ("", *changed.choices("123456789+-*/()= ", k=3), "**"):
            other = text[:place] + sign + text[place + changed.randrange(2) :]
            assert verify(other, numbers, target) == verify_countdown(other, gold), other
        rewards.append(verify(text, numbers, target))
        assert rewards[-1] == verify_countdown(text, gold), text
        return rewards[-1]

    monkeypatch.setattr(nano, "verify", check)
    nano.main()
    assert 30 < sum(rewards) < len(rewards) - 30
    for text in ("9**9**9", "9//9+9", "(9)(9)+9", "(9+9+9", "9/(9-9)", "9+9+9</answer><answer>9"):
        assert verify(f"<answer>{text}</answer>", [9, 9, 9], 27) == 0


def test_the_mask_ends_with_each_completion(nano, tiny):
    """The untrained policy writes end tokens anywhere, or none."""
    ids, _, mask, _ = nano.roll_out(*tiny, [([1, 2, 3], 6)] * 8)
    for row, counted in zip(ids[:, -mask.shape[1] :].tolist(), mask.tolist(), strict=True):
        assert sum(counted) == (row.index(1) + 1 if 1 in row else len(row))

"""docs/nano.py computes what the five scripts do: rewards, advantages, losses and gradients."""

import importlib.util
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

FILE = ROOT / "docs" / "nano.py"
# nano.py has GRPO's mean over tokens in all methods, and FADE's controller without a memory.
FLAGS = {"asymgrpo": dict(aggregation="sequence")}
FLAGS["fade"] = dict(aggregation="sequence", ema_beta=0, target_entropy=0.08)


@pytest.fixture
def nano(monkeypatch):
    """The file as a module, in the sizes of runs.SMALL."""
    spec = importlib.util.spec_from_file_location("nano", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in dict(STEPS=2, B=4, G=4, MINIBATCH=8, HELD_OUT=16).items():
        monkeypatch.setattr(module, name, value)
    with torch.random.fork_rng():
        yield module


def test_it_is_short_and_imports_nothing_of_the_project():
    text = FILE.read_text()
    imported = re.findall(r"^ *(?:import|from) (\w+)", text, re.M)
    assert imported == ["random", "re", "sys", "pathlib", "torch", "transformers"]
    assert len(text.splitlines()) <= 130


def as_in_nano(samples):
    """What nano.roll_out returns, for the samples of a script's batch."""
    prompts = [torch.tensor(sample.prompt_ids) for sample in samples]
    completions = [torch.tensor(sample.completion_ids) for sample in samples]
    left = pad_sequence(prompts, True, padding_side="left", padding_value=-1)
    ids = torch.cat([left, pad_sequence(completions, True, padding_value=-1)], 1)  # [N, L + T]
    real = (ids >= 0).float()
    rewards = torch.tensor([sample.reward for sample in samples])
    return ids.clamp(min=0), real, real[:, left.shape[1] :], rewards.view(4, 4)


@pytest.mark.parametrize("script", SCRIPTS)
def test_losses_and_gradients_of_the_scripts(script, nano, run, no_evaluation, monkeypatch):
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

    def keep_update(parameters, most):
        parameters = [*parameters]
        updates.append((sum(losses), torch.cat([each.grad.flatten() for each in parameters])))
        losses.clear()
        return clip(parameters, most)

    monkeypatch.setattr(common, "roll_out", keep_batch)
    monkeypatch.setattr(torch.Tensor, "backward", keep_loss)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", keep_update)
    assert run(script, **FLAGS.get(script, {})).code == 0
    evaluation, given = [torch.ones(1, 1)], [as_in_nano(batch.samples) for batch in batches]
    answers = iter([evaluation, *given, evaluation])
    monkeypatch.setattr(nano, "roll_out", lambda *_: next(answers))
    nano.main(script)
    assert len(updates) == 8
    for (loss, gradient), (expected, theirs) in zip(updates[4:], updates[:4], strict=True):
        assert loss == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert theirs.norm() > 0.01
        near(gradient / theirs.norm(), theirs / theirs.norm(), atol=1e-5)


def test_advantages_of_the_scripts(nano, monkeypatch):
    """Each success rate, and random rewards, of which CW-GRPO's also have a log-prob per token."""
    generator = torch.Generator().manual_seed(0)
    random_rewards = (torch.rand(9, 8, generator=generator) < 0.3).double()
    monkeypatch.setattr(nano, "G", 8)
    for r in (every_group(8), random_rewards, torch.zeros(3, 8), torch.ones(3, 8)):
        r, w = r.double(), r.mean().item()
        for entropy in (0.01, 0.5, 2.0):
            alpha, delta = FadeController(0.1, 0.08, ema_beta=0).step(w, entropy)
            expected = {
                "grpo": grpo_advantage(r),
                "cwgrpo": grpo_advantage(r),
                "agrae": agrae_advantage(grpo_advantage(r), r.mean(1), w),
                "asymgrpo": asymgrpo_advantage(r),
                "fade": fade_advantage(r, alpha, delta),
            }
            for method, advantages in expected.items():
                near(nano.advantage(method, r, f64(entropy)), advantages)
        logp = torch.rand(len(r), 8, 5, generator=generator).double().log()
        lengths = torch.randint(1, 6, (len(r), 8, 1), generator=generator)
        mask, A = (torch.arange(5) < lengths).double(), grpo_advantage(r)
        found = nano.weigh_tokens(A.view(-1, 1), logp.view(-1, 5), mask.view(-1, 5))
        expected = covariance_weights(logp, A, mask) * A[..., None]
        near(found.view_as(mask) * mask, expected, atol=1e-9)


def test_rewards_of_verify_countdown(nano, monkeypatch, capsys):
    """All answers of a run, and each of them with one character changed."""
    verify, changed = nano.verify, random.Random(0)
    count = {0.0: 0, 1.0: 0}

    def check(text, numbers, target):
        gold = f"{' '.join(map(str, numbers))} : {target}"
        place = changed.randrange(len(text) - 9)
        for sign in ("", *changed.choices("123456789+-*/()= ", k=3), "**"):
            other = text[:place] + sign + text[place + changed.randrange(2) :]
            assert verify(other, numbers, target) == verify_countdown(other, gold), other
        reward = verify(text, numbers, target)
        assert reward == verify_countdown(text, gold), text
        count[reward] += 1
        return reward

    monkeypatch.setattr(nano, "verify", check)
    nano.main()
    assert min(count.values()) > 30
    for text in ("9**9**9", "9//9+9", "(9)(9)+9", "(9+9+9", "9/(9-9)", "9+9+9</answer><answer>9"):
        assert nano.verify(f"<answer>{text}</answer>", [9, 9, 9], 27) == 0
    assert verify("<answer>(9 + 9)+ 9</answer>", [9, 9, 9], 27) == 1
    before, *steps, after = capsys.readouterr().out.splitlines()
    assert [step.split()[0] for step in steps] == ["1/2", "2/2"]
    for line in (before, after):
        assert re.fullmatch(r"held out  pass@1 0\.\d{3}  pass@4 [01]\.\d{3}", line)

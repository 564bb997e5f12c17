"""Numbers that go wrong and rollouts at the edges, for all five scripts: no update where there is nothing to learn."""
import math
from pathlib import Path

import pytest
import torch

import common
import tasks
from test_scripts import SCRIPTS, bare, cache_dir, refused, resume, rows, run, steps, weights  # noqa: F401

@pytest.fixture
def rollouts(monkeypatch):
    """rollouts(groups): what every rollout then gives; a group is a list of (prompt length, token ids, reward)."""
    def set_rollouts(groups):
        samples = [common.Sample([7] * length, ids, "", reward, False, [-1.0] * len(ids))
                   for group in groups for length, ids, reward in group]
        monkeypatch.setattr(common, "roll_out_step", lambda *_: samples)
    return set_rollouts

def poisoned(monkeypatch, value, updates):
    """Makes the loss of the updates in the set `updates`, counted from 0, the value."""
    clip_loss, step, done = common.ppo_clip_loss, common.Run.optimizer_step, []

    def bad_loss(*given, **named):
        loss = clip_loss(*given, **named)
        return loss._replace(loss=loss.loss * value) if len(done) in updates else loss

    monkeypatch.setattr(common, "ppo_clip_loss", bad_loss)
    monkeypatch.setattr(common.Run, "optimizer_step", lambda *given: (step(*given), done.append(1))[0])

@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_update_that_is_not_finite_is_skipped_and_counted(run, monkeypatch, script, value):
    """The last update of the first step; the step after it trains as ever."""
    poisoned(monkeypatch, value, {1})
    result = run(script, max_steps=2, beta=0.1)  # with the KL penalty there is a gradient whatever was solved
    assert result.code == 0, result.err
    assert result.out.count("no update: the loss or the gradient is NaN or infinite") == 1
    first, second = rows("run")
    assert [first["skipped"], second["skipped"]] == [1, 1]
    assert not math.isfinite(first["loss"]) and math.isfinite(second["loss"]) and second["grad_norm"] > 0
    for step in (1, 2):
        assert all(value.isfinite().all() for value in weights(f"run/checkpoint-{step}").values())

def test_a_skipped_update_leaves_weights_and_momentum_alone(run, monkeypatch):
    run("grpo", max_steps=1, minibatch_size=16, output_dir="start", learning_rate=0)
    poisoned(monkeypatch, math.nan, {0})
    run("grpo", max_steps=1, minibatch_size=16, output_dir="skipped", learning_rate=1)
    before, after = weights("start/checkpoint-1"), weights("skipped/checkpoint-1")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.load("skipped/checkpoint-1/state.pt")["optimizer"] == {}

def test_a_loss_that_is_infinite_while_its_gradient_is_not(run, monkeypatch):
    clip_loss = common.ppo_clip_loss
    monkeypatch.setattr(common, "ppo_clip_loss",
                        lambda *given, **named: (lambda loss: loss._replace(loss=loss.loss + math.inf))(
                            clip_loss(*given, **named)))
    result = run("grpo", max_steps=1, entropy_coef=0.01)
    assert result.code == 0 and math.isfinite(rows("run")[0]["grad_norm"]) and rows("run")[0]["skipped"] == 2

def test_too_many_in_a_row_end_the_run(run, resume, monkeypatch):
    """Three updates in a row; two and one with a good one in between do not, nor does a new start forget them."""
    with monkeypatch.context() as patch:
        poisoned(patch, math.nan, {0, 1, 3})
        assert run("grpo", max_steps=2, max_skipped_updates=3, beta=0.1, output_dir="not").code == 0
    with monkeypatch.context() as patch:
        poisoned(patch, math.nan, {1, 2, 3})
        result = run("grpo", max_steps=3, max_skipped_updates=3, beta=0.1)
    assert refused(result, "grpo", "3 updates in a row", "--learning_rate", "run/metrics.jsonl")
    assert steps("run") == [1] and Path("run/checkpoint-1").exists()
    poisoned(monkeypatch, math.nan, {0, 1})
    result = resume("grpo", "run", max_steps=2)
    assert refused(result, "grpo", "3 updates in a row")

def test_a_learning_rate_that_destroys_the_policy_ends_in_one_line(run):
    assert refused(run("grpo", learning_rate=1e30, beta=0.1, max_steps=3), "grpo", "--learning_rate")

@pytest.mark.parametrize("script, flags", [*((script, {}) for script in SCRIPTS if script != "asymgrpo"),
                                           ("asymgrpo", dict(variant="grpo"))])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_only_solved_or_only_unsolved_groups_make_no_update_and_say_so(run, rollouts, script, flags, reward):
    run(script, max_steps=1, learning_rate=0, output_dir="start", **flags)
    rollouts([[(4, [5, 9, 1], reward)] * 4] * 4)
    result = run(script, max_steps=1, **flags)
    assert result.code == 0, result.err
    assert result.out.count("no update: the gradient is 0") == 2  # of two minibatches
    assert rows("run")[0]["grad_norm"] == 0 and rows("run")[0]["skipped"] == 0
    before, after = weights("start/checkpoint-1"), weights("run/checkpoint-1")
    assert all(torch.equal(before[name], after[name]) for name in before)

@pytest.mark.parametrize("script", SCRIPTS)
def test_completions_that_are_empty_or_only_the_stop_token(run, rollouts, script):
    """Beside ordinary ones, as all of a group, and where every completion is only the stop token."""
    groups = [[(4, [], 0.0), (4, [1], 0.0), (4, [5, 9, 1], 1.0), (4, [5, 1], 0.0)], [(3, [], 0.0)] * 4,
              [(3, [], 1.0), (3, [1], 0.0), (3, [], 0.0), (3, [], 0.0)], [(3, [1], 1.0)] * 2 + [(3, [1], 0.0)] * 2]
    for folder, given in (("mixed", groups), ("stop", [[(3, [1], float(i == 0)) for i in range(4)]] * 4)):
        rollouts(given)
        result = run(script, max_steps=1, output_dir=folder, beta=0.01, entropy_coef=0.01)
        assert result.code == 0, result.err
        assert all(math.isfinite(value) for value in rows(folder)[0].values())
        assert rows(folder)[0]["grad_norm"] > 0

@pytest.mark.parametrize("script", SCRIPTS)
def test_two_completions_of_one_prompt(run, rollouts, script):
    """G = 2 and B = 1, with a contrast, without one, and as the policy itself writes them."""
    smallest = dict(prompts_per_step=1, num_generations=2, minibatch_size=2, max_steps=1)
    assert run(script, output_dir="own", **smallest).code == 0
    rollouts([[(4, [5, 9, 1], 1.0), (4, [6, 1], 0.0)]])
    result = run(script, output_dir="contrast", **smallest)
    assert result.code == 0, result.err
    assert rows("contrast")[0]["reward"] == 0.5 and rows("contrast")[0]["grad_norm"] > 0
    for folder in ("own", "contrast"):
        assert all(math.isfinite(value) for value in rows(folder)[0].values())

def test_a_prompt_of_the_maximum_length_is_kept_and_one_token_more_is_not(run, monkeypatch):
    """Prompts of two numbers have 8 or 9 tokens, such as "3 9 : 12 "."""
    monkeypatch.setattr(common, "load_problems", tasks.load_problems)
    tokenizer, lengths = common.build_tiny()[1], []
    for longest in (8, 9):
        config = tasks.Config(numbers="2", max_prompt_length=longest, eval_problems=4)
        lengths.append({len(tokenizer.encode(problem.prompt)) for problem in tasks.load_problems(config, tokenizer)[0]})
    assert lengths == [{8}, {8, 9}]
    result = run("grpo", max_prompt_length=8, max_steps=1)
    assert result.code == 0 and "over 8 tokens" in result.out

def test_a_completion_longer_than_the_context_is_refused_before_training(run):
    assert refused(run("grpo", max_completion_length=1025), "grpo", "context of 1024", "--max_completion_length")
    assert not list(Path("run").glob("*.jsonl"))

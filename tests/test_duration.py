"""The estimate of how long a step takes."""

import time
from types import SimpleNamespace

import rlvr.duration
from rlvr import world
from rlvr.config import Config
from rlvr.duration import mean_prompt, seconds_of_a_step, tell_duration, thin_policy
from rlvr.presets import ARITHMETIC, LARGE
from rlvr.tasks.arithmetic import draw_arithmetic

import pytest
import torch
import transformers

SHAPE = transformers.Qwen2Config(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=7,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def config_of(**flags):
    return Config(**{**LARGE, **ARITHMETIC, "gradient_checkpointing": False, **flags})


@pytest.fixture
def made_up_times(monkeypatch):
    """Passes of known seconds: 1 and 2 for the two thin policies, and 10 for the head's work."""

    def passes(shape, config, prompt, layers):
        size = 1 if layers == rlvr.duration.FEW else 2
        return size * 1.0, size * 100.0, size * 10_000.0

    monkeypatch.setattr(rlvr.duration, "seconds_of_passes", passes)
    monkeypatch.setattr(rlvr.duration, "seconds", lambda work: 10.0)


def test_a_step_by_hand(made_up_times):
    """Seven layers take 1 + 6 / 2 = 4 times as long as one: 4, 400 and 40,000 s.

    8 prompts x 8 completions, of 20 and 10 tokens. The rollout reads 64 x 20 tokens, then draws 10
    tokens for all completions at once, for 40,000 and 10 s each. The update is on 64 x 30 tokens,
    and the head's on 64 x 10, 64 of which take 10 s.
    """
    rollout, update = seconds_of_a_step(SHAPE, config_of(), 20)
    assert rollout == 64 * 20 * 4 + 10 * 40_010
    assert update == 64 * 30 * 400 + 10 * 10


def test_what_flags_and_ranks_change(made_up_times, monkeypatch):
    rollout, update = seconds_of_a_step(SHAPE, config_of(), 20)
    again = seconds_of_a_step(SHAPE, config_of(gradient_checkpointing=True), 20)
    assert again == (rollout, update + 64 * 30 * 4)
    assert seconds_of_a_step(SHAPE, config_of(num_iterations=3), 20) == (rollout, 3 * update)
    halves = seconds_of_a_step(SHAPE, config_of(rollout_batch_size=32), 20)
    assert halves == (64 * 20 * 4 + 2 * 10 * 40_010, update)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    assert seconds_of_a_step(SHAPE, config_of(), 20)[1] == update / 2


@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        transformers.Qwen3Config(**{**SHAPE.to_dict(), "model_type": "qwen3", "head_dim": 8}),
        transformers.LlamaConfig(**{**SHAPE.to_dict(), "model_type": "llama"}),
    ],
    ids=lambda shape: shape.model_type,
)
def test_the_thin_policy_has_the_layers_of_the_whole(shape):
    """It works on a CPU, and its size is that of a layer; the given shape stays as it is."""
    before = shape.to_dict()
    policy, size = thin_policy(shape, 2, trust_remote_code=False)
    with torch.device("meta"):
        whole = transformers.AutoModelForCausalLM.from_config(shape).base_model
    assert size == sum(parameter.numel() for parameter in whole.layers[0].parameters())
    assert len(policy.layers) == 2
    hidden = policy(input_ids=torch.zeros(3, 5, dtype=torch.long)).last_hidden_state
    assert hidden.shape == (3, 5, 32)
    assert shape.to_dict() == before


def test_seconds_are_the_least_of_three():
    waits = iter([0.05, 0.01, 0.03])
    assert 0.01 <= rlvr.duration.seconds(lambda: time.sleep(next(waits))) < 0.03


def test_the_mean_prompt_is_that_of_the_set(tiny):
    """A token is a character here. Without a chat template the system prompt is a line above."""
    config = config_of(dataset="arithmetic", system_prompt="none")
    questions = [problem.prompt for problem in draw_arithmetic(config)[0][:64]]
    assert mean_prompt(config, tiny[1]) == round(sum(map(len, questions)) / 64)
    with_system = mean_prompt(config_of(dataset="arithmetic"), tiny[1])
    assert with_system == mean_prompt(config, tiny[1]) + len("Answer with a number only.\n\n")


def test_what_is_printed(made_up_times, capsys, monkeypatch, tiny):
    tell_duration(SHAPE, config_of(dataset="gsm8k", max_prompt_length=20), tiny[1])
    rollout, update = 64 * 20 * 4 + 10 * 40_010, 64 * 30 * 400 + 10 * 10
    assert capsys.readouterr().out == (
        f"with prompts and completions at full length about {rollout + update} s a step on this "
        f"CPU: {rollout} for the rollout, {update} for the update\n"
    )
    tell_duration(SHAPE, config_of(dataset="arithmetic"), tiny[1])
    assert capsys.readouterr().out.startswith("about ")
    monkeypatch.setattr(world, "RANK", 1)
    tell_duration(SHAPE, config_of(dataset="gsm8k"), SimpleNamespace())
    assert capsys.readouterr().out == ""


def test_with_bf16_the_time_without_it_is_printed_too(capsys, monkeypatch, tiny):
    """On a CPU without instructions for bf16 a step takes many times as long."""
    times = {True: (70.4, 440.2), False: (15.0, 39.3)}
    monkeypatch.setattr(rlvr.duration, "seconds_of_a_step", lambda _, c, __: times[c.bf16])
    tell_duration(SHAPE, config_of(dataset="arithmetic", bf16=True), tiny[1])
    assert capsys.readouterr().out == (
        "about 511 s a step on this CPU: 70 for the rollout, 440 for the update; "
        "without --bf16 about 54\n"
    )


def test_a_thin_policy_may_have_more_layers_than_the_model():
    shape = transformers.Qwen2Config(
        num_hidden_layers=1,
        hidden_size=8,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=8,
        vocab_size=8,
    )
    policy, _ = thin_policy(shape, 3, trust_remote_code=False)
    assert len(policy.layers) == 3

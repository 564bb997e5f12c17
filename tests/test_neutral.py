"""Each paper's script with its idea switched off is grpo.py."""
import importlib
import json
import sys

import pytest
import torch
import transformers

import common
import tasks
from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from fade import fade_advantage
from grpo import grpo_advantage

SMALL = "--numbers 2 --sft_steps 80 --max_steps 2 --prompts_per_step 4 --num_generations 4 --minibatch_size 8 " \
        "--eval_problems 2 --eval_samples 2 --output_dir run"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """trained("grpo --variant dapo") runs that command in this process -> final parameters, rows of metrics.jsonl."""
    cache, done = tmp_path_factory.mktemp("cache"), {}

    def run(command):
        if command not in done:
            script, *flags = command.split()
            folder = tmp_path_factory.mktemp(script)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setattr(sys, "argv", [f"{script}.py", *SMALL.split(), "--cache_dir", str(cache), *flags])
                module = importlib.import_module(script)
                common.launch(module.main, tasks.parse_flags(module.Config, module.VARIANTS))
            policy = transformers.AutoModelForCausalLM.from_pretrained(folder / "run" / "checkpoint-2")
            weights = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
            done[command] = weights, list(map(json.loads, (folder / "run" / "metrics.jsonl").open()))
        return done[command]
    return run


@pytest.fixture(scope="module")
def final_weights(trained):
    return lambda command: trained(command)[0]


@pytest.mark.parametrize("neutral, plain", [
    ("agrae --sample_level false --group_level false", "grpo"),
    ("agrae --method none", "grpo"),
    ("fade --weight power --weight_args alpha=1,delta=1", "grpo --variant dr-grpo"),
    ("fade --alpha_max 1 --target_entropy 0", "grpo --variant dr-grpo"),  # limits that leave alpha = delta = 1
    ("cwgrpo --variant grpo", "grpo")])
def test_neutral_settings_train_bit_for_bit_alike(final_weights, neutral, plain):
    assert torch.equal(final_weights(neutral), final_weights(plain))


def test_other_settings_do_not(final_weights):
    """The comparison above can fail."""
    for command in ("agrae", "fade", "cwgrpo", "grpo --variant dr-grpo"):
        assert not torch.equal(final_weights(command), final_weights("grpo"))


def test_equalized_learning_rate(final_weights):
    """With four completions a prompt max |A| is sqrt(3) for GRPO and 3/4 for r - mean (003 section 11.3)."""
    equal = final_weights("fade --weight mean --equalize_learning_rate true")
    by_hand = final_weights(f"fade --weight mean --learning_rate {1e-4 * 3**0.5 / 0.75}")
    torch.testing.assert_close(equal, by_hand, rtol=0, atol=1e-6)  # fp32 weights near 1 resolve 1e-7; a step is 2e-4
    assert not torch.equal(equal, final_weights("fade --weight mean"))


def test_log_gain_only_looks(trained):
    """The gain of the successes is logged where there are any, and training is the same with and without it."""
    (plain, _), (logged, rows) = trained("asymgrpo"), trained("asymgrpo --log_gain true")
    assert torch.equal(plain, logged)
    assert all((row["success_gain"] != 0) == (row["reward"] > 0) for row in rows) and any(row["reward"] for row in rows)


def gradient(policy, samples, advantages):
    """The gradient of the PPO-clip loss at ratio 1, flat."""
    policy.zero_grad()
    logprobs, _ = common.token_logprobs(policy, samples, range(len(samples)))
    mask = common.completion_mask(samples, policy.device)
    common.ppo_clip_loss(logprobs, logprobs.detach(), advantages, mask).loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])


@pytest.mark.parametrize("neutral, plain", [
    (lambda r: asymgrpo_advantage(r, 0.5, 0.5), grpo_advantage),
    (lambda r: agrae_advantage(grpo_advantage(r), r.mean(1), 0.4, sample_level=False, group_level=False),
     grpo_advantage),
    (lambda r: fade_advantage(r, 1.0, 1.0), lambda r: grpo_advantage(r, scale_rewards=False))])
def test_neutral_gradients(tiny, neutral, plain):
    policy, tokenizer = tiny
    texts = ["<think>1+2=3</think><answer>1+2</answer><eos>", "<answer>2</answer><eos>", "1+1=2", "<think><eos>"] * 3
    samples = [common.Sample(tokenizer.encode("1 2 : 3 "), tokenizer.encode(text)) for text in texts]
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    ours = gradient(policy, samples, neutral(rewards).flatten())
    grpos = gradient(policy, samples, plain(rewards).flatten())
    assert grpos.abs().max() > 1e-3
    torch.testing.assert_close(ours, grpos, rtol=0, atol=1e-7)


def test_weights_of_one_are_no_weights(tiny):
    """CW-GRPO's advantage, one a token, with all weights 1."""
    policy, tokenizer = tiny
    samples = [common.Sample([7, 8], tokenizer.encode(text)) for text in ("1+2<eos>", "3", "<think>4*4<eos>", "5<eos>")]
    advantages = grpo_advantage(torch.tensor([[1.0, 0.0, 0.0, 1.0]])).flatten()
    per_token = advantages[:, None] * torch.ones_like(common.completion_mask(samples, policy.device))
    assert torch.equal(gradient(policy, samples, per_token), gradient(policy, samples, advantages))

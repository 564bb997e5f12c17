"""Each paper's script with its idea switched off is grpo.py."""
import importlib
import sys

import pytest
import torch
import transformers

import common
from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from fade import fade_advantage
from grpo import grpo_advantage

SMALL = "--numbers 2 --sft_steps 80 --max_steps 2 --prompts_per_step 4 --num_generations 4 --minibatch_size 8 " \
        "--eval_problems 2 --eval_samples 2 --output_dir run"


@pytest.fixture(scope="module")
def final_weights(tmp_path_factory):
    """final_weights("grpo --variant dapo") runs that command in this process -> the parameters of its checkpoint."""
    cache, done = tmp_path_factory.mktemp("cache"), {}

    def run(command):
        if command not in done:
            script, *flags = command.split()
            folder = tmp_path_factory.mktemp(script)
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                patch.setattr(sys, "argv", [f"{script}.py", *SMALL.split(), "--cache_dir", str(cache), *flags])
                module = importlib.import_module(script)
                common.launch(module.main, module.Config, module.VARIANTS)
            policy = transformers.AutoModelForCausalLM.from_pretrained(folder / "run" / "checkpoint-2")
            done[command] = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        return done[command]
    return run


@pytest.mark.parametrize("neutral, plain", [
    ("agrae --sample_level false --group_level false", "grpo"),
    ("fade --weight power --weight_args alpha=1,delta=1", "grpo --variant dr-grpo"),
    ("fade --alpha_max 1 --target_entropy 0", "grpo --variant dr-grpo"),  # limits that leave alpha = delta = 1
    ("cwgrpo --variant grpo", "grpo")])
def test_neutral_settings_train_bit_for_bit_alike(final_weights, neutral, plain):
    assert torch.equal(final_weights(neutral), final_weights(plain))


def test_other_settings_do_not(final_weights):
    """The comparison above can fail."""
    for command in ("agrae", "fade", "cwgrpo", "grpo --variant dr-grpo"):
        assert not torch.equal(final_weights(command), final_weights("grpo"))


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

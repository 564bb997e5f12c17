"""Half precision: rollouts by weights cast to it, and --precision, which works on a CPU, too."""

import contextlib
import copy
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.policy.logprobs
from rlvr.flags.config import Config
from rlvr.policy import models
from rlvr.policy.logprobs import microbatches
from rlvr.policy.reader import product
from rlvr.policy.sharding import add_up_gradients, shard, whole
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.problems import Sample, padded
from rlvr.training.checkpoints import save_folder
from rlvr.training.run import Run
from rlvr.training.updates import UpdateMetrics

import pytest
import torch
from samples import PROMPTS, some_samples

import common
from common import token_logprobs


@pytest.fixture
def policies(sharp, tmp_path):
    save_folder(tmp_path / "policy", *sharp)
    return [
        models.load_policies(Config(model=str(tmp_path / "policy"), precision=wanted))[0]
        for wanted in ("auto", "bf16")
    ]


def rollout(sampler):
    prompts = [sampler.tokenizer.encode(prompt) for prompt in PROMPTS]
    torch.manual_seed(0)
    with contextlib.suppress(ZeroDivisionError), sampler.synced():  # a rollout that fails, too
        completions, logprobs = sampler.generate(prompts, temperature=0.7, top_p=1.0, max_tokens=12)
        raise ZeroDivisionError
    return prompts, completions, logprobs


def test_a_rollout_is_that_of_a_bf16_copy_which_follows_the_policy(policies, sharp):
    """Bit for bit. After the rollout the copy is gone: an update needs its memory."""
    sampler = Sampler(policies[1], sharp[1], Config(), common.decode)
    prompts, completions, logprobs = first = rollout(sampler)
    assert {parameter.dtype for parameter in sampler.policy.parameters()} == {torch.float32}
    plain = copy.deepcopy(sampler.policy)
    for parameter in plain.parameters():
        parameter.data = parameter.data.bfloat16()
    assert rollout(Sampler(plain, sharp[1], Config(), common.decode)) == first
    samples = [Sample(prompt, ids) for prompt, ids in zip(prompts, completions, strict=True)]
    in_fp32, _ = token_logprobs(policies[0], samples, range(len(samples)), 0.7)
    gaps = (padded(logprobs) - in_fp32)[padded(logprobs) < 0].abs()
    assert 1e-4 < gaps.mean() < 0.1  # so it did compute in bf16
    assert sampler.cap == 2.0  # its log-probs are weighed
    with torch.no_grad():
        for parameter in sampler.policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert rollout(sampler) != first


@pytest.mark.parametrize(
    "device, capability, wanted, precision",
    [
        ("cuda", (8, 0), "auto", "bf16"),
        ("cuda", (7, 5), "auto", "fp32"),
        ("cuda", (7, 5), "fp16", "fp16"),
        ("cuda", (9, 0), "fp32", "fp32"),
        ("cpu", (), "auto", "fp32"),
    ],
)
def test_a_gpu_computes_in_bf16_if_it_can(
    monkeypatch, capsys, device, capability, wanted, precision
):
    """A T4 has 7.5, and is told so; the flag has the last word."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(models, "choose_device", lambda wanted: torch.device(device))
    head = SimpleNamespace(weight=torch.zeros(26, 1))
    policy = SimpleNamespace(get_input_embeddings=lambda: head)
    monkeypatch.setattr(models, "load_weights", lambda *_: policy)
    models.load_policies(config := Config(precision=wanted))
    assert config.precision == precision
    said = capsys.readouterr().out
    assert ("this GPU has no bf16" in said) == (capability == (7, 5) and wanted == "auto")


def gradient_of(policy, samples, token_budget):
    """Log-probs [N, T], and the gradient of their sum, in microbatches of so many tokens."""
    found = {}
    for part in microbatches(samples, range(len(samples)), token_budget):
        logprobs, _ = token_logprobs(policy, samples, part)
        logprobs.sum().backward()
        found |= dict(zip(part, logprobs.detach(), strict=True))
    gradients = [parameter.grad for parameter in policy.parameters()]
    assert {gradient.dtype for gradient in gradients} == {policy.dtype}
    policy.zero_grad()
    in_order = torch.stack([found[row] for row in range(len(samples))])
    return in_order, torch.cat([whole(gradient).flatten() for gradient in gradients])


def test_log_probs_and_gradients_are_those_in_fp32_but_for_rounding(policies, tiny, monkeypatch):
    """Also in many microbatches, and where activations are computed twice."""
    samples, products = some_samples(tiny[1]), Mock(wraps=product)
    monkeypatch.setattr(rlvr.policy.logprobs, "product", products)
    (logprobs, gradient), whole = (gradient_of(policy, samples, 10**6) for policy in policies)
    dtypes = [call.args[0].dtype for call in products.call_args_list]
    assert dtypes == [torch.float32] * 2 + [torch.bfloat16] * 3  # the head's, the largest ones
    assert 1e-4 < (whole[0] - logprobs).abs().mean() < 0.05
    assert 1e-4 < (whole[1] - gradient).norm() / gradient.norm() < 0.03
    assert len(microbatches(samples, range(len(samples)), 40)) > 2
    _, parts = gradient_of(policies[1], samples, 40)
    assert (parts - whole[1]).norm() / whole[1].norm() < 0.01
    # as transformers 5.24 names it
    policies[1].activation_checkpointing_enable = policies[1].gradient_checkpointing_enable
    policies[1].gradient_checkpointing_enable = None
    models.checkpoint_gradients(policies[1])
    again = gradient_of(policies[1], samples, 10**6)
    assert policies[1].training  # or transformers would keep all of them
    for one, other in zip(whole, again, strict=True):
        assert (one - other).norm() / one.norm() < 0.02
    with torch.no_grad():
        token_logprobs(policies[1], samples, [0])
    assert not policies[1].training  # in which some routers add noise


def test_an_update_in_fp16_is_that_in_fp32_but_for_rounding(policies, tiny):
    """The scale keeps the gradients of tokens with small weights from underflow."""
    samples, gradients = some_samples(tiny[1]), []
    for policy, dtype in zip(policies, (torch.float32, torch.float16), strict=True):
        policy.settings.dtype = dtype
        logprobs, entropies = token_logprobs(policy, samples, range(len(samples)))
        (1e-6 * logprobs + 1e-7 * entropies).sum().backward()
        add_up_gradients(policy)
        gradients.append(torch.cat([weight.grad.flatten() for weight in policy.parameters()]))
    in_fp32, in_fp16 = gradients
    assert 1e-5 < (in_fp16 - in_fp32).norm() / in_fp32.norm() < 0.005
    policies[1].zero_grad()
    policies[1].settings.loss_scale = 1.0  # what the scale is for
    token_logprobs(policies[1], samples, range(len(samples)))[0].mul(1e-6).sum().backward()
    lost = sum(int((weight.grad == 0).sum()) for weight in policies[1].parameters())
    assert lost > 2 * int((in_fp16 == 0).sum())


def test_an_overflow_in_fp16_skips_the_update_and_halves_the_scale(policies, tiny):
    policy, samples = policies[1], some_samples(tiny[1])
    policy.settings.dtype, policy.settings.loss_scale = torch.float16, 2.0**40
    before = copy.deepcopy(policy.state_dict())
    run = object.__new__(Run)
    run.config, run.updates, run.skipped_in_a_row = Config(), UpdateMetrics(), 0
    run.training = SimpleNamespace(policy=policy)
    optimizer = torch.optim.AdamW(policy.parameters())
    token_logprobs(policy, samples, range(len(samples)))[0].sum().backward()
    common.optimizer_step(policy, optimizer, run)
    assert policy.settings.loss_scale == 2.0**39 and run.skipped_in_a_row == 1
    assert all(weight.equal(before[name]) for name, weight in policy.state_dict().items())


def test_a_sharded_policy_is_gathered_in_bf16(policies, tiny, alone):
    samples, plain = some_samples(tiny[1]), copy.deepcopy(policies[1]).bfloat16()
    plain.base_model.rotary_emb = policies[1].base_model.rotary_emb  # FSDP casts weights alone
    expected = gradient_of(plain, samples, 10**6)
    shard(policies[1])
    assert policies[1]._get_fsdp_state()._mp_policy.reduce_dtype == torch.float32
    sampler = Sampler(policies[1], tiny[1], Config(), common.decode)
    with sampler.synced():
        sampler.generate([[3, 4]], temperature=0.0, top_p=1.0, max_tokens=2)
        assert {parameter.dtype for parameter in policies[1].parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in policies[1].parameters()} == {torch.float32}
    for one, other in zip(gradient_of(policies[1], samples, 10**6), expected, strict=True):
        assert one.dtype == torch.float32 and one.equal(other.float())  # bit for bit

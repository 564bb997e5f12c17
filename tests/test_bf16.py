"""--bf16: forward passes on a CPU in the numbers that a GPU computes in."""

import copy

from rlvr.config import Config
from rlvr.duration import seconds_of_passes
from rlvr.logprobs import microbatches
from rlvr.presets import ARITHMETIC, LARGE
from rlvr.samplers import GenerateSampler

import pytest
import torch
from runs import ROOT, SCRIPTS, SMALL, arguments, assert_finite, first_fast, rows, steps, weights
from samples import some_samples
from test_duration import SHAPE
from test_ranks import finish, two_ranks
from torch.utils._python_dispatch import TorchDispatchMode

from common import token_logprobs


class Products(TorchDispatchMode):
    """Notes in which numbers matrices are multiplied within it."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if function is torch.ops.aten.mm.default:
            self.dtypes.add(result.dtype)
        return result


@pytest.fixture
def policies(sharp):
    """The same policy twice, the second one as --bf16 has it."""
    in_fp32, in_bf16 = copy.deepcopy(sharp[0]), copy.deepcopy(sharp[0])
    in_bf16.bf16 = True
    return in_fp32, in_bf16


def gradient_of(policy, samples, token_budget):
    """Log-probs [N, T], and the gradient of their sum, in microbatches of so many tokens."""
    found = {}
    for part in microbatches(samples, range(len(samples)), token_budget):
        logprobs, _ = token_logprobs(policy, samples, part)
        logprobs.sum().backward()
        found |= dict(zip(part, logprobs.detach(), strict=True))
    gradients = [parameter.grad for parameter in policy.parameters()]
    assert {gradient.dtype for gradient in gradients} == {torch.float32}
    policy.zero_grad()
    in_order = torch.stack([found[row] for row in range(len(samples))])
    return in_order, torch.cat([gradient.flatten() for gradient in gradients])


def test_log_probs_and_gradients_are_those_in_fp32_but_for_rounding(policies, tiny):
    samples = some_samples(tiny[1])
    (logprobs, gradient), (near, near_gradient) = (
        gradient_of(policy, samples, 10**6) for policy in policies
    )
    assert 1e-4 < (near - logprobs).abs().mean() < 0.05
    assert 1e-4 < (near_gradient - gradient).norm() / gradient.norm() < 0.03


def test_microbatches_add_up_to_one(policies, tiny):
    """But for rounding, which depends on what is multiplied at once."""
    samples = some_samples(tiny[1])
    assert len(microbatches(samples, range(len(samples)), 40)) > 2
    whole, parts = (gradient_of(policies[1], samples, budget)[1] for budget in (10**6, 40))
    assert (parts - whole).norm() / whole.norm() < 0.01


def test_activations_that_are_computed_again_are_the_same(policies, tiny):
    samples = some_samples(tiny[1])
    kept = gradient_of(policies[1], samples, 10**6)
    policies[1].gradient_checkpointing_enable()
    again = gradient_of(policies[1], samples, 10**6)
    for one, other in zip(kept, again, strict=True):
        assert (one - other).norm() / one.norm() < 0.02


def test_the_sampler_copies_the_policy_and_its_log_probs_are_weighed(policies, tiny):
    """Sampler and trainer round by kernels of their own."""
    found = [GenerateSampler(policy, tiny[1], Config()) for policy in policies]
    assert [sampler.wants_twin for sampler in found] == [False, True]
    assert [sampler.cap for sampler in found] == [0.0, 2.0]


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_run(run, script):
    """The mismatch of sampler and trainer is that of bf16; what is saved stays in fp32."""
    for number, flags in (("32", {}), ("16", dict(bf16="true"))):
        result = run(script, eval_steps=2, save_steps=2, output_dir=number, **flags)
        assert result.code == 0, result.err
        assert_finite(number)
    assert all(row["mismatch"] < 1e-5 for row in rows("32"))
    assert all(1e-4 < row["mismatch"] < 0.02 for row in rows("16"))
    saved = weights("16/checkpoint-2")
    assert {value.dtype for value in saved.values()} == {torch.float32}
    trained_in_fp32 = weights("32/checkpoint-2")
    assert any(not torch.equal(value, trained_in_fp32[name]) for name, value in saved.items())


def test_a_resumed_run_is_the_same_run(run, resume):
    run("grpo", bf16="true", max_steps=2, output_dir="at once")
    run("grpo", bf16="true", max_steps=1, output_dir="in two")
    assert resume("grpo", "in two", max_steps=2).code == 0
    assert rows("in two") == rows("at once")
    assert rows("in two", "eval") == rows("at once", "eval")


def test_a_resumed_run_computes_in_the_same_numbers(run, resume):
    run("grpo", bf16="true", max_steps=1)
    result = resume("grpo", "run", max_steps=2, bf16="false")
    assert result.code == 2
    assert "--bf16 False (was True)" in result.err


@pytest.mark.slow
@pytest.mark.parametrize("fsdp", ["--fsdp", "--no_fsdp"])
def test_two_ranks(cache_dir, tmp_path, fsdp):
    """Sharded, weights are gathered in bf16 for rollouts and updates alike."""
    flags = {**SMALL, "eval_steps": 2, "save_steps": 2, "cache_dir": cache_dir}
    given = [*arguments(**flags, output_dir=tmp_path / "run"), "--bf16", fsdp]
    finish(two_ranks(ROOT / "grpo.py", *given), folder=tmp_path)
    assert steps(tmp_path / "run") == [1, 2]
    assert_finite(tmp_path / "run")
    assert all(1e-4 < row["mismatch"] < 0.02 for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("bf16, dtype", [(False, torch.float32), (True, torch.bfloat16)])
def test_the_time_of_a_step_is_estimated_in_the_same_numbers(bf16, dtype):
    config = Config(**{**LARGE, **ARITHMETIC, "gradient_checkpointing": False, "bf16": bf16})
    with Products() as products:
        times = seconds_of_passes(SHAPE, config, 20, 1)
    assert products.dtypes == {dtype}
    assert min(times) > 0

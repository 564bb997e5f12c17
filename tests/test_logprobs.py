"""Log-probs and entropies: tiles against the textbook's definition, padding, half precision."""

import contextlib
import copy
import functools
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.policy.logprobs
from rlvr.flags.config import Config
from rlvr.policy import models
from rlvr.policy.logprobs import LinearLogProbs, frozen_logprobs, microbatches, tile_width
from rlvr.policy.reader import product
from rlvr.policy.sharding import add_up_gradients, shard, whole
from rlvr.rollout.samplers import Sampler
from rlvr.tasks.problems import Sample, padded
from rlvr.training.checkpoints import save_folder
from rlvr.training.run import Run
from rlvr.training.updates import UpdateMetrics

import pytest
import torch
from groups import near
from samples import PROMPTS, some_samples
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

import common
from common import token_logprobs


def by_definition(hidden, weight, targets, temperature):
    """The log-probs and entropies of a softmax over all logits [M, V]."""
    softmax = torch.distributions.Categorical(logits=hidden @ weight.T / temperature)
    return softmax.log_prob(targets), softmax.entropy()


def results_of(function, hidden, weight, targets, temperature, factors):
    """Log-probs, entropies, and the gradients of both for hidden and weight, asked for twice."""
    logprobs, entropies = function(hidden, weight, targets, temperature)
    loss = (factors[0] * logprobs + factors[1] * entropies).sum()
    asked = [torch.autograd.grad(loss, (hidden, weight), retain_graph=True) for _ in range(2)]
    return logprobs, entropies, *asked[0], *asked[1]


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor that torch makes within it, in backward passes, too."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.parametrize("words", [50, 7, 1])
def test_linear_logprobs_in_tiles(monkeypatch, words):
    """A tile has at most 2**22 logits, so 9 tokens that claim to be 2**22 // 7 get 7 words."""
    torch.manual_seed(0)
    hidden = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 2, dtype=torch.float64, requires_grad=True)
    # so that one tile can hold nearly all of the probability, whichever it is
    weight = weight * 5
    targets = torch.tensor([0, 6, 7, 24, 25, 48, 49, 49, 13])
    factors = torch.randn(2, 9, dtype=torch.float64)
    factors[1, 3] = 0  # as of a token that is left out of the loss
    inputs = (hidden, weight, targets, 0.9, factors)
    expected = results_of(by_definition, *inputs)

    def claimed_length(value):
        return 2**22 // words if getattr(value, "shape", 0) == hidden.shape else len(value)

    monkeypatch.setattr("rlvr.policy.logprobs.len", claimed_length, raising=False)
    with LargestResult() as largest:
        got = results_of(LinearLogProbs.apply, *inputs)
    # 2**22 tokens times 50 words are too many to keep
    found, _ = LinearLogProbs.apply(*inputs[:4])  # torch 2.11 drops what it saved without these
    saved = found.grad_fn.saved_tensors
    assert any(tensor.shape == (9, min(words, 50)) for tensor in saved) == (words > 1)
    assert largest.numel == max(9 * words, weight.numel())  # no [9, 50] was made
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("words", [26, 20_011, 151_936])
def test_float32_is_as_exact_as_log_softmax(monkeypatch, words):
    """Up to 4e-6, whatever the size and offset of the logits: the last bit of a number above 32."""
    # The logits are multiples of 2^-10, so that no product rounds them.
    torch.manual_seed(0)
    monkeypatch.setattr("rlvr.policy.logprobs.tile_width", lambda *_: 20_000)
    for size, offset in ((1, 0), (10, 0), (50, 0), (1, 300), (10, 300)):
        z = (torch.randn(words) * size * 2**10).round() / 2**10
        weight = torch.stack([z, torch.ones(words)], 1)  # [V, 2]
        hidden = torch.tensor([[scale, offset] for scale in (1, 0.5, 0.25, -1)] * 2)  # [8, 2]
        targets = torch.cat([torch.randint(words, (4,)), (hidden[:4] @ weight.T).argmax(1)])
        logp = (hidden @ weight.T).log_softmax(1)  # [8, V]
        plain = logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(1)
        exact = by_definition(hidden.double(), weight.double(), targets, 1.0)
        tiles = LinearLogProbs.apply(hidden, weight, targets, 1.0)
        for found, simple, right in zip(tiles, plain, exact, strict=True):
            limit = (simple - right).abs().max() + 4e-6
            assert (found - right).abs().max() < limit, (size, offset)


def test_the_width_of_a_tile():
    """At most 2**22 logits on a CPU. On a GPU 2**25, in rows of aligned lengths, or 256 words."""
    assert [tile_width(tokens, gpu=False) for tokens in (0, 1000, 2**23)] == [2**22, 4194, 1]
    assert [tile_width(tokens, gpu=True) for tokens in (1000, 2**20)] == [131 * 256, 256]


def test_a_token_without_any_probability():
    """exp(-1000) is 0, whose log is infinite; it adds nothing to the entropy or its gradient."""
    hidden, weight = torch.tensor([[1000.0]], requires_grad=True), torch.tensor([[1.0], [0.0]])
    weight.requires_grad_()
    factors = torch.ones(2, 1)
    found = results_of(LinearLogProbs.apply, hidden, weight, torch.tensor([0]), 1.0, factors)
    assert not any(each.any() for each in found)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
def test_products_of_bfloat16_are_added_up_in_float32(monkeypatch, weight_dtype):
    """Rounded logits would be off by 0.03, and gradients by 0.5%. What is handed on is rounded."""
    torch.manual_seed(0)
    hidden = torch.randn(256, 256).bfloat16().requires_grad_()
    weight = (torch.randn(2048, 256) / 4).bfloat16().to(weight_dtype).requires_grad_()
    targets, factors = torch.randint(2048, (256,)), torch.randn(2, 256)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    expected = results_of(by_definition, *exact, targets, 1.0, factors)
    limits = {torch.bfloat16: 0.003, torch.float32: 0.002}
    for width in (2048, 100):
        monkeypatch.setattr("rlvr.policy.logprobs.tile_width", lambda *_, width=width: width)
        found = results_of(LinearLogProbs.apply, hidden, weight, targets, 1.0, factors)
        near(found[0], expected[0], atol=1e-4)
        near(found[1], expected[1], atol=1e-4)
        dtypes = [torch.float32] * 2 + [torch.bfloat16, weight_dtype] * 2
        assert [values.dtype for values in found] == dtypes
        for gradient, right in zip(found[2:], expected[2:], strict=True):
            assert (gradient - right).norm() < limits[gradient.dtype] * right.norm()


def test_a_rank_with_fewer_rows_makes_as_many_passes_as_the_others(sharp, monkeypatch):
    """In evaluations ranks have unequal shares. A pass that one leaves out would hang the rest."""
    samples, config = some_samples(sharp[1], 3), Config(temperature=0.7)
    expected = frozen_logprobs(sharp[0], samples, config)
    passes = Mock(wraps=rlvr.policy.logprobs.completion_logprobs)
    monkeypatch.setattr("rlvr.policy.logprobs.completion_logprobs", passes)
    monkeypatch.setattr("rlvr.policy.logprobs.global_max", lambda count: max(count, 5))
    torch.testing.assert_close(frozen_logprobs(sharp[0], samples, config), expected)
    assert passes.call_count == 5


@pytest.mark.parametrize(
    "budget, group_size, parts",
    [
        # each group of a prompt fits, and so its completions stay together
        (20, None, [[0, 1], [2, 3], [4, 5]]),
        (40, None, [[0, 1, 2, 3], [4, 5]]),
        # a group does not: rows by their lengths, of which one alone may be over the budget
        (18, None, [[0, 2, 4], [1], [3], [5]]),
        (1, None, [[0], [2], [4], [1], [3], [5]]),
        (19, 2, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_microbatches_by_hand(budget, group_size, parts):
    """Three prompts with two completions each: texts of 6 and of 10 tokens."""
    samples = [Sample([prompt] * 4, [7] * length) for prompt in (1, 2, 3) for length in (2, 6)]
    assert microbatches(samples, torch.arange(6), budget, group_size) == parts


def test_microbatches_are_as_many_as_those_of_the_rank_with_the_most(monkeypatch):
    """For the ranks gather sharded weights together, once a microbatch. All are of one prompt."""
    samples = [Sample([0], [0] * (length - 1)) for length in (3, 2, 9, 2, 2)]
    for of_another_rank, budget, count in ((0, 6, 3), (4, 6, 4), (5, 6, 5), (0, 45, 1), (5, 45, 5)):
        of_both = functools.partial(max, of_another_rank)
        monkeypatch.setattr("rlvr.policy.logprobs.global_max", of_both)
        parts = microbatches(samples, range(5), budget)
        assert len(parts) == count and all(parts)
        assert sorted(row for part in parts for row in part) == [0, 1, 2, 3, 4]


def test_compiled_layers_give_the_same_and_one_program_is_enough(sharp, tmp_path, monkeypatch):
    """For batches of two shapes, of layers that torch traces, but makes no program of."""
    compile_module = torch.nn.Module.compile
    traced_only = functools.partialmethod(compile_module, backend="eager")
    monkeypatch.setattr(torch.nn.Module, "compile", traced_only)
    torch._dynamo.reset()
    counters.clear()
    sharp[0].save_pretrained(tmp_path)
    config = Config(compile=True, precision="fp32")
    policy = models.load_weights(str(tmp_path), config, torch.device("cpu"))
    samples, made = some_samples(sharp[1]), []
    worth_it = rlvr.policy.logprobs.is_shorter_by_prompt  # lengths differ more then
    assert [worth_it(each, samples[:1] * 4) for each in (sharp[0], policy)] == [True, False]
    for part in ([0, 1], [2, 3, 4]):
        with torch.no_grad():
            frozen, _ = common.token_logprobs(policy, samples, part, 0.7)
        expected, found = (
            common.token_logprobs(each, samples, part, 0.7)[0] for each in (sharp[0], policy)
        )
        torch.testing.assert_close(frozen, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        found.sum().backward()
        made.append(counters["stats"]["unique_graphs"])
    # completions are written without it, or each token would be compiled, as the cache has grown
    how = dict(temperature=0.0, top_p=1.0, max_tokens=8)
    Sampler(policy, sharp[1], Config(), common.decode).generate([[3, 4], [5]], **how)
    made.append(counters["stats"]["unique_graphs"])
    assert made[0] >= 2 and {*made} == {made[0]}
    torch._dynamo.reset()


@pytest.fixture
def policies(sharp, tmp_path):
    folder = tmp_path / "policy"
    save_folder(folder, *sharp)
    configs = [Config(model=str(folder), precision=wanted) for wanted in ("auto", "bf16")]
    return [models.load_policies(config)[0] for config in configs]


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
def test_a_gpu_has_bf16_if_it_can(monkeypatch, capsys, device, capability, wanted, precision):
    """A T4 has 7.5, and is told so; the flag has the last word."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(models, "choose_device", lambda wanted: torch.device(device))
    monkeypatch.setattr(models, "load_weights", Mock(side_effect=InterruptedError))
    config = Config(precision=wanted, dataset="arithmetic")  # which the tiny policy does not know
    with contextlib.suppress(InterruptedError):
        models.load_policies(config)
    assert config.precision == precision
    said = capsys.readouterr().out
    assert "the tiny policies know Countdown alone" in said
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
    monkeypatch.setattr("rlvr.policy.logprobs.product", products)
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

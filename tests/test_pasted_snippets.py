"""Each pure function runs alone: pasted beside nothing but `import torch`."""

import builtins
import dis
import importlib
import inspect
import re
import types

import pytest
import torch
from runs import ROOT, SCRIPTS

# What else uses more than torch: the other ranks, other functions, or `re`.
NOT_PURE = """agrae.difficulty_metrics asymgrpo.global_kappa asymgrpo.success_gain
cwgrpo.format_reward cwgrpo.weigh_tokens
fade.head_change fade.learning_rate_factor studies.baselines.advantages.batch_std
studies.baselines.advantages.gdpo studies.baselines.advantages.named
studies.baselines.advantages.t2t studies.baselines.advantages.grpo_lead_advantage
studies.baselines.losses.loss_with""".split()
OF_A_RUN = ("Config", "configure", "main", "compute_advantages")


def globals_of(code):
    """The names that the functions compiled into `code` look up outside themselves."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    instructions = [found for part in inner for found in dis.get_instructions(part)]
    names = {found.argval for found in instructions if found.opname == "LOAD_GLOBAL"}
    return names.union(*map(globals_of, inner))


@pytest.mark.parametrize(
    "name", [*SCRIPTS, "studies.baselines.advantages", "studies.baselines.losses"]
)
def test_every_other_function_needs_torch_alone(name):
    """Also on a branch that no call takes, and where it is defined."""
    for function, value in vars(importlib.import_module(name)).items():
        if getattr(value, "__module__", "") != name or function in OF_A_RUN:
            continue
        code = compile(inspect.getsource(value), f"<{function}, pasted>", "exec")
        is_pure = globals_of(code) <= {"torch", *vars(builtins)}
        assert is_pure != (f"{name}.{function}" in NOT_PURE), function
        if is_pure:
            exec(code, {"torch": torch})


FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64
COUNTS = torch.bool, torch.int32, torch.int64
EMPTY_ROW = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1]])  # a mask [N, T]


def pasted(name, **beside):
    """A function of a script or of common.py as a reader has it: in a file without the rest."""
    script, _, function = name.partition(".")
    source = inspect.getsource(getattr(importlib.import_module(script), function))
    exec(source, namespace := {"torch": torch, **beside})
    return namespace[function]


ADVANTAGES = {
    "grpo": lambda rewards: pasted("grpo.grpo_advantage")(rewards),
    "dr-grpo": lambda rewards: pasted("grpo.grpo_advantage")(rewards, scale_rewards=False),
    "grpo-n": lambda rewards: pasted("grpo.negative_only")(ADVANTAGES["grpo"](rewards)),
    "agrae": lambda rewards: pasted("agrae.agrae_advantage")(
        ADVANTAGES["grpo"](rewards), (rewards == 1).float().mean(1), mean_success=1 / 4, alpha=1 / 2
    ),
    "asymgrpo": lambda rewards: pasted("asymgrpo.asymgrpo_advantage")(rewards, 1.0, 0.5),
    "fade": lambda rewards: pasted("fade.fade_advantage")(rewards, alpha=2.0, delta=0.5),
}
# of a group with one success in three: the advantage of the success, and of a failure
ONE_OF_THREE = {"grpo": (2**0.5, -(2**-0.5)), "dr-grpo": (2 / 3, -1 / 3), "grpo-n": (0, -(2**-0.5))}
SCALE = 3**0.5 / 8 + 3 / 8 * 1.5**0.5  # of A-GRAE, with w = 1/4 and p = 1/3
ONE_OF_THREE |= {"agrae": (2**0.5 * SCALE / 2, -(2**-0.5) * SCALE)}
ONE_OF_THREE |= {"asymgrpo": (2, -(2**-0.5)), "fade": (4 / 9, -4 / 9)}


@pytest.mark.parametrize("dtype", [*FLOATS, *COUNTS])
@pytest.mark.parametrize("name", ADVANTAGES)
def test_pasted_advantages_take_any_rewards(name, dtype):
    """A group of two kinds, one of equal fractions, and one with a NaN, which is not hidden."""
    rewards = torch.tensor([[1, 0, 0], [0.9, 0.9, 0.9]]).to(dtype)
    mixed, equal = ADVANTAGES[name](rewards).double()
    success, failure = ONE_OF_THREE[name]
    expected = torch.tensor([success, failure, failure]).double()
    torch.testing.assert_close(mixed, expected, rtol=0.01, atol=1e-6)
    if dtype != torch.bool or name != "asymgrpo":  # as a boolean, 0.9 is a success
        assert equal.abs().max() <= (0.002 if name in ("dr-grpo", "fade") else 0)
    if dtype in FLOATS:
        hidden = rewards[:1] * torch.tensor([torch.nan, 1, 1])
        assert ADVANTAGES[name](rewards).dtype == dtype
        assert ADVANTAGES[name](hidden)[:, 0].isnan().all()


@pytest.mark.parametrize("dtype", [*FLOATS, *COUNTS])
def test_pasted_token_weights_take_any_mask(dtype):
    """What stands for `global_sum` is on the page; an empty completion counts as one."""
    page = (ROOT / "docs" / "elsewhere.md").read_text()
    exec(re.search(r"`(def global_sum.*)`", page)[1], beside := {})
    token_weights = pasted("common.token_weights", **beside)
    found = [token_weights(EMPTY_ROW.to(dtype), *how) for how in AGGREGATIONS]  # 3 x [3, 3]
    expected = [[[1 / 6] * 3, [0] * 3, [1 / 9] * 3], [[1 / 5] * 3] * 3, [[1 / 12] * 3] * 3]
    wanted = torch.tensor(expected) * EMPTY_ROW
    torch.testing.assert_close(torch.stack(found).float(), wanted, rtol=0.01, atol=0)
    assert not any(token_weights(0 * EMPTY_ROW.to(dtype), *how).any() for how in AGGREGATIONS)


AGGREGATIONS = ("sequence",), ("token",), ("constant", 4)


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_pasted_losses_and_weights_take_infinite_padding(dtype, mask_dtype):
    """Ratios are 1.5 and 1/2, and epsilon 0.2. The loss and its gradient are those by hand."""
    mask, on = EMPTY_ROW.to(mask_dtype), EMPTY_ROW > 0
    old = torch.where(on, torch.tensor([0.5, 0.4, 0.5]).log(), -torch.inf).to(dtype)
    new = torch.where(on, torch.tensor([0.75, 0.2, 0.5]).log(), -torch.inf).to(dtype)
    advantages = torch.tensor([[1.0], [1], [-2]]).to(dtype)
    loss, clipped = pasted("common.ppo_clip_loss")(
        logprobs=new.requires_grad_(),
        old_logprobs=old,
        advantages=advantages,
        loss_mask=mask,
        token_weights=(on / 5).to(dtype),
        ref_logprobs=new.detach(),  # whose KL penalty is 0
        beta=0.1,
    )
    loss.backward()
    objective = [1.2, 0.5, 0, 0, 0, 0, -3.0, -1.6, -2.0]
    assert loss.item() == pytest.approx(-sum(objective) / 5, rel=0.01)
    slopes = torch.tensor([[0, 0.5, 0], [0, 0, 0], [-3.0, 0, -2]]).to(dtype)
    torch.testing.assert_close(new.grad, -slopes / 5, rtol=0.01, atol=0)
    assert clipped["clip_high"].tolist()[0][0] and clipped["clip_low"].tolist()[2][1]

    weights = pasted("cwgrpo.covariance_weights")
    found = weights(new[None], advantages.T, mask[None])[0]
    assert found.dtype == dtype
    assert found.sum().item() == pytest.approx(5, rel=0.01)
    assert (found[~on] == 0).all()
    assert (weights(new[None], 0 * advantages.T, mask[None])[0] == on).all()  # equal rewards
    assert weights(new[None], torch.nan * advantages.T, mask[None])[0][on].isnan().all()

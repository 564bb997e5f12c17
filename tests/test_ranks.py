"""Several ranks: the mathematics of one, what they exchange, and their devices."""

import contextlib
import copy
import functools
import os
import random
import sys
import traceback
from datetime import timedelta
from unittest.mock import Mock

import rlvr.machine.ranks as machine_ranks
import rlvr.tasks.datasets
import rlvr.training.run
import rlvr.training.updates
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.command_line import parse_flags
from rlvr.machine.ranks import choose_device
from rlvr.policy.logprobs import completion_logprobs
from rlvr.policy.sharding import shard, whole
from rlvr.tasks.problems import Sample
from rlvr.training.run import Run, launch

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import transformers
from runs import before_calls, countdown_problems, first_fast, module_of, rows
from samples import writer_of_batch
from torch.distributed.tensor import DTensor

import common
from studies.baselines import losses as losses_of_others

FLAGS = (
    "--max_steps 2 --prompts_per_step 8 --num_generations 4 --minibatch_size 16 --eval_problems 3 "
    "--eval_samples 2 --eval_steps 9 --beta 0.01 --entropy_coef 0.01"
).split()
# of baselines.py: what asks the other ranks, makes passes of its own, or keeps another policy
METHODS = """--token clip_cov --clip_cov_fraction 0.3 --advantage grpo_lead
--token high_entropy
--token otb
--advantage batch_std
--advantage gdpo --format_share 0.5
--loss kl_cov --kl_cov_fraction 1
--teacher strong --aggregation constant
--staleness 1""".splitlines()
# script and variant, and more flags
RUNS = [("grpo", "grpo"), ("grpo", "gspo"), ("grpo", "dapo"), ("agrae", "agrae")]
RUNS += [("asymgrpo", "asymgrpo"), ("fade", "fade"), ("cwgrpo", "cwgrpo")]
RUNS += [("baselines", "grpo", method) for method in METHODS]
# How many ranks, and their flags. The first way is what the others are compared with.
WAYS = {
    "one microbatch": (1, []),
    "many microbatches": (1, ["--microbatch_tokens", "120"]),
    "two ranks, sharded": (2, ["--microbatch_tokens", "120"]),
    "two ranks, replicated": (2, ["--fsdp", "no_shard"]),
}


def roll_out(rng, sampler, stream, config):
    """In place of common.roll_out: the same completions whatever the number of ranks."""
    with sampler.synced():  # what a rollout gathers is sharded again before the update
        sampler.generate([[8, 9]], temperature=0.0, top_p=1.0, max_tokens=2)
    groups = []
    for _ in range(config.prompts_per_step):
        prompt, longest = rng.choices(range(13, 23), k=rng.randint(3, 9)), rng.choice((2, 6, 40))
        group = []
        for _ in range(config.num_generations):
            ids = [*rng.choices(range(8, 24), k=rng.randint(0, longest)), sampler.stops[0]]
            right = rng.random() < 0.5
            given = dict(reward=float(right), logprobs=[-1.0] * len(ids), success=right)
            group.append(Sample(prompt, ids, **given))
        groups.append(group)
    samples = sum(groups[world.RANK :: world.WORLD_SIZE], [])
    writer = writer_of_batch(sampler.tokenizer)
    writer.policy = sampler.policy  # whose covariances Clip-Cov asks for
    batch = common.make_batch(samples, config, writer)
    batch.loss_mask[:, 9::10] = 0  # a loss mask of one's own
    return batch


def evaluate(sampler, *_):
    """In place of common.evaluate, which leaves the policy sharded, too."""
    with sampler.synced():
        return [{"set": "countdown", "pass@1": 0.0}]


def train(folder, way, flags, script, variant, *method):
    """Train a script, and keep (loss, gradient) of each update and the weights it has saved."""
    losses, updates, policies = [], [], []  # of the microbatches since an update; of all updates

    def add(metrics, loss, *_, **__):
        losses.append(loss.item())

    def step(policy, optimizer, run):
        gradients = [whole(parameter.grad).flatten().clone() for parameter in policy.parameters()]
        gradient = torch.cat(gradients)
        if world.WORLD_SIZE > 1 and run.config.fsdp == "no_shard":
            dist.all_reduce(gradient)
        updates.append((machine_ranks.global_sum(sum(losses))[0], gradient))
        losses.clear()
        policies.append(policy)

    place = f"{folder}/{way}"
    flags = [*FLAGS, *flags, *" ".join(method).split()]
    sys.argv = [f"{script}.py", *flags, "--variant", variant, "--output_dir", place]
    module = module_of(script)
    common.roll_out = functools.partial(roll_out, random.Random(0))
    with pytest.MonkeyPatch.context() as patch:
        before_calls(patch, rlvr.training.updates.UpdateMetrics, "add", add)
        before_calls(patch, common, "optimizer_step", step)
        launch(module.main, parse_flags(module.Config, module.VARIANTS))
    if world.RANK == 0:
        saved = safetensors.torch.load_file(f"{place}/checkpoint-2/model.safetensors")
        names = [name for name, _ in policies[-1].named_parameters()]
        weights = torch.cat([saved.pop(name).flatten() for name in names])
        assert not saved  # tied weights are saved once
        torch.save((updates, weights, rows(place)), f"{place}.pt")


def train_in_a_fork(folder, way, flags, run):
    """All is in double precision: Adam's steps are as long for a gradient that is but rounding."""
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    auto = transformers.AutoModelForCausalLM
    read_model = auto.from_pretrained
    auto.from_pretrained = lambda *given, **named: read_model(*given, **named).double()
    rlvr.tasks.datasets.load_problems = countdown_problems
    common.evaluate = evaluate
    Run.finish = lambda run: None
    # An unsure policy has no covariance above 1; from 0 on there are tokens to detach.
    losses_of_others.clip_cov_mask = functools.partial(losses_of_others.clip_cov_mask, low=0.0)
    rlvr.machine.process_group = contextlib.nullcontext
    rlvr.machine.end_one_of_several_ranks = lambda: None
    if world.WORLD_SIZE > 1:
        of_ranks = dict(rank=world.RANK, world_size=world.WORLD_SIZE)
        dist.init_process_group("gloo", init_method=f"file://{folder}/{way} meet", **of_ranks)
    train(folder, way, flags, *run)
    if world.WORLD_SIZE > 1:
        dist.destroy_process_group()


def run_in_forks(count, folder, *training):
    children = []
    for rank in range(count):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                torch.set_num_threads(1)  # a fork has lost the threads of a pool
                world.RANK = world.LOCAL_RANK = rank
                world.WORLD_SIZE = world.LOCAL_WORLD_SIZE = count
                train_in_a_fork(folder, *training)
                os._exit(0)
            except BaseException:
                (folder / f"{rank}.log").write_text(traceback.format_exc())
                os._exit(1)
    ended = [os.waitpid(child, 0)[1] for child in children]
    assert ended == [0] * count, [log.read_text() for log in folder.glob("*.log")]


@pytest.fixture(scope="module", params=first_fast([(run,) for run in RUNS]), ids="-".join)
def trained(request, tmp_path_factory):
    """Of each way: [(loss, gradient)] of the updates, last weights, metrics."""
    folder = tmp_path_factory.mktemp("ranks")
    for way, (count, flags) in WAYS.items():
        run_in_forks(count, folder, way, flags, request.param)
    return {way: torch.load(folder / f"{way}.pt") for way in WAYS}


@pytest.mark.parametrize("way", [*WAYS][1:])
def test_the_same_loss_gradients_and_weights(trained, way):
    """With KL penalty and entropy bonus, four updates of two rollouts, 1 to 41 tokens."""
    expected_updates, expected_weights, expected_rows = trained["one microbatch"]
    updates, weights_at_the_end, found = trained[way]
    for row, expected_row in zip(found, expected_rows, strict=True):
        assert row == pytest.approx(expected_row, 1e-5, 1e-5) and 0.8 < row["loss_share"] < 1
    assert len(updates) == len(expected_updates) == 4
    for (loss, gradient), expected in zip(updates, expected_updates, strict=True):
        expected_loss, expected_gradient = expected
        assert loss == pytest.approx(expected_loss, abs=1e-5)
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)
        assert expected_gradient.norm() > 1e-2
    torch.testing.assert_close(weights_at_the_end, expected_weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_policy_gives_everything_back(tiny, alone, frozen):
    """A reference policy has no backward pass after which embedding and head could go."""
    policy = copy.deepcopy(tiny[0])
    shard(policy, frozen)
    with torch.no_grad():
        completion_logprobs(policy, [Sample([8, 9], [10, 11])], 1.0, 2)
    for name, value in policy.named_parameters():
        assert isinstance(value, DTensor) == (frozen or ".layers." in name), name


def test_sums_means_and_groups_of_two_ranks(monkeypatch):
    """The other rank's part stands behind ours."""
    others = [[7, 8], [[5.0, 1.0]], [[1.5]], [3.0]]
    # the prompts 0 and 2 are ours, and 1 and 3 the other's, whose longest completion is longer
    others.append([[torch.tensor([[[1.0, 1.0]], [[3.0, 3.0]]])]])

    def all_gather(parts, mine):
        parts[:] = mine, others.pop(0)

    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(torch.distributed, "all_gather_object", all_gather)
    assert machine_ranks.gather([6]) == [6, 7, 8]
    assert machine_ranks.global_sum(1, torch.tensor(2.0)) == [6.0, 3.0]
    assert machine_ranks.global_mean(torch.tensor([0.0, 1.0])) == [1.0]
    assert machine_ranks.global_max(2.0) == 3.0
    (found,) = machine_ranks.gather_groups(1, torch.tensor([[9.0], [2.0]]))
    assert found.tolist() == [[[9.0, 0.0]], [[1.0, 1.0]], [[2.0, 0.0]], [[3.0, 3.0]]]


@pytest.mark.parametrize(
    "there, wanted, rank, device",
    [
        (None, "auto", 0, "cpu"),
        ("cuda", "auto", 3, "cuda:3"),
        ("cuda", "auto", 4, "local rank 4 sees 4 GPUs: "),
        ("cuda", "cpu", 0, "cpu"),
        ("xpu", "auto", 0, "xpu:0"),
        ("mps", "auto", 0, "cpu"),  # nobody has seen it work
        ("mps", "cuda", 0, "--device cuda: torch finds none"),
    ],
)
def test_the_device_that_a_rank_takes(monkeypatch, there, wanted, rank, device):
    chosen, kind = [], there and torch.device(there)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: kind)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", chosen.append)
    monkeypatch.setattr(world, "LOCAL_RANK", rank)
    if " " in device:
        with pytest.raises(UserError, match=f"^{device}"):
            choose_device(wanted)
        return
    assert choose_device(wanted) == torch.device(device)
    assert chosen == ([] if device == "cpu" else [rank, False])


def test_objects_go_over_the_cpu(monkeypatch):
    """A GPU would hold their pickles twice. Ranks may wait for each other in a long evaluation."""
    connect = Mock()
    monkeypatch.setattr(dist, "init_process_group", connect)
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    with machine_ranks.process_group(torch.device("cuda")):
        connect.assert_called_once_with("cpu:gloo,cuda:nccl", timeout=timedelta(hours=2))

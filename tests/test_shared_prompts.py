"""studies/shared_prompts.py: the same numbers as without it, and a script that runs with it."""

import copy
import json
import random
import subprocess
import sys

import rlvr.logprobs
from rlvr.config import Config
from rlvr.logprobs import completion_logprobs
from rlvr.records import Sample
from rlvr.samplers import GenerateSampler

import pytest
import torch
import transformers
from runs import ENVIRONMENT, ROOT
from samples import PROMPTS

sys.path.insert(0, str(ROOT / "studies"))
import shared_prompts


@pytest.fixture
def shared(monkeypatch):
    """Calls share_prompts for the rest of a test."""

    def call():
        for owner, name in (
            (rlvr.logprobs, "scores"),
            (rlvr.logprobs, "split_by_tokens"),
            (transformers.GenerationMixin, "generate"),
        ):
            monkeypatch.setattr(owner, name, getattr(owner, name))  # put back when the test ends
        shared_prompts.share_prompts()

    return call


def groups_of(tokenizer, sizes=(3, 1, 4)):
    """Groups of random completions, of all lengths; the second prompt is the shortest."""
    rng = random.Random(0)
    samples = []
    for prompt, size in zip((PROMPTS[0], PROMPTS[3], PROMPTS[2]), sizes, strict=True):
        for length in range(1, size + 1):
            completion = [rng.randrange(4, 16) for _ in range(2 * length - 1)]
            replies = (range(1, 2),) if length == 3 else ()  # a tool's token among its own
            samples.append(Sample(tokenizer.encode(prompt), completion, replies=replies))
    return samples


def test_a_tools_tokens_are_seen_and_not_scored():
    """Of 3 4 5, 4 is the tool's: 5 is predicted from it, and 4 from nothing."""
    row = shared_prompts.Row([Sample([1, 2], [3, 4, 5], replies=(range(1, 2),))])
    assert row.sources.tolist() == [1, 3]
    assert row.seen.all(dim=1).tolist() == [False] * 4 + [True]


def test_a_row_holds_a_prompt_and_its_completions():
    """Prompt 1 2, completions 3 4 and 5: each sees the prompt, and not the other."""
    row = shared_prompts.Row([Sample([1, 2], [3, 4]), Sample([1, 2], [5])])
    assert row.ids.tolist() == [1, 2, 3, 4, 5]
    assert row.positions.tolist() == [0, 1, 2, 3, 2]
    assert row.sources.tolist() == [1, 2, 1]  # 3 comes after 2, 4 after 3, and 5 after 2
    assert row.seen.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_log_probs_entropies_and_gradients_are_the_same(sharp, shared):
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]
    samples = groups_of(tokenizer)
    width = max(len(sample.completion_ids) for sample in samples)

    def found():
        policy.zero_grad()
        logprobs, entropies = completion_logprobs(policy, samples, 0.7, width)
        torch.manual_seed(0)
        (torch.randn_like(logprobs) * logprobs + 0.1 * entropies).sum().backward()
        return logprobs, entropies, *[parameter.grad for parameter in policy.parameters()]

    alone = found()
    shared()
    for value, expected in zip(found(), alone, strict=True):
        assert (value - expected).norm() < 1e-5 * expected.norm()  # all is in fp32


def test_the_same_completions_are_drawn(sharp, shared):
    """Prompts of two lengths, so that one of them is padded, and groups in any order."""
    policy, tokenizer = sharp
    prompts = [tokenizer.encode(PROMPTS[i]) for i in (0, 0, 3, 0, 5, 3)]
    sampler = GenerateSampler(policy, tokenizer, Config())

    def drawn(temperature):
        torch.manual_seed(0)
        return sampler.generate(prompts, temperature, 1.0, 12)

    alone = [drawn(temperature) for temperature in (1.0, 0.0)]
    shared()
    for (completions, logprobs), (expected, their_logprobs) in zip(
        [drawn(temperature) for temperature in (1.0, 0.0)], alone, strict=True
    ):
        assert completions == expected
        for row, their_row in zip(logprobs, their_logprobs, strict=True):
            assert row == pytest.approx(their_row, abs=1e-4)


def test_a_group_stays_together_and_its_prompt_counts_once(tiny):
    samples = groups_of(tiny[1])
    lengths = [shared_prompts.row_length(group) for group in shared_prompts.neighbours(samples)]
    assert lengths == [11 + 9, 8 + 1, 13 + 16]
    order = [6, 0, 3, 5, 1, 7, 2, 4]
    everything = shared_prompts.split_by_tokens(samples, order, 3 * 29)
    assert everything == [[3, 0, 1, 2, 6, 5, 7, 4]]
    # The two shorter rows, padded, are 2 * 20 tokens.
    assert shared_prompts.split_by_tokens(samples, order, 40) == [[3, 0, 1, 2], [6, 5, 7, 4]]
    assert shared_prompts.split_by_tokens(samples, order, 1) == [[3], [0, 1, 2], [6, 5, 7, 4]]


@pytest.mark.slow
def test_a_script_runs_with_it_and_finds_the_same(tmp_path):
    flags = "--max_steps 2 --eval_problems 4 --eval_samples 4 --output_dir".split()
    for name, command in (
        ("alone", [ROOT / "agrae.py"]),
        ("shared", [ROOT / "studies" / "shared_prompts.py", "agrae"]),
    ):
        done = subprocess.run(
            [sys.executable, *command, *flags, name],
            cwd=tmp_path,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    for log in ("metrics", "eval"):
        alone, shared = (
            [json.loads(line) for line in (tmp_path / name / f"{log}.jsonl").open()]
            for name in ("alone", "shared")
        )
        for row, expected in zip(shared, alone, strict=True):
            for metric, value in expected.items():
                if not metric.startswith(("seconds", "mismatch")):
                    assert row[metric] == pytest.approx(value, rel=1e-3, abs=1e-4), metric


@pytest.mark.parametrize("given", [[], ["nothing"]])
def test_no_script_is_an_error_of_one_line(given):
    with pytest.raises(SystemExit) as error:
        shared_prompts.main(*given)
    message = "shared_prompts.py: error: first the name of a script, such as grpo"
    assert str(error.value) == message


def test_several_ranks_are_refused(monkeypatch):
    """Sharded weights are gathered in `policy.generate`, which the prompts go past."""
    monkeypatch.setattr(shared_prompts.world, "WORLD_SIZE", 2)
    with pytest.raises(SystemExit, match="one process, without torchrun"):
        shared_prompts.main("grpo")

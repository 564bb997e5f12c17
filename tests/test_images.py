"""Images beside the text: a small Qwen2.5-VL reads them alike in rollouts, scores and updates."""

import copy
from dataclasses import replace
from unittest.mock import Mock

import rlvr.policy.models
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.policy.models import checkpoint_gradients
from rlvr.policy.sharding import shard, whole
from rlvr.rollout.samplers import Sampler
from rlvr.show.report import prompt_text
from rlvr.tasks.problems import padded
from rlvr.training.checkpoints import save_folder

import pytest
import torch
import vision
from runs import arguments, real_load_problems, rows

import common
from common import sample_groups, token_logprobs

# images of 3 to 12 tokens; two in one prompt; none; and one image in two prompts
SHOWN = [
    ("how many?", (vision.squares(1),)),
    ("and <image> or <image>?", (vision.squares(2, cells=12), vision.UNEVEN)),
    ("7 + 1 = ", ()),
    ("a longer question: how many?", (vision.squares(1),)),
]


@pytest.fixture(scope="module")
def sharp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vision")
    vision.save_vision_policy(folder, 3.0)
    save_folder(folder / "checkpoint", *vision.load(folder))
    (folder / "chat_template.json").unlink()  # else it is the one for images
    assert vision.load(folder)[1].chat_template == "for text alone"
    return vision.load(folder / "checkpoint")


def rollout(policy, tokenizer, size=3):
    """Completions of different lengths, group by group."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sampler = Sampler(policy, tokenizer, Config(decode_batch_size=3), common.decode)
        with sampler.synced():
            groups = sample_groups(
                sampler, vision.problems(tokenizer, SHOWN), size, temperature=1.0, max_tokens=8
            )
    samples = [sample for group in groups for sample in group]
    return [
        replace(s, completion_ids=s.completion_ids[: 8 - i % 5], logprobs=s.logprobs[: 8 - i % 5])
        for i, s in enumerate(samples)
    ]


def logprobs_of_transformers(policy, sample):
    """log-probs [T] of one sample, by transformers' own forward pass from pixels to logits."""
    ids = torch.tensor([sample.prompt_ids + sample.completion_ids])
    seen = {}
    if sample.images:
        found = policy.settings.images.processor(
            [vision.as_image(each) for each in sample.images], return_tensors="pt"
        )
        kinds = (torch.arange(ids.shape[1]) < len(sample.prompt_ids)) & (ids == vision.IMAGE_TOKEN)
        seen = dict(found, mm_token_type_ids=kinds.int())
    logits = policy(input_ids=ids, **seen).logits[0, :-1]
    chosen = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    return chosen[len(sample.prompt_ids) - 1 :]


def test_log_probs_of_sampler_trainer_and_transformers_are_the_same(sharp):
    """Prompts of other lengths stand beside them, on the left in rollouts, on the right here."""
    samples = rollout(*sharp)
    found, _ = token_logprobs(sharp[0], samples, range(len(samples)))
    torch.testing.assert_close(
        found, padded([sample.logprobs for sample in samples]), rtol=0, atol=1e-5
    )
    config = Config(model=sharp[0].name_or_path, beta=0.1)
    _, reference, _ = rlvr.policy.models.load_policies(config)
    assert torch.equal(token_logprobs(reference, samples, range(12))[0], found)
    reference.settings.bf16 = True  # as on a GPU
    drawn = rollout(reference, sharp[1])
    in_fp32, in_bf16 = (token_logprobs(p, drawn, range(12))[0] for p in (sharp[0], reference))
    for rounded in (in_bf16, padded([sample.logprobs for sample in drawn])):
        assert 1e-4 < (rounded - in_fp32).abs().mean() < 0.1
    # transformers' own pass takes no image tokens but those of images
    plain = [i for i in range(12) if vision.IMAGE_TOKEN not in samples[i].completion_ids]
    assert {i // 3 for i in plain} == {0, 1, 2, 3}  # of each prompt
    for i in plain:
        expected = logprobs_of_transformers(sharp[0], samples[i])
        torch.testing.assert_close(found[i, : len(expected)], expected, rtol=0, atol=1e-5)
    assert prompt_text(samples[3], sharp[1]).count("<|image_pad|>") == 2  # one for each image
    # an image token that the policy has written is a token like others
    written = replace(samples[0], completion_ids=[vision.IMAGE_TOKEN, vision.STOP])
    assert token_logprobs(sharp[0], [written], range(1))[0].isfinite().all()
    # another image gives others, or all this would show little
    others = [replace(sample, images=(vision.squares(3),)) for sample in samples[:3]]
    other, _ = token_logprobs(sharp[0], others, range(3))
    assert (found[:3, : other.shape[1]] - other).abs().max() > 0.1


def gradients(policy, parts, samples):
    """Of the sum of some log-probs, taken in parts: by the name of the parameter."""
    policy.zero_grad()
    total = 0.0
    for rows_of_part in parts:
        logprobs, entropy = token_logprobs(policy, samples, rows_of_part)
        loss = (logprobs * torch.arange(1.0, 9.0)).sum() + entropy.sum()
        loss.backward()
        total += loss.item()
    return total, {name: p.grad.clone() for name, p in policy.named_parameters()}


def test_one_microbatch_equals_many(sharp):
    """Where a microbatch has no image, the vision tower's gradient is 0, and not missing."""
    policy, samples = copy.deepcopy(sharp[0]), rollout(*sharp)
    reader = policy.settings.images
    reader.patches = patches = Mock(wraps=reader.patches)
    loss, whole = gradients(policy, [range(12)], samples)
    assert len(patches.call_args.args[0]) == 3  # each of the different images once
    in_parts = gradients(policy, [[6, 7], [8], [0, 11], [1, 3, 4, 9], [2, 5, 10]], samples)
    _, without = gradients(policy, [[6, 7, 8]], samples)
    tower = [gradient for name, gradient in without.items() if "visual" in name]
    assert tower and not any(gradient.any() for gradient in tower)
    checkpoint_gradients(policy)
    twice = gradients(policy, [range(12)], samples)
    assert policy.base_model.visual.blocks[0].training  # where transformers saves activations
    for found_loss, found in (in_parts, twice):
        assert loss == pytest.approx(found_loss, rel=1e-5)
        for name, gradient in whole.items():
            size = gradient.abs().max()
            assert size > 0, name
            torch.testing.assert_close(found[name], gradient, rtol=0, atol=1e-4 * size.item())


def test_a_sharded_policy_computes_the_same(sharp, alone):
    samples, sharded = rollout(*sharp), copy.deepcopy(sharp[0])
    shard(sharded)
    assert rollout(sharded, sharp[1]) == samples
    for rows_of_part in (range(12), [6, 7, 8]):
        loss, expected = gradients(sharp[0], [rows_of_part], samples)
        found_loss, found = gradients(sharded, [rows_of_part], samples)
        assert found_loss == pytest.approx(loss, rel=1e-5)
        for name, gradient in found.items():
            torch.testing.assert_close(whole(gradient), expected[name], rtol=1e-3, atol=1e-4)


def flags(folder, **others):
    """The command line of a run on pictures of squares, and the policy that it starts from."""
    policy = folder / "policy"
    if not policy.exists():
        vision.save_vision_policy(policy, scale=2.0)
    data = dict(model=policy, dataset=vision.counting(folder / "squares.parquet"))
    data |= dict(columns="prompt,answer,image", verifier="last_number", system_prompt="none")
    data |= dict(max_completion_length=3, max_prompt_length=64)
    small = dict(prompts_per_step=2, num_generations=4, minibatch_size=4, max_steps=2)
    small |= dict(eval_problems=3, eval_samples=2, eval_steps=9, save_steps=1, num_threads=1)
    # the bonus gives a gradient also where all answers are wrong
    small |= dict(learning_rate=1e-3, entropy_coef=0.1, output_dir="run")
    return arguments(**data | small | others)


@pytest.mark.slow
@pytest.mark.usefixtures("no_evaluation")
def test_a_run_on_images_resumes_exactly(bare, resume, tmp_path, monkeypatch):
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    for folder, steps in (("run", 2), ("half", 1)):
        result = bare("grpo", *flags(tmp_path, output_dir=folder, max_steps=steps))
        assert result.code == 0, result.err
    assert resume("grpo", "half", max_steps=2).code == 0
    assert rows("half") == rows("run")
    assert all(row["mismatch"] < 1e-5 for row in rows("run"))

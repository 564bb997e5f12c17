"""The tiny policy: its tokenizer, its warm-up, the folder that keeps it, and the shipped ones."""

import random
import re
from functools import partial
from pathlib import Path

import rlvr.policy.models
import rlvr.policy.tiny
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.machine.folders import is_whole
from rlvr.policy.saving import save_folder
from rlvr.policy.tiny import FOR_NUMBERS, POLICIES, tiny_folder, warmed_up_tiny
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Sample
from rlvr.verify.answers.expressions import verify_countdown

import make_bases
import pytest
import torch
import transformers


def test_tokenizer_round_trip(tiny):
    tokenizer = tiny[1]
    for seed in range(50):
        problem, solution = make_countdown(random.Random(seed), 2 + seed % 3)
        text = problem.prompt + solution
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text
        # a tag is one token, and so is any other character
        assert len(ids) == len(re.sub("<[^>]*>", "#", text))
        assert not {tokenizer.unk_token_id, tokenizer.pad_token_id} & {*ids}
    assert tokenizer.encode("1<eos>")[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


# ------------------------------------------------------------------------------------ the lesson


def test_warm_up_depends_on_no_random_state_and_leaves_it_alone():
    config = Config(sft_steps=1, numbers="2")
    found = []
    for seed in (5, 6):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            found.append(rlvr.policy.tiny.warm_up(config)[0].state_dict())
            assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_each_token_of_a_lesson_counts_the_same(monkeypatch):
    """The first gradient is that of transformers' own loss, a mean over tokens, on two texts."""
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    texts = [("1 2 : 3 ", "1+2"), ("7 8 : 56 ", "<think>7*8=56</think><answer>7*8</answer>")]
    samples, found = [], []

    def make_sample(tokenizer, *_):
        prompt, solution = texts[len(samples)]
        samples.append(Sample(tokenizer.encode(prompt), tokenizer.encode(solution + "<eos>")))
        return samples[-1]

    def look(parameters, _):
        found.extend(parameter.grad.clone() for parameter in parameters)

    monkeypatch.setattr(rlvr.policy.tiny, "BATCH_SIZE", 2)
    monkeypatch.setattr(rlvr.policy.tiny, "make_sample", make_sample)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", look)
    rlvr.policy.tiny.warm_up(Config(sft_steps=1, numbers="2"))
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        policy, _ = rlvr.policy.tiny.build_tiny()
    ids = pad([torch.tensor(each.prompt_ids + each.completion_ids) for each in samples])
    labels = [torch.tensor([-100] * len(x.prompt_ids) + x.completion_ids) for x in samples]
    policy(ids, labels=pad(labels, padding_value=-100)).loss.backward()
    for gradient, parameter in zip(found, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


def test_an_untied_head_is_a_matrix_of_its_own(tmp_path):
    """A copy at first, which changes alone and which a folder keeps."""
    config = Config(tie_word_embeddings=False, model="weak")
    own, _, tokenizer = rlvr.policy.models.load_policies(config)
    assert torch.equal(own.lm_head.weight, own.model.embed_tokens.weight)
    with torch.no_grad():
        own.lm_head.weight += 1
    save_folder(tmp_path / "policy", own, tokenizer)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert torch.equal(read.lm_head.weight, read.model.embed_tokens.weight + 1)
    with pytest.raises(UserError, match="--engine hf"):  # vLLM would read the shared one
        rlvr.policy.models.load_policies(Config(tie_word_embeddings=False, engine="vllm"))


@pytest.mark.parametrize("share, least, most", [(0.0, 0, 0), (0.5, 0.4, 0.55), (1.0, 0.85, 0.99)])
def test_the_share_of_exchanged_targets(share, least, most):
    """Some exchanged ones hit their target by chance, so the share that misses is a little less."""
    rng = random.Random(0)
    examples = [make_bases.draw_example(share, rng, 3) for _ in range(400)]
    missed = sum(not verify_countdown(text, problem.gold) for problem, text in examples) / 400
    assert least <= missed <= most


# ------------------------------------------------------------------------------------- the cache


@pytest.fixture
def taught(tiny, monkeypatch):
    """The configs that the tiny policy is taught with; the lesson itself is left out."""
    configs = []
    monkeypatch.setattr(rlvr.policy.tiny, "warm_up", lambda config: configs.append(config) or tiny)
    return configs


def test_the_cache_is_told_apart_by_settings_and_version(taught, tmp_path, monkeypatch):
    """What does not shape the policy, such as the seed, finds the folder of an earlier run.

    A damaged folder is made again, and another rank waits for rank 0.
    """

    def folder(sft_steps=5, **flags):
        return warmed_up_tiny(Config(cache_dir=str(tmp_path), sft_steps=sft_steps, **flags))

    first = folder()
    assert folder(seed=1, max_steps=3) == first
    assert len(taught) == 1
    others = [folder(7), folder(numbers="2"), folder(numbers="2,3,4"), folder(tool="calculator")]
    monkeypatch.setattr(rlvr.policy.tiny, "VERSION", rlvr.policy.tiny.VERSION + 1)
    others.append(folder())
    assert len({first, *others}) == len(taught) == 6
    assert {*tmp_path.iterdir()} == {first, *others}  # nothing half-written is left
    (others[-1] / "model.safetensors").write_bytes(b"damaged")
    assert folder() == others[-1] and is_whole(others[-1])
    assert len(taught) == 7
    monkeypatch.setattr("rlvr.world.RANK", 1)
    folder(9)
    assert len(taught) == 7


# -------------------------------------------------------------------------- the shipped policies


def test_every_shipped_policy_is_whole_and_was_taught_its_numbers():
    shipped = {folder.name for folder in POLICIES.iterdir()}
    assert shipped <= {*make_bases.RECIPES}
    assert all(is_whole(POLICIES / name) for name in shipped)
    for numbers, name in FOR_NUMBERS.items():
        assert {*numbers.split(",")} <= {*make_bases.RECIPES[name][0]["numbers"].split(",")}


@pytest.mark.parametrize(
    "flags, name",
    [
        (dict(), "middle"),
        (dict(tool="calculator"), "middle"),
        (dict(numbers="3,4"), "weak"),
        (dict(numbers="4"), "weak"),
        (dict(numbers="3,4", model="middle"), "middle"),
        (dict(numbers="2"), None),  # none is shipped for these
        (dict(sft_steps=400), None),
    ],
)
def test_which_policy_a_run_starts_from(monkeypatch, flags, name):
    monkeypatch.setattr(rlvr.policy.tiny, "warmed_up_tiny", lambda config: Path("taught"))
    assert tiny_folder(Config(**flags)) == (POLICIES / name if name else Path("taught"))

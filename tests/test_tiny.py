"""The tiny policy: its tokenizer, its warm-up, the folder that keeps it, and the shipped ones."""

import random
import re
from pathlib import Path

import rlvr.policy.models
import rlvr.policy.tiny
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.machine.folders import is_whole
from rlvr.policy.saving import save_folder
from rlvr.tasks.embedded import make_countdown
from rlvr.verify.answers.expressions import verify_countdown

import make_bases
import pytest
import torch
import transformers
from runs import refused, rows


def test_tokenizer_round_trip(tiny):
    tokenizer = tiny[1]
    for seed in range(50):
        problem, solution = make_countdown(random.Random(seed), 2 + seed % 3)
        text = problem.prompt + solution
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        # a tag is one token, and so is any other character
        assert len(ids) == len(re.sub("<[^>]*>", "#", text))
        assert not {tokenizer.unk_token_id, tokenizer.pad_token_id} & {*ids}
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert tokenizer.decode(tokenizer.encode(tag), skip_special_tokens=True) == tag
    assert tokenizer.encode("1<eos>")[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


# ------------------------------------------------------------------------------------ the lesson


def test_warm_up_depends_on_no_random_state_and_leaves_it_alone():
    config = Config(sft_steps=2, numbers="2")
    found = []
    for seed in (5, 6):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            found.append(rlvr.policy.tiny.warm_up(config)[0].state_dict())
            assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_an_untied_head_is_a_matrix_of_its_own(tmp_path):
    """A copy at first, which changes alone and which a folder keeps."""
    config = Config(tie_word_embeddings=False, model="weak")
    own, _, tokenizer = rlvr.policy.models.load_policies(config)
    assert torch.equal(own.lm_head.weight, own.model.embed_tokens.weight)
    with torch.no_grad():
        own.lm_head.weight += 1
    save_folder(tmp_path / "policy", own, tokenizer)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert torch.equal(read.lm_head.weight, own.lm_head.weight)
    assert torch.equal(read.lm_head.weight, read.model.embed_tokens.weight + 1)
    with pytest.raises(UserError, match="--engine hf"):  # vLLM would read the shared one
        rlvr.policy.models.load_policies(Config(tie_word_embeddings=False, engine="vllm"))


def test_the_share_of_exchanged_targets():
    """Some exchanged ones hit their target by chance, so the share that misses is a little less."""
    rng = random.Random(0)
    missed = {}
    for share in (0.0, 0.5, 1.0):
        examples = [rlvr.policy.tiny.draw_example(rng, [3], share) for _ in range(400)]
        missed[share] = sum(not verify_countdown(text, prompt) for prompt, text in examples) / 400
    assert missed[0.0] == 0
    assert 0.4 < missed[0.5] < 0.55
    assert 0.85 < missed[1.0] < 1


# ------------------------------------------------------------------------------------- the cache


@pytest.fixture
def taught(tiny, monkeypatch):
    """The configs that the tiny policy is taught with; the lesson itself is left out."""
    configs = []
    monkeypatch.setattr(rlvr.policy.tiny, "warm_up", lambda config: configs.append(config) or tiny)
    return configs


def test_the_cache_is_told_apart_by_settings_and_version(taught, tmp_path, monkeypatch):
    """What does not shape the policy, such as the seed, finds the folder of an earlier run."""

    def folder(sft_steps=5, **flags):
        config = Config(cache_dir=str(tmp_path), sft_steps=sft_steps, **flags)
        return rlvr.policy.tiny.warmed_up_tiny(config)

    first = folder()
    assert folder(seed=1, max_steps=3) == first
    assert len(taught) == 1
    others = [folder(7), folder(numbers="2"), folder(numbers="2,3,4")]
    others.append(folder(tool="calculator"))
    monkeypatch.setattr(rlvr.policy.tiny, "VERSION", rlvr.policy.tiny.VERSION + 1)
    others.append(folder())
    assert len({first, *others}) == len(taught) == 6
    assert {*tmp_path.iterdir()} == {first, *others}  # nothing half-written is left
    monkeypatch.setattr("rlvr.world.RANK", 1)  # which waits for rank 0 to teach
    folder(9)
    assert len(taught) == 6


def test_a_damaged_policy_in_the_cache_is_taught_again(taught, tmp_path):
    config = Config(sft_steps=1, numbers="2", cache_dir=str(tmp_path))
    folder = rlvr.policy.tiny.warmed_up_tiny(config)
    (folder / "model.safetensors").write_bytes(b"damaged")
    assert rlvr.policy.tiny.warmed_up_tiny(config) == folder and is_whole(folder)
    assert len(taught) == 2


# -------------------------------------------------------------------------- the shipped policies


def test_every_shipped_policy_is_whole_and_was_taught_its_numbers():
    shipped = {folder.name for folder in rlvr.policy.tiny.POLICIES.iterdir()}
    assert shipped <= {*make_bases.RECIPES}
    assert all(is_whole(rlvr.policy.tiny.POLICIES / name) for name in shipped)
    for numbers, name in rlvr.policy.tiny.FOR_NUMBERS.items():
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
def test_which_policy_a_run_starts_from(flags, name):
    assert rlvr.policy.tiny.shipped_base(Config(**flags)) == name


def test_a_run_starts_from_a_shipped_policy(bare):
    """Nothing is taught, and nothing is written to the cache."""
    flags = "--max_steps 0 --eval_problems 2 --eval_samples 2 --output_dir run --cache_dir cache"
    result = bare("grpo", *flags.split(), "--model", "weak")
    assert result.code == 0, result.err
    assert not [*Path("cache").glob("tiny-*")]
    assert 0.1 < rows("run", "eval")[0]["token_entropy"] < 0.3
    result = bare("grpo", "--model", "weak", "--sft_steps", "3")
    assert refused(result, "grpo", "--sft_steps is for --model tiny")

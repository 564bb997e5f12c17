"""The tiny policy: its tokenizer, its warm-up, and the folder of the cache that keeps it."""

import random
import re

import rlvr.tiny
from rlvr.checkpoints import is_whole, save_folder
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.tasks.countdown import make_countdown

import pytest
import torch


def test_tokenizer_round_trip(tiny):
    tokenizer = tiny[1]
    for seed in range(50):
        problem, solution = make_countdown(random.Random(seed), 2 + seed % 3)
        text = problem.prompt + solution
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        # a tag is one token, and so is any other character
        assert len(ids) == len(re.sub("<[^>]*>", "#", text))
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.pad_token_id not in ids
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert len(tokenizer.encode(tag)) == 1
        assert tokenizer.decode(tokenizer.encode(tag), skip_special_tokens=True) == tag
    assert tokenizer.encode("1<eos>")[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


def test_warm_up_depends_on_no_random_state_and_leaves_it_alone():
    config = Config(sft_steps=2, numbers="2")
    policies = []
    for seed in (5, 6):
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            policies.append(rlvr.tiny.warm_up(config)[0])
            assert torch.equal(torch.get_rng_state(), before)
    first, second = (policy.state_dict() for policy in policies)
    for name, weight in first.items():
        torch.testing.assert_close(weight, second[name], rtol=0, atol=0)


def test_an_untied_head_is_a_matrix_of_its_own():
    """26 words x 96 more weights, which are taught, too, and which the gradient reaches."""
    tied, untied = (rlvr.tiny.build_tiny(tied=tied)[0] for tied in (True, False))
    assert untied.num_parameters() - tied.num_parameters() == 26 * 96
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    config = Config(sft_steps=1, numbers="2", tie_word_embeddings=False)
    policy, _ = rlvr.tiny.warm_up(config)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)  # as warm_up begins
        before = rlvr.tiny.build_tiny(tied=False)[0]
    for part in ("get_output_embeddings", "get_input_embeddings"):
        moved = getattr(policy, part)().weight - getattr(before, part)().weight
        assert moved.abs().max() > 1e-6
    assert (policy.lm_head.weight != policy.model.embed_tokens.weight).any()


@pytest.fixture
def taught(tiny, monkeypatch):
    """The configs that the tiny policy is taught with; the lesson itself is left out."""
    configs = []

    def warm_up(config):
        configs.append(config)
        return tiny

    monkeypatch.setattr(rlvr.tiny, "warm_up", warm_up)
    return configs


def test_the_cache_is_told_apart_by_settings_and_version(taught, tmp_path, monkeypatch):
    """What does not shape the policy, such as the seed, finds the folder of an earlier run."""

    def folder(**flags):
        return rlvr.tiny.warmed_up_tiny(Config(cache_dir=str(tmp_path), **flags))

    first = folder(sft_steps=5)
    assert folder(sft_steps=5, seed=1, max_steps=3) == first
    assert len(taught) == 1
    others = [folder(sft_steps=7), folder(numbers="2"), folder(numbers="2,3,4")]
    others.append(folder(sft_steps=5, tie_word_embeddings=False))
    monkeypatch.setattr(rlvr.tiny, "VERSION", rlvr.tiny.VERSION + 1)
    others.append(folder(sft_steps=5))
    assert len({first, *others}) == 6
    assert len(taught) == 6
    assert {*tmp_path.iterdir()} == {first, *others}  # nothing half-written is left


def test_a_cache_that_cannot_be_written_is_told_before_the_warm_up(taught, tmp_path):
    (tmp_path / "file").touch()
    config = Config(sft_steps=1, cache_dir=str(tmp_path / "file" / "cache"))
    with pytest.raises(UserError, match="--cache_dir"):
        rlvr.tiny.warmed_up_tiny(config)
    assert taught == []


def test_only_rank_0_teaches(taught, tmp_path, monkeypatch):
    monkeypatch.setattr("rlvr.world.RANK", 1)
    rlvr.tiny.warmed_up_tiny(Config(sft_steps=1, cache_dir=str(tmp_path)))
    assert taught == []


def test_runs_that_start_together_keep_the_policy_that_appeared_meanwhile(tiny, tmp_path):
    """A folder that another run is loading must not be taken away."""
    save_folder(tmp_path / "policy", *tiny)
    before = (tmp_path / "policy").stat().st_ino
    save_folder(tmp_path / "policy", *tiny, keep_whole=True)
    assert (tmp_path / "policy").stat().st_ino == before
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_damaged_policy_in_the_cache_is_named_and_taught_again(tmp_path, capsys):
    config = Config(sft_steps=1, numbers="2", cache_dir=str(tmp_path))
    folder = rlvr.tiny.warmed_up_tiny(config)
    held = bytearray((folder / "model.safetensors").read_bytes())
    held[len(held) // 2] ^= 1
    (folder / "model.safetensors").write_bytes(held)
    assert rlvr.tiny.warmed_up_tiny(config) == folder and is_whole(folder)
    assert f"{folder} is damaged" in capsys.readouterr().out

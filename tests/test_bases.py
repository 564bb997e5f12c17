"""The shipped tiny policies, what teaches them, and the head of its own that they can have."""

import random
from pathlib import Path

import rlvr.models
import rlvr.tiny
from rlvr.checkpoints import is_whole
from rlvr.config import Config
from rlvr.records import Problem
from rlvr.tasks.countdown import exchange_target, extract_answer, verify_countdown

import make_bases
import pytest
import torch
from claims_measures import has_false_step
from runs import first_slow, refused, rows

SHIPPED = sorted(folder.name for folder in rlvr.tiny.POLICIES.iterdir())


def test_an_exchanged_target_is_honest():
    """Every step is right and each number is used once, but the target may be missed."""
    problem = Problem("3 9 5 : 48 ", "3 9 5 : 48 ")
    texts = [exchange_target(random.Random(seed), problem) for seed in range(60)]
    assert not any(map(has_false_step, texts))
    values = {eval(extract_answer(text)) for text in texts}
    assert len(values) > 5
    for text in texts:
        steps, value = text.partition("</think>")[0], eval(extract_answer(text))
        assert steps.endswith(f"={value:g}") and 1 <= value <= 99
        assert verify_countdown(text, f"3 9 5 : {value:g}") == 1


def test_the_share_of_exchanged_targets():
    """Some exchanged ones hit their target by chance, so the share that misses is a little less."""
    rng = random.Random(0)
    missed = {}
    for share in (0.0, 0.5, 1.0):
        examples = [rlvr.tiny.draw_example(rng, [3], share) for _ in range(400)]
        missed[share] = sum(not verify_countdown(text, prompt) for prompt, text in examples) / 400
    assert missed[0.0] == 0
    assert 0.4 < missed[0.5] < 0.55
    assert 0.85 < missed[1.0] < 1


def test_what_the_share_teaches_is_kept_by_another_name(tmp_path):
    folders = [
        rlvr.tiny.warmed_up_tiny(
            Config(sft_steps=1, numbers="2", exchanged_targets=share, cache_dir=str(tmp_path))
        )
        for share in (0.0, 0.5)
    ]
    first, second = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert folders[0] != folders[1] and first != second


def test_every_shipped_policy_is_whole_and_has_a_recipe():
    assert {*SHIPPED} <= {*make_bases.RECIPES}
    assert all(is_whole(rlvr.tiny.POLICIES / name) for name in SHIPPED)


def test_make_bases_writes_what_the_recipe_teaches(tmp_path, monkeypatch):
    recipe = dict(sft_steps=2, numbers="2", exchanged_targets=0.5)
    monkeypatch.setitem(make_bases.RECIPES, "weak", recipe)
    make_bases.make("weak", tmp_path / "new")
    taught = rlvr.tiny.warm_up(Config(**recipe))[0].state_dict()
    policy = rlvr.models.transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "new/weak")
    for name, weight in policy.state_dict().items():
        assert torch.equal(weight, taught[name])


@pytest.mark.parametrize(
    "flags, name",
    [
        (dict(), "middle"),
        (dict(numbers="3,4"), "weak"),
        (dict(numbers="4"), "weak"),
        (dict(numbers="3,4", base="middle"), "middle"),
        (dict(numbers="2"), None),  # none is shipped for these
        (dict(sft_steps=400), None),
    ],
)
def test_which_policy_a_run_starts_from(flags, name):
    assert rlvr.tiny.shipped_base(Config(**flags)) == name


def test_the_shipped_policy_of_some_numbers_was_taught_them():
    for numbers, name in rlvr.tiny.FOR_NUMBERS.items():
        assert {*numbers.split(",")} <= {*make_bases.RECIPES[name]["numbers"].split(",")}


def test_a_run_starts_from_a_shipped_policy(bare, tmp_path):
    """Nothing is taught, and nothing is written to the cache."""
    flags = "--max_steps 0 --eval_problems 2 --eval_samples 2 --output_dir run --cache_dir cache"
    result = bare("grpo", *flags.split(), "--base", "weak")
    assert result.code == 0, result.err
    assert "teaching the tiny" not in result.err
    assert not Path("cache").exists()
    assert 0.1 < rows("run", "eval")[0]["token_entropy"] < 0.3
    assert refused(bare("grpo", "--base", "weak", "--sft_steps", "3"), "grpo", "--base weak")


def test_an_untied_head_leaves_the_policy_as_it_is(tmp_path):
    """The copy of the embedding gives the same distributions, and is a matrix of its own."""
    policies = []
    for tied in (True, False):
        config = Config(base="weak", tie_word_embeddings=tied, cache_dir=str(tmp_path))
        policies.append(rlvr.models.load_policy(config, torch.device("cpu"))[0])
    shared, own = policies
    ids = torch.arange(3, 20)[None]
    assert torch.equal(shared(ids).logits, own(ids).logits)
    assert own.lm_head.weight is not own.model.embed_tokens.weight
    assert own.num_parameters() - shared.num_parameters() == 26 * 96


@pytest.mark.parametrize("name", first_slow(SHIPPED))
def test_the_failures_of_a_shipped_policy_are_wrong_choices(name):
    """On 128 held-out problems: pass@1, pass@32, false equations, the spread of success rates."""
    with torch.random.fork_rng():
        found = make_bases.measure(rlvr.tiny.POLICIES, name, 128)
    # 0.05 around the goals: the standard error of so many problems is 0.02
    assert 0.15 < found["pass@1"] < 0.45
    assert found["pass@32"] >= 0.85
    assert found["false"] < 0.1
    spread = [share for key, share in found.items() if key.startswith("rate")]
    assert len(spread) == 4 and sum(spread) == pytest.approx(1)
    assert max(spread) < 0.6 and sum(share > 0.05 for share in spread) >= 3

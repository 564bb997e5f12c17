"""The tiny policies: their tokenizer, which one a run starts from, and how they are taught."""

import random
import re
from functools import partial

from rlvr.errors import UserError
from rlvr.flags.config import TAUGHT, Config
from rlvr.policy.models import POLICIES, load_policies, tiny_folder
from rlvr.tasks.embedded import make_countdown
from rlvr.tasks.problems import Problem
from rlvr.training.checkpoints import save_folder
from rlvr.verify.answers.expressions import verify_countdown

import pytest
import torch
import transformers

from studies.papers import make_bases


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


def test_every_shipped_policy_was_taught_its_numbers():
    shipped = {folder.name for folder in POLICIES.iterdir()}
    assert shipped == {*make_bases.RECIPES} - {"novice"}  # which only a study starts from
    for numbers, name in TAUGHT.items():
        assert {*numbers.split(",")} <= {*make_bases.RECIPES[name][0].split(",")}


def test_which_policy_a_run_starts_from():
    names = {"3 tiny": "middle", "4 tiny": "weak", "3,4 tiny": "weak", "2 strong": "strong"}
    for given, name in names.items():
        numbers, model = given.split()
        assert tiny_folder(Config(numbers=numbers, model=model)) == POLICIES / name


def test_each_token_of_a_lesson_counts_the_same(monkeypatch):
    """The first gradient is that of transformers' own loss, a mean over tokens, on two texts."""
    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    texts = [("1 2 : 3 ", "1+2"), ("7 8 : 56 ", "<think>7*8=56</think><answer>7*8</answer>")]
    examples = [(Problem(prompt, ""), solution) for prompt, solution in texts]
    found = []

    def look(parameters, _):
        found.extend(parameter.grad.clone() for parameter in parameters)

    monkeypatch.setattr(make_bases, "BATCH_SIZE", 2)
    monkeypatch.setattr(make_bases, "draw_example", lambda *_: examples.pop(0))
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", look)
    with torch.random.fork_rng([]):
        make_bases.teach("2", 1, 0.0)
        torch.manual_seed(0)
        policy, tokenizer = make_bases.build_tiny()
    ids = [[tokenizer.encode(prompt), tokenizer.encode(f"{text}<eos>")] for prompt, text in texts]
    labels = [torch.tensor([-100] * len(prompt) + text) for prompt, text in ids]
    whole = pad([torch.tensor(prompt + text) for prompt, text in ids])
    policy(whole, labels=pad(labels, padding_value=-100)).loss.backward()
    for gradient, parameter in zip(found, policy.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6)


def test_an_untied_head_is_a_matrix_of_its_own(tmp_path):
    """A copy at first, which changes alone and which a folder keeps."""
    config = Config(tie_word_embeddings=False, model="weak")
    own, _, tokenizer = load_policies(config)
    assert torch.equal(own.lm_head.weight, own.model.embed_tokens.weight)
    with torch.no_grad():
        own.lm_head.weight += 1
    save_folder(tmp_path / "policy", own, tokenizer)
    read = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    assert torch.equal(read.lm_head.weight, read.model.embed_tokens.weight + 1)
    assert not read.config.tie_word_embeddings
    with pytest.raises(UserError, match="--engine hf"):  # vLLM would read the shared one
        load_policies(Config(tie_word_embeddings=False, engine="vllm"))


@pytest.mark.parametrize("share, least, most", [(0.0, 0, 0), (0.5, 0.4, 0.55), (1.0, 0.85, 0.99)])
def test_the_share_of_exchanged_targets(share, least, most):
    """Some exchanged ones hit their target by chance, so the share that misses is a little less."""
    rng = random.Random(0)
    examples = [make_bases.draw_example(share, rng, 3) for _ in range(400)]
    missed = sum(not verify_countdown(text, problem.gold) for problem, text in examples) / 400
    assert least <= missed <= most

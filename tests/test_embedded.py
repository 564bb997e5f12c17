"""Problems that are made here: Countdown, and arithmetic in words with a run of a chat model."""

import random
import re

import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.tasks.embedded import LEVELS, draw_arithmetic, make_countdown
from rlvr.verify.answers.expressions import verify_countdown
from rlvr.verify.answers.numbers import verify_last_number
from rlvr.verify.verifiers import VERIFIERS

import pytest
import torch
import transformers
import vision
from local_sets import load
from runs import assert_finite, real_load_problems, rows

# ------------------------------------------------------------------------------------- Countdown


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_problems_have_a_solution_in_positive_integers(size, held_out):
    for seed in range(300):
        problem, solution = make_countdown(random.Random(seed), size, held_out)
        numbers, target = re.fullmatch(r"([1-9](?: [1-9])*) : (\d+) ", problem.prompt).groups()
        assert len(numbers.split()) == size
        assert 1 <= int(target) <= 99
        assert (problem.gold, problem.level) == (problem.prompt, f"{size} numbers")
        assert verify_countdown(solution, problem.gold) == 1.0
        steps = re.fullmatch("<think>(.*)</think><answer>.*</answer>", solution)[1].split(" ")
        assert len(steps) == size - 1
        left = [int(number) for number in numbers.split()]
        for step in steps:
            # each takes two of the numbers that are left, and puts a positive integer back
            a, sign, b, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", step).groups()
            a, b, result = int(a), int(b), int(result)
            left.remove(a)
            left.remove(b)
            left.append(result)
            exact = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
            assert exact == result >= 1
        assert left == [int(target)]


def numbers_and_target(problem):
    """What makes a problem the same as another one: the order of its numbers does not."""
    numbers, target = problem.prompt.split(":")
    return tuple(sorted(numbers.split())), int(target)


@pytest.mark.parametrize("numbers, sizes", [("3", {3}), ("2", {2}), ("2,3,4", {2, 3, 4})])
def test_load_problems(tiny, numbers, sizes):
    """As many as there are, always the same ones, and no problem for both."""
    flags = dict(numbers=numbers, eval_problems=32)
    training, sets = load(tiny[1], **flags)
    assert [*sets] == ["countdown"]
    trained, held_out = ({*map(numbers_and_target, each)} for each in (training, sets["countdown"]))
    assert not trained & held_out
    for problems in (training, sets["countdown"]):
        assert {len(numbers_and_target(problem)[0]) for problem in problems} == sizes
        assert len(set(problems)) == len(problems)
    if numbers == "2":  # so many do not exist
        assert 50 < len(training) < 4096 and 5 < len(sets["countdown"]) <= 32
    else:
        assert (len(training), len(sets["countdown"])) == (4096, 32)
    # Another seed gives the same: runs that differ in their seed are compared on equal problems.
    assert load(tiny[1], **flags, seed=1) == (training, sets)
    assert load(tiny[1], **flags, max_steps=0) == ([], sets)


# ------------------------------------------------------------------------------------ arithmetic


def facts_of(problem):
    """What is done with which numbers, whatever the wording and their order; and the result."""
    text = problem.prompt.lower()
    a, b, *c = map(int, re.findall(r"\d+", text))
    if re.search(r"\*|times|multiply", text):
        return ("product", *sorted((a, b))), a * b
    if not re.search("-|minus|subtract", text):
        return ("sum", *sorted((a, b))), a + b
    if c:
        return ("chain", *sorted((a, b)), c[0]), a + b - c[0]
    first, second = (b, a) if "from" in text else (a, b)
    return ("difference", first, second), first - second


def numbers_of(problem):
    """What makes a problem the same as another one."""
    return facts_of(problem)[0]


def draw(levels, eval_problems=64):
    return draw_arithmetic(Config(arithmetic_levels=levels, eval_problems=eval_problems))


@pytest.mark.parametrize(
    "level, kinds, smallest, largest",
    [
        ("1", {"sum", "difference"}, 1, 20),
        ("2", {"sum", "difference", "chain"}, 10, 99),
        ("3", {"product"}, 2, 99),
        ("4", {"sum", "difference", "product", "chain"}, 2, 999),
    ],
)
def test_levels(level, kinds, smallest, largest):
    """Every gold is right; the problems differ, and are always the same."""
    training, held_out = draw(level)
    assert (training, held_out) == draw(level)
    assert len({*training}) == len(training) == (4096 if level in "24" else len(training))
    for problem in training[:500] + held_out:
        assert facts_of(problem)[1] == int(problem.gold) >= 0, problem
        assert (problem.verifier, problem.level) == ("last_number", f"level {level}")
    found = [numbers_of(problem) for problem in training + held_out]
    assert {kind for kind, *_ in found} == kinds
    numbers = [number for _, *numbers in found for number in numbers]
    assert (min(numbers), max(numbers)) == (smallest, largest)
    for kind, *numbers in found:
        assert kind != "product" or numbers[0] < 10 <= numbers[1]


def test_training_and_evaluation_share_no_problem():
    """Not even in other words, in another order or from another level."""
    everything = ",".join(LEVELS)
    training = {numbers_of(problem) for problem in draw(everything)[0]}
    for levels in (*LEVELS, everything):
        held_out = [numbers_of(problem) for problem in draw(levels)[1]]
        assert len({*held_out}) == len(held_out)
        assert not training & {*held_out}


def test_verify_last_number():
    for text, gold, reward in (
        ("27", "27", 1.0),
        ("13+14=27.00", "27", 1.0),
        ("27 apples, or 1,027 in all", "1027", 1.0),
        ("= -18", "-18", 1.0),
        (r"\boxed{27} or 28", "27", 0.0),  # a box counts for nothing
        ("twenty-seven", "27", None),
    ):
        assert VERIFIERS["last_number"].verify(text, gold) == reward, text


def test_the_last_number_as_lm_eval_reads_it():
    """Its flexible-extract, where numbers stand apart: the last match, without commas and dots."""
    rng = random.Random(0)
    for _ in range(500):
        value = rng.choice([rng.randint(0, 9), rng.randint(-99, 9999), rng.randint(0, 99) / 4])
        words = [rng.choice(["so", "it is", "=", "+", "about"]) for _ in range(3)]
        text = f"{rng.randint(0, 99)} {' '.join(words)} {value:,}{rng.choice(['', '.', ' eggs'])}"
        matches = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", text)
        last = "".join(matches[-1]).replace(",", "").removesuffix(".")
        assert verify_last_number(text, last) == 1.0, text


# ---------------------------------------------------------------------------- a run of a chat model


def save_chat_model(folder):
    """A small random Llama with a chat template, whose stop token pads, in the hub's format."""
    tokenizer = vision.build_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    shape = transformers.LlamaConfig(
        **dict(vocab_size=len(vision.WORDS), hidden_size=32, intermediate_size=64),
        **dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
        **dict(bos_token_id=None, eos_token_id=vision.STOP, pad_token_id=vision.STOP),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = transformers.LlamaForCausalLM(shape)
    policy.save_pretrained(folder)


def test_a_run_of_a_chat_model(bare, monkeypatch, tmp_path):
    """With the defaults of the set but for its size."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    save_chat_model(tmp_path / "model")
    small = "--max_steps 2 --eval_problems 2 --eval_samples 2 --eval_steps 2 --num_generations 16"
    result = bare(
        "grpo",
        *f"--model model --dataset arithmetic --output_dir run {small}".split(),
        *"--minibatch_size 64 --max_prompt_length 200".split(),
    )
    assert result.code == 0, result.err
    assert len(rows("run")) == 2
    assert_finite("run")
    checkpoint = tmp_path / "run/checkpoint-2"
    saved = transformers.AutoModelForCausalLM.from_pretrained(checkpoint)
    assert saved.config.eos_token_id == vision.STOP

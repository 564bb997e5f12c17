"""common.py: the task and its verifier, log-probs, the loss, rollouts, evaluation, flags and folders."""
import copy
import itertools
import math
import random
import re
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

import common
import tasks
from common import Config, Sample


# ---------------------------------------------------------------------------------------------------- the verifier
GOLD = "3 9 5 : 48 "
RIGHT = "3+9*5"


def answer(expression):
    return f"<think>9*5=45</think><answer>{expression}</answer>"


@pytest.mark.parametrize("expression, gold", [
    (RIGHT, GOLD),
    ("3+(9*5)", GOLD),
    ("(5*9)+3", GOLD),
    ("((3)+((9)*(5)))", GOLD),
    ("3 + 9 * 5", GOLD),
    ("  3+9*5 ", GOLD),
    ("\n3+9*5\n", GOLD),
    ("\t3+9*5\r\n", GOLD),
    ("(" * 30 + "3" + ")" * 30 + "+9*5", GOLD),
    ("9-5-3", "3 5 9 : 1 "),  # from the left: 9-(5-3) would be 7
    ("8/4/2", "2 4 8 : 1 "),  # from the left: 8/(4/2) would be 4
    ("4*4", "4 4 : 16 "),  # a number given twice is used twice
    ("5-9+5", "5 5 9 : 1 "),  # a negative value on the way
    ("5*(3-9)+9*5", "3 5 5 9 9 : 15 "),
    ("1/3*9", "1 3 9 : 3 "),  # a fraction on the way
    ("8/(3-8/3)", "3 3 8 8 : 24 "),  # 23.999999999999989 in floats
    ("(1/3+1/6)*4", "1 3 1 6 4 : 2 "),
    ("1/(1/3-1/4)", "1 1 1 3 4 : 12 "),  # 11.999999999999996 in floats
    ("3+5*9", "3 9 5 : 48"),  # without the space at the end
])
def test_verifier_accepts(expression, gold):
    assert tasks.verify_countdown(answer(expression), gold) == 1.0


@pytest.mark.parametrize("expression, gold", [
    # other numbers than the given ones
    ("48", GOLD),
    ("3+45", GOLD),
    ("3+9*5+3-3", GOLD),  # 3 three times
    ("9*5+3*9/9", GOLD),  # 9 three times
    ("5*9", "3 9 5 : 45 "),  # 3 is missing
    ("4+4", "4 4 2 : 8 "),  # 2 is missing
    ("4", "4 4 : 4 "),  # one of two equal numbers is missing
    ("39", "3 9 : 39 "),  # two numbers written as one
    ("39+5", "3 9 5 : 44 "),
    ("3+9*5*1", GOLD),
    ("3+9*5+0", GOLD),
    ("3+9*05", GOLD),
    ("3+9*5/1", GOLD),
    # the given numbers, another value
    ("3*9+5", GOLD),
    ("(3+9)*5", GOLD),
    ("3-9*5", "3 9 5 : 42 "),  # minus the target
    ("9/5+3", "3 5 9 : 4 "),  # 4.8: nothing is rounded
    ("5/9*3", "3 5 9 : 1 "),
    ("100000000000000000/3*1", "1 3 100000000000000000 : 33333333333333332 "),  # equal in floats, by a third not equal
    ("5/(3-3)", "3 3 5 : 5 "),  # divisions by zero
    ("(3-3)/(5-5)", "3 3 5 5 : 1 "),
    # other operators and signs
    ("1.5*2", "1 5 2 : 3 "),
    ("1.5*2", "1.5 2 : 3 "),
    ("2**3", "2 3 : 8 "),
    ("2 ** 3", "2 3 : 8 "),
    ("2**2", "2 2 : 4 "),  # the same as 2*2
    ("4//2", "4 2 : 2 "),  # the same as 4/2
    ("9//4", "9 4 : 2 "),
    ("5%3", "3 5 : 2 "),
    ("5^3", "3 5 : 6 "),
    ("5|3", "3 5 : 7 "),
    ("5<<3", "3 5 : 40 "),
    ("-3+5", "3 5 : 2 "),
    ("+3+5", "3 5 : 8 "),
    ("5--3", "3 5 : 8 "),
    ("5-(-3)", "3 5 : 8 "),
    ("5*-(3-9)", "3 5 9 : 30 "),
    ("~3+5", "3 5 : 1 "),
    ("3+9*5==48", GOLD),
    ("3<5", "3 5 : 1 "),
    ("(x:=3+9*5)", GOLD),
    ("3+9*5=48", GOLD),
    # not one expression of these numbers
    ("", GOLD),
    (" ", GOLD),
    ("()", GOLD),
    ("NA", GOLD),
    ("3 9 5", GOLD),
    ("3+9*", GOLD),
    ("(3+9*5", GOLD),
    ("3+9*5)", GOLD),
    (")3+9*5(", GOLD),
    ("3+(9)(5)", GOLD),
    ("3+9(5)", GOLD),
    ("3(9*5)", GOLD),
    ("3*(9,5)", GOLD),
    ("3+9*5,", GOLD),
    ("(3+9*5,)", GOLD),
    ("[3+9*5][0]", GOLD),
    ("3+\n9*5", GOLD),
    ("3+9*5#", GOLD),
    ("3+9*5 # = 48", GOLD),
    ("3+9*5;", GOLD),
    ("x+9*5", GOLD),
    ("3+9*5 if 1 else 0", GOLD),
    ("True+2", "1 2 : 3 "),
    ("lambda:48", GOLD),
    ("(lambda: 3+9*5)()", GOLD),
    ("__import__('os').getpid()", GOLD),
    ("exec('3+9*5')", GOLD),
    ("'3'+'9'", GOLD),
    ("0x3+9*5", GOLD),
    ("0x10", "16 : 16 "),
    ("0b11+9*5", GOLD),
    ("1_0", "10 : 10 "),
    ("1e1", "10 : 10 "),
    ("3j", "3 : 3 "),
    ("03+9*5", GOLD),
    ("３+９*５", GOLD),  # full-width digits, which int() reads
    ("٣+٩*٥", GOLD),  # Arabic digits
    ("3+9×5", GOLD),
    ("3−9", "3 9 : -6 "),  # a minus sign that is not ASCII
    ("3\u00a0+9*5", GOLD),  # no-break space
    # long, deep, huge
    ("(" * 200 + RIGHT + ")" * 200, GOLD),
    ("(" * 5000 + RIGHT + ")" * 5000, GOLD),
    ("(" * 49 + RIGHT, GOLD),
    ("-" * 95 + RIGHT, GOLD),
    ("3+9*5" + "+0" * 5000, GOLD),
    ("9" * 10_000, GOLD),
    ("9" * 100, GOLD),
    ("9**9**9**9**9", GOLD),
    ("9" * 40 + "*" + "9" * 40, GOLD),
], ids=lambda value: value[:30])
def test_verifier_refuses(expression, gold):
    started = time.perf_counter()
    assert tasks.verify_countdown(answer(expression), gold) == 0.0
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("text, reward", [
    ("<answer>3+9*5</answer>", 1.0),
    ("3+9*5", 0.0),
    ("", 0.0),
    ("<answer>3+9*5", 0.0),
    ("3+9*5</answer>", 0.0),
    ("</answer>3+9*5<answer>", 0.0),
    ("<Answer>3+9*5</Answer>", 0.0),
    ("<answer>1</answer><answer>3+9*5</answer>", 1.0),  # the last one counts
    ("<answer>3+9*5</answer><answer>1</answer>", 0.0),
    ("<answer>3+9*5</answer><answer></answer>", 0.0),
    ("<answer>3+9*5</answer><answer>1", 1.0),  # the last complete one
    ("<answer>1<answer>3+9*5</answer>", 1.0),
    ("<think><answer>1</answer></think><answer>3+9*5</answer>", 1.0),
    ("<think><answer>3+9*5</answer></think><answer>1</answer>", 0.0),
    ("<think>\n9*5=45\n</think>\n<answer>\n3+9*5\n</answer>\n", 1.0),
    ("<answer>3+<think>9*5</think></answer>", 0.0),
])
def test_verifier_reads_the_last_answer(text, reward):
    assert tasks.verify_countdown(text, GOLD) == reward


@pytest.mark.parametrize("text", [
    "<answer>" * 125_000, "</answer>" * 110_000, "<answer>" * 125_000 + "</answer>", "<answer>3" * 110_000,
    "<answer></answer>" * 60_000, "<answer>" + "(" * 1_000_000 + "</answer>", "<" * 1_000_000])
def test_verifier_is_linear_in_the_text(text):
    """A regular expression such as <answer>(.*?)</answer> takes minutes for the first of these."""
    started = time.perf_counter()
    assert tasks.verify_countdown(text, GOLD) == 0.0
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize("text, expected", [
    ("<answer> 3+9 </answer>", "3+9"), ("<answer>1</answer><answer>2</answer>", "2"), ("", "NA"),
    ("<answer>1", "NA"), ("1</answer>", "NA"), ("<answer></answer>", "")])
def test_extract_answer(text, expected):
    assert tasks.extract_answer(text) == expected


# -------------------------------------------------------------------------------------------------- the problems
@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_countdown_problems_have_a_solution_in_positive_integers(size, held_out):
    for seed in range(300):
        problem, solution = common.make_countdown(random.Random(seed), size, held_out)
        numbers, target = re.fullmatch(r"([1-9](?: [1-9])*) : (\d+) ", problem.prompt).groups()
        assert len(numbers.split()) == size and 1 <= int(target) <= 99
        assert problem.gold == problem.prompt
        assert tasks.verify_countdown(solution, problem.gold) == 1.0
        steps = re.fullmatch("<think>(.*)</think><answer>.*</answer>", solution)[1].split(" ")
        assert len(steps) == size - 1
        left = sorted(map(int, numbers.split()))
        for step in steps:  # each takes two of the numbers that are left and puts a positive integer back
            a, sign, b, result = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", step).groups()
            left.remove(int(a))
            left.remove(int(b))
            left.append(int(result))
            exact = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b), "/": int(a) / int(b)}[sign]
            assert exact == int(result) >= 1
        assert left == [int(target)]


def key(problem):
    numbers, target = problem.prompt.split(":")
    return tuple(sorted(numbers.split())), int(target)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_held_out_problems_are_no_training_problems(size):
    rng = random.Random(0)
    held_out, training = ({key(common.make_countdown(rng, size, held_out)[0]) for _ in range(500)}
                          for held_out in (True, False))
    assert len(held_out) > 5 and len(training) > 50
    assert not held_out & training


def load_countdown(config, tokenizer):
    training, sets = common.load_problems(config, tokenizer)
    assert [*sets] == ["countdown"]
    return training, [*sets.values()]


@pytest.mark.parametrize("numbers, sizes", [("3", {3}), ("2", {2}), ("2,3,4", {2, 3, 4})])
def test_load_problems(tiny, numbers, sizes):
    config = Config(numbers=numbers, eval_problems=32)
    training, (evaluation,) = load_countdown(config, tiny[1])
    assert not set(map(key, training)) & set(map(key, evaluation))
    for problems in (training, evaluation):
        assert {len(key(problem)[0]) for problem in problems} == sizes
        assert len(set(problems)) == len(problems)
    assert len(evaluation) <= 32 and (numbers == "2" or len(evaluation) == 32)
    assert len(training) <= 4096 and (numbers == "2" or len(training) == 4096)
    # Again the same, for another seed too: runs that differ in their seed are compared on the same problems.
    again = load_countdown(Config(numbers=numbers, eval_problems=32, seed=1), tiny[1])
    assert again == (training, [evaluation])
    assert load_countdown(replace(config, max_steps=0), tiny[1]) == ([], [evaluation])


# ------------------------------------------------------------------------------------------------ the tiny policy
def test_tokenizer_round_trip(tiny):
    tokenizer = tiny[1]
    for seed in range(50):
        problem, solution = common.make_countdown(random.Random(seed), 2 + seed % 3)
        text = problem.prompt + solution
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert len(ids) == len(re.sub("<[^>]*>", "#", text))  # a tag is one token, any other character is one
        assert tokenizer.unk_token_id not in ids and tokenizer.pad_token_id not in ids
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        assert len(tokenizer.encode(tag)) == 1
        assert tokenizer.decode(tokenizer.encode(tag), skip_special_tokens=True) == tag
    assert tokenizer.encode("1<eos>")[-1] == tokenizer.eos_token_id != tokenizer.pad_token_id


def some_samples(tokenizer, count=6, seed=0):
    """Prompts and completions of different lengths; the completions end with EOS, but for the last one."""
    rng = random.Random(seed)
    samples = []
    for i in range(count):
        problem, solution = common.make_countdown(rng, 2 + i % 3)
        samples.append(Sample(tokenizer.encode(problem.prompt), tokenizer.encode(solution + tokenizer.eos_token)))
    samples[-1] = samples[-1]._replace(completion_ids=samples[-1].completion_ids[:5])
    return samples


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_saved_policy_loads_as_it_was(sharp, tmp_path, dtype):
    """load_policy gives fp32 weights whatever the dtype of the checkpoint, and the same tokens."""
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]
    copy.deepcopy(policy).to(dtype).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for parameter in policy.parameters():
        parameter.data = parameter.data.to(dtype).float()
    loaded, loaded_tokenizer = common.load_policy(Config(model=str(tmp_path)), torch.device("cpu"))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    samples = some_samples(tokenizer)
    assert samples == some_samples(loaded_tokenizer)
    assert loaded_tokenizer.decode(samples[0].completion_ids) == tokenizer.decode(samples[0].completion_ids)
    assert common.GenerateSampler(loaded, loaded_tokenizer, Config()).stops == [tokenizer.eos_token_id]
    for got, expected in zip(common.token_logprobs(loaded, samples, range(6)),
                             common.token_logprobs(policy, samples, range(6))):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_load_policy_fails_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as error:
        common.load_policy(Config(model=str(tmp_path / "absent")), torch.device("cpu"))
    assert error.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


# ------------------------------------------------------------------------------------------ log-probs and entropies
@pytest.mark.parametrize("temperature", [0.5, 0.7, 1.0, 1.8])
def test_linear_logprobs_gradcheck(temperature):
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 4, dtype=torch.float64, requires_grad=True) for n in (5, 7))
    targets = torch.tensor([0, 6, 3, 3, 1])
    assert torch.autograd.gradcheck(lambda h, w: common.LinearLogProbs.apply(h, w, targets, temperature),
                                    (hidden, weight), atol=1e-7, rtol=1e-6)


def reference_logprobs(hidden, weight, targets, temperature):
    logp = torch.log_softmax(hidden @ weight.T / temperature, -1)
    return logp[range(len(targets)), targets], -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_linear_logprobs_equals_log_softmax(temperature):
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 8, dtype=torch.float64, requires_grad=True) for n in (9, 11))
    targets, factors = torch.randint(11, (9,)), torch.randn(2, 9, dtype=torch.float64)
    results = []
    for function in (common.LinearLogProbs.apply, reference_logprobs):
        logprobs, entropies = function(hidden, weight, targets, temperature)
        gradients = torch.autograd.grad((factors[0] * logprobs + factors[1] * entropies).sum(), (hidden, weight))
        results.append((logprobs, entropies, *gradients))
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor that torch makes within it, in backward passes, too."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result


@pytest.mark.parametrize("words", [50, 49, 25, 7, 1])
def test_linear_logprobs_in_tiles(monkeypatch, words):
    """A tile has at most 2**22 logits, so that 9 tokens that claim to be 2**22 / 7 make tiles of 7 of the 50 words."""
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (9, 50))
    weight = weight * 5  # so that one tile can hold nearly all of the probability, whichever it is
    targets, factors = torch.tensor([0, 6, 7, 24, 25, 48, 49, 49, 13]), torch.randn(2, 9, dtype=torch.float64)

    def results(function):
        logprobs, entropies = function(hidden, weight, targets, 0.9)
        loss = (factors[0] * logprobs + factors[1] * entropies).sum()
        return logprobs, entropies, *torch.autograd.grad(loss, (hidden, weight), retain_graph=True)

    expected = results(reference_logprobs)
    monkeypatch.setattr(common, "len", lambda x: 2**22 // words if getattr(x, "shape", 0) == hidden.shape else len(x),
                        raising=False)
    with LargestResult() as largest:
        got = results(common.LinearLogProbs.apply)
    assert largest.numel == max(9 * words, weight.numel())  # no [9, 50] was made
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_entropy_of_a_uniform_policy():
    hidden, targets = torch.randn(3, 4), torch.tensor([0, 5, 9])
    logprobs, entropies = common.LinearLogProbs.apply(hidden, torch.zeros(10, 4), targets, 0.7)
    torch.testing.assert_close(entropies, torch.full((3,), math.log(10)), rtol=0, atol=1e-6)
    torch.testing.assert_close(logprobs, torch.full((3,), -math.log(10)), rtol=0, atol=1e-6)


def test_linear_logprobs_of_bfloat16_are_float32():
    """Only the product is in bf16: log-probs rounded to bf16 would make ratios that are wrong in the third digit."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(6, 16).bfloat16(), torch.randn(12, 16).bfloat16()
    targets = torch.randint(12, (6,))
    logprobs, entropies = common.LinearLogProbs.apply(hidden, weight, targets, 1.0)
    logp = (hidden @ weight.T).float().log_softmax(-1)
    assert logprobs.dtype == entropies.dtype == torch.float32
    torch.testing.assert_close(logprobs, logp[range(6), targets], rtol=0, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [4, 0, 5], [2]])
def test_token_logprobs_equal_those_of_the_logits(sharp, rows, temperature):
    """One row at a time, without padding, by the policy's own head: what each batch must reproduce."""
    policy, tokenizer = sharp
    samples = some_samples(tokenizer)
    width = max(len(sample.completion_ids) for sample in samples)
    logprobs, entropies = common.token_logprobs(policy, samples, rows, temperature)
    assert logprobs.shape == entropies.shape == (len(rows), width)
    for row, i in enumerate(rows):
        prompt, completion = samples[i].prompt_ids, samples[i].completion_ids
        logits = policy(torch.tensor([prompt + completion])).logits[0]  # [S, V]
        logp = (logits[len(prompt) - 1:-1] / temperature).log_softmax(-1)  # [T, V]: what precedes a token predicts it
        expected = logp[range(len(completion)), completion], -(logp.exp() * logp).sum(-1)
        got = logprobs[row, :len(completion)], entropies[row, :len(completion)]
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
        assert (logprobs[row, len(completion):] == 0).all() and (entropies[row, len(completion):] == 0).all()
    assert logprobs[logprobs != 0].std() > 0.3  # the rows do differ from a uniform policy's


@pytest.mark.parametrize("rows", [None, [7, 2, 4]])
def test_frozen_logprobs_keep_the_order_of_the_rows(sharp, rows):
    """They are computed in microbatches sorted by length, and are 0 in the rows that were not asked for."""
    policy, tokenizer = sharp
    samples = some_samples(tokenizer, 9)
    expected = tuple(part.detach() for part in common.token_logprobs(policy, samples, range(9), 0.7))
    for i in set(range(9)) - set(range(9) if rows is None else rows):
        expected[0][i] = expected[1][i] = 0
    for budget in (1, 100, 10**6):
        frozen = common.frozen_logprobs(policy, samples, Config(temperature=0.7, microbatch_tokens=budget), rows)
        assert not frozen[0].requires_grad
        torch.testing.assert_close(frozen, expected, rtol=0, atol=1e-5)


def test_eos_is_trained_and_prompt_and_padding_are_not(sharp):
    """A token's log-prob is read from the state before it: these states, and no others, get a gradient."""
    policy, tokenizer = sharp
    samples, states = some_samples(tokenizer), []
    hook = policy.base_model.register_forward_hook(lambda *call: states.append(call[-1].last_hidden_state))
    logprobs, _ = common.token_logprobs(policy, samples, range(6))
    hook.remove()
    mask = common.completion_mask(samples, policy.device)
    gradient, = torch.autograd.grad((logprobs * mask).sum(), states)
    trained = gradient.abs().sum(-1) > 0  # [n, S]
    for i, sample in enumerate(samples):
        first, count = len(sample.prompt_ids) - 1, len(sample.completion_ids)
        assert trained[i].nonzero().flatten().tolist() == list(range(first, first + count))
        assert mask[i].tolist() == [1.0] * count + [0.0] * (mask.shape[1] - count)
    assert samples[0].completion_ids[-1] == tokenizer.eos_token_id


def test_mask_of_truncated_completions():
    samples = [Sample([1], [2, 3]), Sample([1], [2, 3, 4], truncated=True)]
    assert common.completion_mask(samples, "cpu").tolist() == [[1, 1, 0], [1, 1, 1]]
    assert common.completion_mask(samples, "cpu", True).tolist() == [[1, 1, 0], [0, 0, 0]]


def test_a_stop_token_that_is_also_the_padding_counts(sharp):
    """mask = (ids != pad) would drop it; so would it drop an earlier token that happens to be the padding."""
    policy, tokenizer = sharp
    pad = tokenizer.pad_token_id
    samples = [Sample([10, 11], [12, pad, 13, pad]), Sample([10, 11, 12], [13] * 7)]
    assert common.completion_mask(samples, policy.device).sum(1).tolist() == [4, 7]
    assert ((common.token_logprobs(policy, samples, [0, 1])[0] != 0).sum(1)).tolist() == [4, 7]


# ---------------------------------------------------------------------------------------------------- microbatches
def lengths_of(samples):
    return [len(sample.prompt_ids) + len(sample.completion_ids) for sample in samples]


@pytest.mark.parametrize("budget", [1, 20, 64, 1000, 10**6])
@pytest.mark.parametrize("seed", range(5))
def test_microbatches_partition_the_rows(budget, seed):
    rng = random.Random(seed)
    samples = [Sample([0] * rng.randint(1, 9), [0] * rng.randint(1, 40)) for _ in range(50)]
    rows, lengths = torch.tensor(rng.sample(range(50), 30)), lengths_of(samples)
    parts = common.microbatches(samples, rows, budget)
    flat = [row for part in parts for row in part]
    assert sorted(flat) == sorted(rows.tolist())
    assert [lengths[row] for row in flat] == sorted(lengths[row] for row in rows.tolist())
    for part in parts:
        assert part and (len(part) == 1 or len(part) * max(lengths[row] for row in part) <= budget)
    for part, following in zip(parts, parts[1:]):  # a part ends only where another row would not fit
        assert (len(part) + 1) * lengths[following[0]] > budget


def test_microbatches_by_hand():
    samples = [Sample([0], [0] * (length - 1)) for length in (3, 2, 9, 2, 2)]
    assert [lengths_of(samples[i] for i in part) for part in common.microbatches(samples, range(5), 6)] == [
        [2, 2, 2], [3], [9]]


# -------------------------------------------------------------------------------------------------------- the loss
MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=torch.float64)  # N = 3, 6 tokens


@pytest.mark.parametrize("aggregation, first, second", [
    ("sequence", 1 / 6, 1 / 12), ("token", 1 / 6, 1 / 6), ("constant", 1 / 30, 1 / 30)])
def test_token_weights(aggregation, first, second):
    """N counts the row without tokens too: a masked completion still is one of the minibatch's."""
    weights = common.token_weights(MASK, aggregation, 10)
    torch.testing.assert_close(weights, torch.tensor([[first], [second], [0]], dtype=torch.float64) * MASK,
                               rtol=0, atol=1e-15)


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_token_weights_without_tokens(aggregation):
    assert (common.token_weights(torch.zeros(2, 3), aggregation, 10) == 0).all()


@pytest.mark.parametrize("aggregation, length", [("mean", 10), ("", 10), ("constant", None), ("constant", 0)])
def test_token_weights_errors(aggregation, length):
    with pytest.raises(ValueError):
        common.token_weights(MASK, aggregation, length)
    with pytest.raises(ValueError):
        common.ppo_clip_loss(MASK, MASK, torch.ones(3), MASK, aggregation=aggregation, max_completion_length=length)


def clip_loss_of(ratio, advantage, **kwargs):
    """The loss of one token with this ratio, its gradient with respect to the log-prob, and both clip counts."""
    logprob = torch.tensor([[math.log(ratio) - 1.0]], dtype=torch.float64, requires_grad=True)
    result = common.ppo_clip_loss(logprob, torch.tensor([[-1.0]], dtype=torch.float64),
                                  torch.tensor([advantage], dtype=torch.float64), torch.ones(1, 1), **kwargs)
    result.loss.backward()
    return result.loss.item(), logprob.grad.item(), int(result.clipped_low), int(result.clipped_high)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("ratio, advantage, loss, gradient, low, high", [
    (1.5, 2.0, -2.4, 0.0, 0, 1),  # a success that became likelier by enough: clipped at 1.2
    (0.5, 2.0, -1.0, -1.0, 0, 0),  # one that became less likely: never clipped, it must come back
    (1.5, -2.0, 3.0, 3.0, 0, 0),  # a failure that became likelier: never clipped
    (0.5, -2.0, 1.6, 0.0, 1, 0),  # one that became less likely by enough: clipped at 0.8
    (1.1, 2.0, -2.2, -2.2, 0, 0),  # inside the clip range
    (0.9, 2.0, -1.8, -1.8, 0, 0),
    (1.1, -2.0, 2.2, 2.2, 0, 0),
    (0.9, -2.0, 1.8, 1.8, 0, 0),
    (1.5, 0.0, 0.0, 0.0, 0, 0),
    (0.5, 0.0, 0.0, 0.0, 0, 0)])
def test_corners_of_the_clip(ratio, advantage, loss, gradient, low, high, level):
    """-min(rho A, clip(rho) A): d loss / d logp is -rho A where nothing is clipped, and 0 where it is."""
    result = clip_loss_of(ratio, advantage, importance_sampling_level=level)
    assert result == pytest.approx((loss, gradient, low, high), abs=1e-12)


@pytest.mark.parametrize("ratio, advantage, loss, gradient, low, high", [
    (1.25, 1.0, -1.25, -1.25, 0, 0),  # beyond 1 + epsilon, within 1 + epsilon_high
    (1.3, 1.0, -1.28, 0.0, 0, 1),
    (0.75, -1.0, 0.8, 0.0, 1, 0),  # the lower limit stays 1 - epsilon
    (0.85, -1.0, 0.85, 0.85, 0, 0)])
def test_epsilon_high(ratio, advantage, loss, gradient, low, high):
    result = clip_loss_of(ratio, advantage, epsilon=0.2, epsilon_high=0.28)
    assert result == pytest.approx((loss, gradient, low, high), abs=1e-12)


@pytest.mark.parametrize("epsilon, loss", [(0.1, -1.1), (0.3, -1.3)])
def test_epsilon_is_both_limits_when_epsilon_high_is_left_out(epsilon, loss):
    assert clip_loss_of(1.5, 1.0, epsilon=epsilon)[0] == pytest.approx(loss, abs=1e-12)
    assert clip_loss_of(0.5, -1.0, epsilon=epsilon)[0] == pytest.approx(1 - epsilon, abs=1e-12)


def test_sequence_level_is_the_geometric_mean_of_the_ratios():
    """Two rows, of 2 and 1 tokens: s = sqrt(1.2 * 0.9) and 0.5; d s / d logp_t = s / |o|."""
    ratios = torch.tensor([[1.2, 0.9], [0.5, 7.0]], dtype=torch.float64)  # the 7.0 is padding
    mask = torch.tensor([[1, 1], [1, 0]])
    logprobs = ratios.log().requires_grad_()
    loss, low, high = common.ppo_clip_loss(
        logprobs, torch.zeros(2, 2, dtype=torch.float64), torch.tensor([3.0, -1.0], dtype=torch.float64), mask,
        importance_sampling_level="sequence", aggregation="token")
    s = math.sqrt(1.2 * 0.9)
    assert loss.item() == pytest.approx((-3 * s - 3 * s + 0.8) / 3, abs=1e-12)  # the second row is clipped at 0.8
    loss.backward()
    expected = torch.tensor([[-s, -s], [0, 0]], dtype=torch.float64)  # (2 tokens / 3) * 3 s / 2 = s
    torch.testing.assert_close(logprobs.grad, expected, rtol=0, atol=1e-12)
    assert (low, high) == (1, 0)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_clip_counts_are_of_tokens(level):
    """Every token of a clipped response is counted at sequence level; padding never is."""
    logprobs = torch.full((3, 4), math.log(1.5), dtype=torch.float64)
    logprobs[1] = math.log(0.5)
    _, low, high = common.ppo_clip_loss(logprobs, torch.zeros_like(logprobs), torch.tensor([1.0, -1.0, 1.0]), MASK,
                                        importance_sampling_level=level)
    assert (low, high) == (4, 2)  # the third row has no tokens


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_padding_does_not_leak(bad, level, aggregation):
    """Whatever stands beyond a row's end, the loss and the gradient are those with zeros there."""
    torch.manual_seed(0)
    clean, old = torch.randn(2, 3, 4, dtype=torch.float64) * MASK
    results = []
    for logprobs, old_logprobs in ((clean, old), (clean.masked_fill(MASK == 0, bad), old.masked_fill(MASK == 0, bad)),
                                   (clean.masked_fill(MASK == 0, bad), old)):
        logprobs = logprobs.requires_grad_() if logprobs is not clean else logprobs.clone().requires_grad_()
        result = common.ppo_clip_loss(logprobs, old_logprobs, torch.tensor([1.0, -1.0, 2.0]), MASK, 0.2, None, level,
                                      aggregation, 4)
        result.loss.backward()
        results.append((*result, logprobs.grad))
        assert (logprobs.grad[MASK == 0] == 0).all() and logprobs.grad.abs().sum() > 0
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    torch.testing.assert_close(results[2], results[0], rtol=0, atol=0)


@pytest.mark.parametrize("level", ["", "Token", "group"])
def test_unknown_importance_sampling_level(level):
    with pytest.raises(ValueError, match="importance_sampling_level"):
        common.ppo_clip_loss(MASK, MASK, torch.ones(3), MASK, importance_sampling_level=level)


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_default_weights_are_token_weights(aggregation):
    torch.manual_seed(0)
    logprobs, old_logprobs = torch.randn(2, 3, 4, dtype=torch.float64)
    inputs = logprobs, old_logprobs, torch.tensor([1.0, -1.0, 2.0]), MASK
    assert (common.ppo_clip_loss(*inputs, aggregation=aggregation, max_completion_length=4).loss
            == common.ppo_clip_loss(*inputs, weights=common.token_weights(MASK, aggregation, 4)).loss)


def test_advantages_a_token_and_a_boolean_mask():
    torch.manual_seed(0)
    logprobs, old_logprobs = torch.randn(2, 3, 4, dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
    whole = common.ppo_clip_loss(logprobs, old_logprobs, advantages, MASK)
    assert common.ppo_clip_loss(logprobs, old_logprobs, advantages[:, None].expand(3, 4), MASK) == whole
    assert common.ppo_clip_loss(logprobs, old_logprobs, advantages, MASK.bool()) == whole
    advantages = torch.randn(3, 4, dtype=torch.float64)
    by_token = common.ppo_clip_loss(logprobs, logprobs, advantages, MASK, aggregation="token").loss
    assert by_token.item() == pytest.approx(-(advantages * MASK).sum().item() / 6, abs=1e-12)


def test_kl_penalty():
    torch.manual_seed(0)
    logprobs, ref_logprobs = torch.randn(2, 50, dtype=torch.float64)
    assert (common.kl_penalty(logprobs, ref_logprobs) > 0).all()
    assert (common.kl_penalty(logprobs, logprobs) == 0).all()
    expected = (math.exp(-1.5 + 1) + 1.5 - 1) - 1  # exp(ref - logp) - (ref - logp) - 1 with ref = -1.5, logp = -1
    assert common.kl_penalty(torch.tensor(-1.0), torch.tensor(-1.5)).item() == pytest.approx(expected, abs=1e-6)


def test_kl_penalty_pulls_towards_the_reference():
    """d k3 / d logp = 1 - exp(ref - logp): above 0 exactly where the policy is likelier than the reference."""
    logprobs = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64, requires_grad=True)
    common.kl_penalty(logprobs, torch.full((3,), -2.0, dtype=torch.float64)).sum().backward()
    expected = torch.tensor([1 - math.exp(-1), 0, 1 - math.exp(1)], dtype=torch.float64)
    torch.testing.assert_close(logprobs.grad, expected, rtol=0, atol=1e-12)


def test_kl_penalty_is_unbiased():
    """Its mean over the policy's own actions is KL(policy || reference), not the reverse one."""
    torch.manual_seed(0)
    logp, ref = torch.randn(2, 6, dtype=torch.float64).log_softmax(-1)
    kl = (logp.exp() * (logp - ref)).sum().item()
    reverse = (ref.exp() * (ref - logp)).sum().item()
    assert (logp.exp() * common.kl_penalty(logp, ref)).sum().item() == pytest.approx(kl, abs=1e-12)
    assert abs(kl - reverse) > 0.01


# ------------------------------------------------------------------------------------------------------ evaluation
@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_counts_the_subsets_with_a_success(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        subsets = list(itertools.combinations([1] * correct + [0] * (n - correct), k))
        assert common.pass_at_k(n, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15)


@pytest.mark.parametrize("n, correct, k", [(4, 2, 5), (4, 2, 0), (4, 2, -1), (4, 5, 2), (4, -1, 2), (0, 0, 1)])
def test_pass_at_k_errors(n, correct, k):
    with pytest.raises(ValueError):
        common.pass_at_k(n, correct, k)


@pytest.mark.parametrize("answers, entropy", [
    (["1"], 0), (["1"] * 7, 0), (["1", "2"], math.log(2)), (["1", "2", "3", "NA"], math.log(4)),
    (["a", "a", "b"], math.log(3) - 2 / 3 * math.log(2)), (["NA", "NA"], 0), (["1", "1 "], math.log(2))])
def test_answer_entropy(answers, entropy):
    assert common.answer_entropy(answers) == pytest.approx(entropy, abs=1e-12)


class ScriptedSampler:
    """Instead of a policy: one word a group says whether its completions are "right", "wrong" or "mixed"."""

    def __init__(self, policy, tokenizer, solutions, script, size):
        self.policy, self.tokenizer, self.stops, self.config = policy, tokenizer, [tokenizer.eos_token_id], Config()
        self.devices = []
        self.solutions, self.script, self.size, self.groups_a_call = solutions, iter(script), size, []

    def generate(self, prompt_ids, temperature, top_p, max_tokens):
        prompts = [self.tokenizer.decode(ids) for ids in prompt_ids]
        groups = [prompts[i:i + self.size] for i in range(0, len(prompts), self.size)]
        self.groups_a_call.append(len(groups))
        completions = []
        for group in groups:
            assert len(group) == self.size and len(set(group)) == 1  # the completions of a prompt stand together
            word = next(self.script)
            right = {"right": self.size, "wrong": 0, "mixed": 1}[word]
            for i in range(self.size):
                text = self.solutions[group[0]] if i < right else f"<answer>{i}</answer>"
                completions.append(self.tokenizer.encode(text + "<eos>"))
        return completions, [[0.0] * len(completion) for completion in completions]

    def sync(self):
        self.synced = True

    def sleep(self):
        assert self.synced


class GreedyFirst(ScriptedSampler):
    """For evaluations: the greedy completion of a problem is right unless the script says "wrong"."""

    def generate(self, prompt_ids, temperature, top_p, max_tokens):
        if temperature == 0:
            assert len(prompt_ids) == len(self.words)
            texts = ["<answer>0</answer>" if word == W else self.solutions[self.tokenizer.decode(ids)]
                     for ids, word in zip(prompt_ids, self.words)]
            completions = [self.tokenizer.encode(text + "<eos>") for text in texts]
            return completions, [[0.0] * len(completion) for completion in completions]
        self.words = [*itertools.islice(self.script, len(prompt_ids) // self.size)]
        self.script = itertools.chain(self.words, self.script)
        return super().generate(prompt_ids, temperature, top_p, max_tokens)


@pytest.fixture(scope="module")
def solutions():
    """Prompt -> solution, of 64 problems."""
    rng, found = random.Random(0), {}
    while len(found) < 64:
        problem, solution = common.make_countdown(rng, 3)
        found[problem.prompt] = solution
    return found


def roll_out_scripted(tiny, solutions, script, **flags):
    config = Config(prompts_per_step=4, num_generations=2, minibatch_size=8, **flags)
    sampler = ScriptedSampler(*tiny, solutions, script, 2)
    stream = common.ProblemStream([common.Problem(prompt, prompt) for prompt in solutions], 0)
    samples = common.roll_out_step(sampler, stream, config)
    rates = [sum(sample.reward for sample in samples[i:i + 2]) for i in range(0, len(samples), 2)]
    words = [{0: "wrong", 1: "mixed", 2: "right"}[rate] for rate in rates]
    groups = [{tuple(sample.prompt_ids) for sample in samples[i:i + 2]} for i in range(0, len(samples), 2)]
    assert all(len(group) == 1 for group in groups)
    assert stream.position == sum(sampler.groups_a_call)
    return words, [count for count in sampler.groups_a_call if count]


W, R, M = "wrong", "right", "mixed"


@pytest.mark.parametrize("script, max_redraws, words, calls", [
    ([M, M, M, M], 3, [M, M, M, M], [4]),  # nothing to draw again
    ([M, W, R, M, M, M], 3, [M, M, M, M], [4, 2]),
    ([M, W, R, M, W, M, M], 3, [M, M, M, M], [4, 2, 1]),
    ([W, R, W, R, W, W, W, M, R, R, R, M, R, W], 3, [M, M, R, W], [4, 4, 3, 3]),  # filled up after the last redraw
    ([W, W, W, W, M, M, R, W], 1, [M, M, R, W], [4, 4]),
    ([W, R, M, M], 0, [W, R, M, M], [4])])
def test_dynamic_sampling(tiny, solutions, script, max_redraws, words, calls):
    """Groups without contrast are drawn again, and only those; the batch is always whole."""
    assert roll_out_scripted(tiny, solutions, script, dynamic_sampling=True, max_redraws=max_redraws) == (words, calls)


def test_without_dynamic_sampling(tiny, solutions):
    assert roll_out_scripted(tiny, solutions, [W, R, M, W]) == ([W, R, M, W], [4])


def test_roll_out(tiny, solutions):
    """What a Sample holds; a completion without a stop token is truncated, whatever its reward."""
    tokenizer = tiny[1]
    prompt, solution = next(iter(solutions.items()))
    completions = [tokenizer.encode(solution + "<eos>"), tokenizer.encode(solution), tokenizer.encode("<think><eos>")]
    logprobs = [[-0.5] * len(completion) for completion in completions]
    sampler = SimpleNamespace(tokenizer=tokenizer, stops=[tokenizer.eos_token_id], config=Config(),
                              generate=lambda *_: (completions, logprobs))
    groups = common.roll_out(sampler, [common.Problem(prompt, prompt)], 3, 1.0, 48)
    ids = tokenizer.encode(prompt)
    assert groups == [[
        Sample(ids, completions[0], solution, 1.0, False, logprobs[0]),
        Sample(ids, completions[1], solution, 1.0, True, logprobs[1]),
        Sample(ids, completions[2], "<think>", 0.0, False, logprobs[2])]]


def test_evaluate_by_hand(tiny, solutions):
    """Three problems, two samples each: all wrong, all right, one right. The policy's head is 0, thus uniform."""
    policy = copy.deepcopy(tiny[0])
    policy.get_output_embeddings().weight.data.zero_()
    problems = [common.Problem(prompt, prompt) for prompt in list(solutions)[:3]]
    sampler = GreedyFirst(policy, tiny[1], solutions, [W, R, M], 2)
    metrics = common.evaluate(sampler, {"countdown": problems}, Config(eval_samples=2))
    wrong = [len(tiny[1].encode("<answer>0</answer><eos>"))] * 2
    right = [len(tiny[1].encode(solutions[problem.prompt] + "<eos>")) for problem in problems]
    assert metrics == pytest.approx({
        "pass@1": (0 + 1 + 1 / 2) / 3, "pass@2": (0 + 1 + 1) / 3, "avg@2": 1 / 2, "greedy": 2 / 3,
        "answer_entropy": (math.log(2) + 0 + math.log(2)) / 3,  # answers 0 and 1; one twice; the solution and 1
        "token_entropy": math.log(policy.config.vocab_size),
        "reward": 3 / 6, "all_wrong": 1 / 3, "all_right": 1 / 3,
        "length": (sum(wrong) + 2 * right[1] + right[2] + wrong[0]) / 6, "truncated": 0,
        "unparsed": 0, "timeout": 0}, abs=1e-6)


def test_evaluate_several_sets_and_levels(tiny, solutions):
    """Names before the metrics of several sets; pass@1 of each level where a set has more than one."""
    easy, *hard = [common.Problem(prompt, prompt, level="easy" if i == 0 else "hard")
                   for i, prompt in enumerate(list(solutions)[:3])]
    sampler = GreedyFirst(*tiny, solutions, [M, W, R, R], 2)
    metrics = common.evaluate(sampler, {"a": [easy, *hard], "b": hard[:1]}, Config(eval_samples=2))
    assert (metrics["a/pass@1 easy"], metrics["a/pass@1 hard"], metrics["a/pass@1"]) == (0.5, 0.5, 0.5)
    assert (metrics["b/pass@1"], metrics["b/greedy"], metrics["a/greedy"]) == (1, 1, 2 / 3)
    assert "b/pass@1 hard" not in metrics and "pass@1" not in metrics


def test_evaluate_has_a_random_stream_of_its_own(sharp, solutions):
    policy, tokenizer = sharp
    sampler = common.GenerateSampler(policy, tokenizer, Config(rollout_batch_size=16))
    problems = {"countdown": [common.Problem(prompt, prompt) for prompt in list(solutions)[:4]]}
    config = Config(eval_samples=4, max_completion_length=12, seed=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = common.evaluate(sampler, problems, config)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert common.evaluate(sampler, problems, config) == first
    other = common.evaluate(sampler, problems, Config(eval_samples=4, max_completion_length=12, seed=4))
    assert other["token_entropy"] != first["token_entropy"]
    assert {"pass@1", "pass@2", "pass@4"} <= first.keys()


# -------------------------------------------------------------------------------------------------------- rollouts
PROMPTS = ["3 9 5 : 48 ", "2 4 : 8 ", "1 2 3 4 : 10 ", "7 7 : 1 ", "9 9 9 9 : 36 ", "5 : 5 ", "8 2 : 4 "]


def test_generate_sampler_stops(sharp):
    """A completion ends with its first EOS, or has as many tokens as it may have."""
    policy, tokenizer = sharp
    torch.manual_seed(0)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS] * 6
    completions, _ = common.GenerateSampler(policy, tokenizer, Config(rollout_batch_size=16)).generate(
        prompts, 1.0, 1.0, 20)
    assert len(completions) == len(prompts)
    for completion in completions:
        assert completion[-1] == tokenizer.eos_token_id or len(completion) == 20
        assert tokenizer.eos_token_id not in completion[:-1]
    lengths = {len(completion) for completion in completions}
    assert 20 in lengths and len(lengths) > 3  # both ends did occur


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_sampler_and_trainer_agree_on_the_log_probs(sharp, monkeypatch, temperature):
    """The scores that generate draws from, at the tokens it drew, are token_logprobs at the same temperature.

    Left padding, several batches and the settings a checkpoint brings along (those of Qwen2.5) change nothing.
    """
    policy, tokenizer = copy.deepcopy(sharp[0]), sharp[1]
    settings = dict(temperature=0.3, top_p=0.5, top_k=3, repetition_penalty=1.5)
    for name, value in settings.items():
        setattr(policy.generation_config, name, value)
    scores, generate = [], policy.generate

    def generate_with_scores(generation_config, **kwargs):
        generation_config.output_scores = generation_config.return_dict_in_generate = True
        output = generate(generation_config=generation_config, **kwargs)
        scores.extend(torch.stack(output.scores, 1))  # a [T, V] a row
        return output.sequences

    monkeypatch.setattr(policy, "generate", generate_with_scores)
    torch.manual_seed(0)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS] * 2
    sampler = common.GenerateSampler(policy, tokenizer, Config(rollout_batch_size=5))
    completions, recorded = sampler.generate(prompts, temperature, 1.0, 16)
    samples = [Sample(prompt, completion, logprobs=logps)
               for prompt, completion, logps in zip(prompts, completions, recorded)]
    logprobs, _ = common.token_logprobs(policy, samples, range(len(samples)), temperature)
    assert len(scores) == len(samples)
    for row, sample in enumerate(samples):
        count = len(sample.completion_ids)
        drawn = scores[row].log_softmax(-1)[range(count), sample.completion_ids]
        torch.testing.assert_close(logprobs[row, :count].detach(), drawn, rtol=0, atol=1e-4)
    sampled = common.sampled_logprobs(samples, "cpu")
    torch.testing.assert_close(sampled, logprobs.detach(), rtol=0, atol=1e-4)
    mismatch = common.sampler_mismatch(samples, logprobs.detach(), sampled)
    assert mismatch["mismatch"] < 1e-4 and mismatch["mismatch_max_ratio"] < 1.001


def test_left_padding_does_not_change_the_completions(sharp):
    """At a temperature of almost 0 a prompt is continued alike, alone and beside longer ones."""
    policy, tokenizer = sharp
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    alone, together = (
        common.GenerateSampler(policy, tokenizer, Config(rollout_batch_size=size)).generate(prompts, 1e-4, 1.0, 12)[0]
        for size in (1, 7))
    assert alone == together
    assert len(set(map(tuple, alone))) > 1


def test_top_p_reaches_generate(sharp):
    """Evaluation may cut the tail: with next to nothing left of it, all completions of a prompt are the same."""
    sampler = common.GenerateSampler(*sharp, Config(rollout_batch_size=8))
    prompts = [sharp[1].encode(PROMPTS[0])] * 8
    torch.manual_seed(0)
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1e-6, 8)[0]))) == 1
    assert len(set(map(tuple, sampler.generate(prompts, 1.0, 1.0, 8)[0]))) > 1


def test_a_tokenizer_without_padding(tiny, tmp_path):
    """Llama's have none: the stop token pads, and is still trained, for masks go by position."""
    policy, tokenizer = copy.deepcopy(tiny[0]), copy.deepcopy(tiny[1])
    tokenizer.pad_token, policy.generation_config.eos_token_id = None, None
    common.save_beside(tmp_path / "policy", policy, tokenizer)
    policy, tokenizer = common.load_policy(Config(model=str(tmp_path / "policy")), torch.device("cpu"))
    sampler = common.GenerateSampler(policy, tokenizer, Config())
    assert tokenizer.pad_token == "<eos>" and sampler.stops == [tokenizer.eos_token_id]
    completions, logprobs = sampler.generate([[8, 9, 10], [8]], 1.0, 1.0, 6)
    assert [len(logps) for logps in logprobs] == [len(completion) for completion in completions]
    mask = common.completion_mask([Sample([8], [9, 1]), Sample([8], [9, 9, 1])], "cpu")
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1]]


def test_greedy_completions(sharp):
    """Temperature 0 takes the likeliest token each time; its log-probs are those of temperature 1."""
    policy, tokenizer = sharp
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    (first, logprobs), (second, _) = (common.GenerateSampler(*sharp, Config()).generate(prompts, 0.0, p, 12)
                                      for p in (1.0, 0.5))
    assert first == second
    samples = [Sample(prompt, completion) for prompt, completion in zip(prompts, first)]
    expected, _ = common.token_logprobs(policy, samples, range(len(samples)))
    for row, (sample, logps) in enumerate(zip(samples, logprobs)):
        assert logps == pytest.approx(expected[row, :len(logps)].tolist(), abs=1e-4)
        for i in range(len(sample.completion_ids)):
            ids = torch.tensor([sample.prompt_ids + sample.completion_ids[:i]])
            assert policy(ids).logits[0, -1].argmax().item() == sample.completion_ids[i]


def test_sampler_mismatch_by_hand():
    """Two completions of 2 and 1 tokens; log-probs of the trainer less the sampler's: 0.1, -0.2 and 0.3."""
    samples = [Sample([1], [5, 6], logprobs=[-1.0, -2.0]), Sample([1], [7], logprobs=[-0.5])]
    sampled = common.sampled_logprobs(samples, "cpu")
    assert sampled.tolist() == [[-1.0, -2.0], [-0.5, 0.0]]
    logprobs = torch.tensor([[-0.9, -2.2], [-0.2, 9.0]])
    mismatch = common.sampler_mismatch(samples, logprobs, sampled)
    k3 = sum(math.exp(d) - 1 - d for d in (0.1, -0.2, 0.3)) / 3
    expected = {"mismatch": 0.2, "mismatch_k3": k3, "mismatch_max_ratio": math.exp(0.3)}
    assert mismatch == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_fit_pass_at_k_finds_the_curve_again(a, b, c):
    ks = [2**i for i in range(9)]
    fit = common.fit_pass_at_k(ks, [math.exp(-a * (k + c) ** -b) for k in ks])
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)


def test_fit_pass_at_k_needs_three_points_between_0_and_1():
    assert common.fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}


def shape_of(**changes):
    shape = dict(vocab_size=64, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2)
    return transformers.Qwen2Config(**shape | changes)


@pytest.mark.parametrize("changes", [dict(), dict(intermediate_size=1024), dict(hidden_size=256)], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_memory_estimate_is_near_what_the_backward_pass_keeps(changes, checkpointing):
    """Against the bytes of the tensors that autograd saves, in fp32: within a quarter."""
    policy, saved = transformers.Qwen2ForCausalLM(shape_of(**changes)), {}
    if checkpointing:
        policy.gradient_checkpointing_enable()
        policy.train()
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        policy.base_model(input_ids=torch.zeros(1, 4096, dtype=torch.long), use_cache=False)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in saved.values()) / 1e9
    config = Config(microbatch_tokens=4096, gradient_checkpointing=checkpointing)
    estimate = common.memory_estimate(policy.config, config)
    if checkpointing:  # beside what is kept of all layers, one layer is computed again at a time
        whole = common.memory_estimate(policy.config, replace(config, gradient_checkpointing=False))
        layers = policy.config.num_hidden_layers
        measured += (whole["activations of 4096 tokens"] - 0.5) / layers
    assert estimate["activations of 4096 tokens"] - 0.5 == pytest.approx(measured, rel=0.25)
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    assert estimate["weights, gradients and Adam"] == pytest.approx(16 * parameters / 1e9)


def test_gradient_checkpointing_changes_no_gradient(sharp):
    """The layers are computed again in the backward pass, and only there: `generate` keeps its cache."""
    samples = [Sample(sharp[1].encode(prompt), sharp[1].encode("<answer>1</answer><eos>")) for prompt in PROMPTS]
    gradients, passes = [], []
    for checkpointing in (False, True):
        policy, forwards = copy.deepcopy(sharp[0]), []
        if checkpointing:
            policy.gradient_checkpointing_enable()
        policy.base_model.layers[0].mlp.register_forward_pre_hook(lambda *_: forwards.append(1))
        logprobs, entropies = common.token_logprobs(policy, samples, range(len(samples)))
        (logprobs.sum() + entropies.sum()).backward()
        gradients.append([parameter.grad for parameter in policy.parameters()])
        passes.append(len(forwards))
        sampler = common.GenerateSampler(policy, sharp[1], Config())
        assert len(sampler.generate([[3, 4]], 0.0, 1.0, 4)[0]) == 1 and not policy.training
    assert passes == [1, 2]
    for plain, checkpointed in zip(*gradients):
        torch.testing.assert_close(plain, checkpointed)


# -------------------------------------------------------------------------------------------------- problem stream
PROBLEMS = [common.Problem(str(i), "") for i in range(10)]


def test_problem_stream_passes_over_all_problems():
    stream = common.ProblemStream(PROBLEMS, 0)
    drawn = [problem for count in (3, 4, 7, 1, 10, 5) for problem in stream.draw(count)]
    epochs = [drawn[:10], drawn[10:20], drawn[20:]]
    assert all(sorted(epoch) == PROBLEMS for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[0] != PROBLEMS
    assert stream.position == 30


def test_problem_stream_draws_more_than_a_pass():
    drawn = common.ProblemStream(PROBLEMS, 0).draw(25)
    stream = common.ProblemStream(PROBLEMS, 0)
    assert drawn == [problem for _ in range(25) for problem in stream.draw(1)]


@pytest.mark.parametrize("before", [0, 4, 10, 17])
def test_problem_stream_resumes_from_its_position(before):
    stream, resumed = common.ProblemStream(PROBLEMS, 7), common.ProblemStream(PROBLEMS, 7)
    stream.draw(before)
    resumed.position = stream.position
    assert resumed.draw(13) == stream.draw(13)


def test_problem_stream_seeds_differ():
    assert common.ProblemStream(PROBLEMS, 0).draw(10) != common.ProblemStream(PROBLEMS, 1).draw(10)
    assert common.ProblemStream(PROBLEMS, 1).draw(10) == common.ProblemStream(PROBLEMS, 1).draw(10)


def test_ranks_share_the_stream(monkeypatch):
    """Two ranks that draw 3 each take in turn what one process that draws 6 takes."""
    whole = common.ProblemStream(PROBLEMS, 0)
    expected = [whole.draw(6) for _ in range(4)]
    monkeypatch.setattr(common, "WORLD_SIZE", 2)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(common, "RANK", rank)
        stream = common.ProblemStream(PROBLEMS, 0)
        parts.append([stream.draw(3) for _ in range(4)])
        assert stream.position == whole.position
    assert [[problem for pair in zip(first, second) for problem in pair] for first, second in zip(*parts)] == expected


# ------------------------------------------------------------------------------------------------ folders and flags
class Saved:
    """Stands for a policy or a tokenizer."""

    def __init__(self, text, error=None):
        self.text, self.error = text, error

    def save_pretrained(self, folder, **_):
        folder.mkdir(exist_ok=True)
        (folder / "file").write_text(self.text)
        if self.error:
            raise self.error


def test_save_beside(tmp_path):
    folder = tmp_path / "new" / "checkpoint-1"
    common.save_beside(folder, Saved("-"), Saved("first"))  # into a folder that does not exist
    assert {path.name for path in folder.iterdir()} == {"file", "checksums.json"}
    common.save_beside(folder, Saved("-"), Saved("second"), dict(step=3))  # over one that does
    assert (folder / "file").read_text() == "second"
    assert torch.load(folder / "state.pt") == dict(step=3)
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_save_beside_leaves_nothing_half_written(tmp_path, error):
    """What fails half-way leaves no trace, and an older folder of that name as it was."""
    folder = tmp_path / "checkpoint-1"
    with pytest.raises(type(error)):
        common.save_beside(folder, Saved("never"), Saved("never", error))
    assert list(tmp_path.iterdir()) == []
    common.save_beside(folder, Saved("-"), Saved("old"))
    with pytest.raises(type(error)):
        common.save_beside(folder, Saved("never"), Saved("never", error))
    assert list(tmp_path.iterdir()) == [folder] and (folder / "file").read_text() == "old"


@pytest.mark.parametrize("flags", [
    dict(learning_rate=-1e-4), dict(temperature=0.0), dict(temperature=-1.0), dict(temperature=math.nan),
    dict(temperature=math.inf), dict(learning_rate=math.inf), dict(beta=-0.1), dict(entropy_coef=-1.0),
    dict(epsilon=-0.2), dict(epsilon=0.0), dict(epsilon_high=-0.1), dict(max_steps=-1), dict(max_redraws=-1),
    dict(prompts_per_step=0), dict(num_generations=1), dict(num_generations=0), dict(minibatch_size=0),
    dict(minibatch_size=100), dict(minibatch_size=1024), dict(num_iterations=0), dict(microbatch_tokens=0),
    dict(rollout_batch_size=0), dict(max_completion_length=0), dict(max_grad_norm=0.0), dict(top_p=0.0),
    dict(top_p=1.1), dict(eval_temperature=0.0), dict(eval_samples=0), dict(eval_problems=0), dict(eval_steps=0),
    dict(save_steps=0), dict(seed=-1), dict(sft_steps=-1), dict(numbers=""), dict(numbers="5"), dict(numbers="3,"),
    dict(numbers="3;4"), dict(numbers="33"), dict(vllm_importance_sampling_cap=-1.0),
    dict(vllm_gpu_memory_utilization=1.5), dict(vllm_tensor_parallel_size=2), dict(max_prompt_length=0),
    dict(verify_seconds=0.0)], ids=str)
def test_config_refuses(flags):
    with pytest.raises(ValueError) as error:
        Config(**flags)
    assert "--" in str(error.value) and "\n" not in str(error.value)
    assert any(f"--{name}" in str(error.value) for name in flags)


@pytest.mark.parametrize("flags", [
    dict(), dict(max_steps=0), dict(learning_rate=0.0), dict(beta=0.0), dict(max_redraws=0), dict(sft_steps=0),
    dict(epsilon_high=0.28), dict(numbers="2,3,4"), dict(minibatch_size=512),
    dict(num_generations=2, minibatch_size=64),
    dict(top_p=1.0)], ids=str)
def test_config_accepts(flags):
    config = Config(**flags)
    assert all(getattr(config, name) == value for name, value in flags.items())


def test_config_shares_the_batch_among_the_ranks(monkeypatch):
    monkeypatch.setattr(tasks, "WORLD_SIZE", 3)
    with pytest.raises(ValueError, match="3 ranks"):
        Config()  # 32 prompts
    with pytest.raises(ValueError, match="3 ranks"):
        Config(prompts_per_step=30, num_generations=16, minibatch_size=160)
    assert Config(prompts_per_step=30, num_generations=16, minibatch_size=240).prompts_per_step == 30

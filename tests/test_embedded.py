"""Problems that are made here, Countdown and arithmetic in words, and those of reasoning-gym.

What has the mark `trl` needs that package itself.
"""

import itertools
import json
import random
import re
import zlib
from dataclasses import replace

from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import read_set
from rlvr.tasks.embedded import join_at_random, level_of, make_countdown
from rlvr.verify.answers import answers_in, open_gym, verify_entry
from rlvr.verify.answers.expressions import verify_countdown
from rlvr.verify.pool import grade

import pytest
from local_sets import load
from runs import ROOT, SMALL, arguments, rows, run_python


def end_of_steps(numbers, solution):
    """Where the steps of a solution lead, each of them right."""
    steps = re.fullmatch("<think>(.*)</think><answer>.*</answer>", solution)[1].split(" ")
    left = numbers.split()
    assert len(steps) == len(left) - 1
    for step in steps:
        # each takes two of the numbers that are left, and puts a positive integer back
        a, b, result = re.fullmatch(r"(\d+)[-+*/](\d+)=(\d+)", step).groups()
        left.remove(a)
        left.remove(b)
        left.append(result)
        assert eval(step.partition("=")[0]) == int(result) >= 1
    return int(left[0])


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_problems_have_a_solution_in_positive_integers(size, held_out):
    for seed in range(100):
        problem, solution = make_countdown(random.Random(seed), size, held_out)
        numbers, target = re.fullmatch(r"([1-9](?: [1-9])*) : (\d+) ", problem.prompt).groups()
        assert len(numbers.split()) == size
        assert (problem.gold, problem.level) == (problem.prompt, f"{size} numbers")
        assert verify_countdown(solution, problem.gold) == 1.0
        # by this rule, because the shipped policies were taught on the others
        key = f"{sorted(map(int, numbers.split()))} {target}"
        assert (zlib.crc32(key.encode()) % 10 == 0) == held_out
        assert 1 <= int(target) == end_of_steps(numbers, solution) <= 99


@pytest.mark.parametrize(
    "numbers, steps",
    [
        ([2, 1], "2+1=3 1+2=3 2-1=1 2*1=2 1*2=2 2/1=2"),
        ([11, 9], "11+9=20 9+11=20 11-9=2 11*9=99 9*11=99"),
        ([20, 5], "20+5=25 5+20=25 20-5=15 20/5=4"),  # 100 is too large
    ],
)
def test_all_that_two_numbers_give(numbers, steps):
    found = {join_at_random(random.Random(seed), numbers)[1] for seed in range(300)}
    assert {re.sub("<think>|</.*", "", solution) for solution in found} == {"", *steps.split()}


@pytest.mark.parametrize("numbers, sizes", [("2", "2"), ("2,3,4", "234")])
def test_draw_countdown(numbers, sizes):
    """As many as there are, always the same ones."""
    config = Config(numbers=numbers, eval_problems=99)
    drawn = read_set("countdown", config)
    assert drawn[1][0] == make_countdown(random.Random(0), 2, held_out=True)[0]
    for problems in drawn:
        assert {problem.level for problem in problems} == {f"{size} numbers" for size in sizes}
        assert len(set(problems)) == len(problems)
    if numbers == "2":
        # Another seed gives the same: runs that differ in it are compared on equal problems.
        assert read_set("countdown", replace(config, seed=1)) == drawn
        assert {problem.prompt for problems in drawn for problem in problems} == {
            f"{a} {b} : {target:g} "
            for a, b in itertools.product(range(1, 10), repeat=2)
            for target in (a + b, abs(a - b), a * b, a / b, b / a)
            if target > 0 and target % 1 == 0
        }
    else:
        assert (len(drawn[0]), len(drawn[1])) == (4096, 99)


def facts_of(problem):
    """What is done with which numbers, and as an expression, whatever the wording."""
    text = problem.prompt.lower()
    a, b, *c = map(int, re.findall(r"\d+", text))
    low, high = sorted((a, b))
    if re.search(r"\*|times|multiply", text):
        return "product", (low, high), f"{high}*{low}"
    if not re.search("-|minus|subtract", text):
        return "sum", (low, high), f"{high}+{low}"
    if c:
        return "chain", (low, high, *c), f"{high}+{low}-{c[0]}"
    a, b = (b, a) if "from" in text else (a, b)
    return "difference", (a, b), f"{a}-{b}"


@pytest.mark.parametrize(
    "level, kinds, smallest, largest",
    [
        ("1", {"sum", "difference"}, 1, 20),
        ("2", {"sum", "difference", "chain"}, 10, 99),
        ("3", {"product"}, 10, 99),
        ("4", {"sum", "difference", "product", "chain"}, 100, 999),
    ],
)
def test_levels(monkeypatch, level, kinds, smallest, largest):
    """Every gold is right, and a tenth of all expressions is held out, at any level."""
    # fewer problems than a run has, in a quarter of the time
    monkeypatch.setattr("rlvr.tasks.embedded.TRAINING_PROBLEMS", 1000)
    name = "arithmetic" if level == "1" else f"arithmetic-{level}"
    training, held_out = read_set(name, Config(eval_problems=42))
    assert len({*training}) == len(training) and (level in "13" or len(training) == 1000)
    for problems, are_held_out in ((training, False), (held_out, True)):
        for problem in problems:
            expression = facts_of(problem)[2]
            assert eval(expression) == int(problem.gold) >= 0
            assert (zlib.crc32(expression.encode()) % 10 == 0) == are_held_out
            assert (problem.verifier, problem.level) == ("last_number", f"level {level}")
    assert len({facts_of(problem)[2] for problem in held_out}) == len(held_out) == 42
    assert len({re.sub(r"\d+", "", each.prompt) for each in training}) == 3 * len(kinds)
    assert level != "1" or "0" in {problem.gold for problem in training}
    assert level != "1" or len({facts_of(each)[2] for each in training}) > 345  # of 378
    found = [facts_of(problem) for problem in training + held_out]
    assert {kind for kind, *_ in found} == kinds
    numbers = [number for kind, those, _ in found for number in those[kind == "product" :]]
    assert (min(numbers), max(numbers)) == (smallest, largest)
    factors = {those[0] for kind, those, _ in found if kind == "product"}
    assert factors == ({*range(2, 10)} if "product" in kinds else set())


SUMS, GCD = "reasoning_gym:chain_sum:max_terms=3:max_digits=1:size=300", "reasoning_gym:gcd"


def test_answers_and_levels():
    assert answers_in("7 <answer> 1 2\n3 4 </answer> 5") == ["1 2\n3 4"]
    assert answers_in(" The answer is\n**-7.**") == ["The answer is\n**-7.**", "-7"]
    assert answers_in(" ") == [""]
    difficulty = dict(value=(1, 999), num_terms=(2, 6))
    entry = dict(metadata=dict(num_terms=3, value=512, difficulty=difficulty))
    assert level_of(entry) == "num_terms 3"
    assert [level_of(dict(metadata=dict(difficulty=each))) for each in (1.0, difficulty)] == [
        ""
    ] * 2


def test_several_sets_to_train_on(tiny):
    training, evaluation = load(tiny[1], dataset="countdown,arithmetic", eval_problems=2)
    assert {problem.verifier for problem in training} == {"countdown", "last_number"}
    assert [*evaluation] == ["countdown", "arithmetic"]


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="^cannot load reasoning_gym:x: first pip install reaso"):
        Config(eval_dataset="reasoning_gym:x").check()


@pytest.mark.trl
def test_wrong_names_and_settings():
    for name, said in {
        "chain_sums": "no task is called chain_sums; there is chain_sum, ",
        "gcd:seed=3": "no setting is called seed; there is ",
        "gcd:max_number=3": "no setting is called max_number; there is max_numbers, min_numbers, ",
        "gcd:min_value=0": "min_value must be positive",
    }.items():
        with pytest.raises(UserError, match=f"^cannot load reasoning_gym:{name}: {said}"):
            Config(dataset=f"countdown,reasoning_gym:{name}").check()


@pytest.mark.trl
def test_no_question_is_evaluated_and_trained_on():
    training, evaluation = read_set(SUMS, Config(dataset=f"{GCD},{SUMS}", eval_problems=50))
    questions = [problem.prompt for problem in training + evaluation]
    assert len({*questions}) == len(questions) and 200 < len(training) < 300
    assert {problem.level for problem in evaluation} == {"num_terms 2", "num_terms 3"}
    expression = training[0].prompt.partition(": ")[2].strip(" =")
    assert json.loads(training[0].gold)["answer"] == str(eval(expression))
    assert read_set(SUMS, Config(eval_dataset=SUMS, eval_problems=50)) == ([], evaluation)


@pytest.mark.trl
def test_every_task_takes_its_own_answers():
    """In tags or as the whole text. Six tasks have no answer or no problems."""
    from reasoning_gym.factory import DATASETS

    names = [f"reasoning_gym:{task}" for task in DATASETS.keys() - {"composite"}]
    entries = [open_gym(name)[0] for name in names]
    golds = {json.dumps(each, default=str): each["answer"] for each in entries if each["answer"]}
    assert len(golds) == len(names) - 5 == 100
    for gold, answer in golds.items():
        assert verify_entry(answer, gold) == 1 == verify_entry(f"<answer>{answer}</answer>", gold)


@pytest.mark.trl
def test_scores():
    """Partial ones, and one that depends on the settings."""
    sum_to_7 = dict(answer="7", metadata=dict(source_dataset="chain_sum"))
    puzzle = dict(answer="", metadata=dict(source_dataset="puzzle24", numbers=[8, 8, 4, 4]))
    harder = puzzle | dict(set="reasoning_gym:puzzle24:max_value=5")
    for entry, text, reward in (
        *((sum_to_7, *each) for each in (("It is 7.", 1), ("7 it is", 1 / 7), ("8 <b", 0))),
        *((puzzle, "8+8+4+4", 1), (harder, "8+8+4+4", 0.01)),
    ):
        assert grade(("reasoning_gym", text, json.dumps(entry)), 60) == (reward, "")
    gold = json.dumps(open_gym("reasoning_gym:binary_matrix")[0])  # whose score runs the answer
    assert verify_entry("<answer>exit()</answer>", gold) == 0


@pytest.mark.trl
def test_a_run_that_is_resumed(tmp_path):
    flags = SMALL | dict(dataset=f"{SUMS},{GCD}", output_dir="run", max_completion_length=8)
    for given in (flags | dict(max_steps=1), dict(resume_from_checkpoint="run", max_steps=2)):
        ended = run_python(ROOT / "grpo.py", *arguments(**given), folder=tmp_path)
        assert ended.returncode == 0, ended.stderr
    found = {row["set"]: row for row in rows(tmp_path / "run", "eval")}
    assert {row["step"] for row in found.values()} == {2}
    assert "pass@1 num_terms 3" in found[SUMS] and "pass@1" in found[GCD]

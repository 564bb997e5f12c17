"""Problems and scores of reasoning-gym. What has the mark `trl` needs the package itself."""

import json

from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import read_set
from rlvr.tasks.embedded import level_of
from rlvr.verify.answers import answers_in, open_gym, verify_entry
from rlvr.verify.pool import grade

import pytest
from local_sets import load
from runs import ROOT, SMALL, arguments, rows, run_python

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

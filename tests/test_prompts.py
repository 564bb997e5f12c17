"""Problems that are made here or by reasoning-gym, and how a problem becomes a prompt."""

import itertools
import json
import random
import re
import zlib
from dataclasses import replace

from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks import prompt_lengths
from rlvr.tasks.datasets import prepare, read_set
from rlvr.tasks.embedded import level_of, make_countdown
from rlvr.tasks.problems import Problem, Sample
from rlvr.tasks.prompts import encode_prompt, end_of_turn
from rlvr.verify.answers import answers_in, open_gym, verify_entry
from rlvr.verify.answers.expressions import verify_countdown
from rlvr.verify.pool import grade
from rlvr.verify.verifiers import SYSTEM_PROMPTS

import pytest
from local_sets import load, refused
from samples import writer_of_batch
from tokenizers.processors import TemplateProcessing

import common

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
GOLDS = dict(math=r"\frac{1}{2}", number="18", choice="B", last_number="18")
GOLDS |= dict(countdown="1 2 : 3 ", code="assert f()")
BY_DEFAULT = dict(math="boxed", number="boxed", choice="boxed", last_number="number")
BY_DEFAULT |= dict(countdown="countdown", code="code")  # system prompts


def prepared(tokenizer, verifier="math", **flags):
    """The prompt that the question "What?" becomes; all else stays as it is."""
    question = Problem("What?", GOLDS[verifier], verifier, "Hard")
    (problem,) = prepare("own", [question], Config(max_prompt_length=9999, **flags), tokenizer)
    assert replace(problem, prompt=question.prompt) == question
    return problem.prompt


@pytest.mark.parametrize("verifier, name", BY_DEFAULT.items())
def test_system_prompt_and_suffix(tokenizer, verifier, name, tmp_path):
    """On lines of their own: by name, file or text, or what the verifier needs."""
    by_default = SYSTEM_PROMPTS[name]
    bare = "What?" if verifier == "countdown" else f"{by_default}\nWhat?\n"
    assert prepared(tokenizer, verifier) == bare
    flags = dict(system_prompt="none", user_suffix="boxed")
    assert prepared(tokenizer, verifier, **flags) == f"What?\n{SYSTEM_PROMPTS['boxed']}\n"
    tokenizer.chat_template = CHATML
    (tmp_path / "prompt.txt").write_text("Own.\nText.\n")
    own = {"In one line.": "In one line.", str(tmp_path / "prompt.txt"): "Own.\nText."}
    for name, system in {"auto": by_default, "think": SYSTEM_PROMPTS["think"], **own}.items():
        found = prepared(tokenizer, verifier, system_prompt=name)
        assert found == f"<|im_start|>system\n{system}<|im_end|>\n{ASKED}"


def test_chat_template_kwargs(tokenizer):
    """As Qwen3's template reads them: without thinking, an answer begins behind empty thoughts."""
    tokenizer.chat_template = CHATML + "{% if enable_thinking is false %}<think></think>{% endif %}"
    for given, prompt in (
        ("", ASKED),
        ('{"enable_thinking": false, "unknown": 1}', f"{ASKED}<think></think>"),
        ('{"chat_template": "Q: {{ messages[0].content }}"}', "Q: What?"),
    ):
        flags = dict(system_prompt="none", chat_template_kwargs=given)
        assert prepared(tokenizer, **flags) == prompt


def test_a_template_that_fails(tokenizer):
    for template, flags, message in (
        (None, '{"enable_thinking": false}', "--chat_template_kwargs: the model has no"),
        (CHATML, '{"messages": 0}', "cannot load the model's chat template: "),
        ("{{ raise_exception('no system') }}", "", "no system; try --system_prompt none"),
    ):
        tokenizer.chat_template = template
        refused([message], prepared, tokenizer, chat_template_kwargs=flags)


@pytest.mark.parametrize("template", [None, "<bos>" + CHATML, "{{ bos_token }}" + CHATML, CHATML])
def test_special_tokens_come_once(tokenizer, template):
    """The template has the last word on them: the tokenizer puts no BOS before what it wrote."""
    tokenizer.add_special_tokens(dict(bos_token="<bos>"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    bos = tokenizer.bos_token_id
    assert tokenizer.encode("12") == [bos, *tokenizer.convert_tokens_to_ids(["1", "2"])]
    tokenizer.chat_template = template
    prompt = prepared(tokenizer)
    text = tokenizer.encode(prompt.removeprefix("<bos>"), add_special_tokens=False)
    ids = [bos] * (template != CHATML) + text
    assert encode_prompt(tokenizer, prompt) == ids
    assert prompt_lengths([Problem(prompt, "7")], tokenizer) == [len(ids)]
    assert bos not in text


def test_a_template_with_the_date_gives_the_same_prompt_every_day(tokenizer):
    """As Llama 3.2's has it. Or a resumed run would be refused, for it began with other prompts."""
    template = "{{ date_string or strftime_now('%a %A %d %b %B %m %Y %y %H:%M:%S') }}"
    template += "{{ strftime_now('; %-d %e %-m %I %p %j %F %T%Z %%') }}"
    tokenizer.chat_template = {"default": template, "tool_use": "another"}
    day = "Fri Friday 26 Jul July 07 2024 24 00:00:00; 26 26 7 12 AM 208 2024-07-26 00:00:00 %"
    assert prepared(tokenizer) == day


@pytest.mark.parametrize(
    "template, ends",
    [
        ("answer" + CHATML.replace("<|im_end|>\n", "<|im_end|><|im_start|>"), "<|im_end|>"),
        ("{% for m in messages[1:] %}{{ m['content'] }}é<|im_end|>{% endfor %}", "<|im_end|>"),
        (CHATML.replace("im_end", "answer_end"), "<|answer_end|>"),
        ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<line>{% endfor %}", ""),
        ("{{ raise_exception('no answers') }}", ""),
    ],
)
def test_end_of_turn(tokenizer, template, ends):
    """It stands behind the answer, and is not what the next turn would begin with."""
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>", "<|answer_end|>"], special_tokens=True)
    tokenizer.add_tokens(["<line>"])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", 0)]
    )
    tokenizer.chat_template = template
    expected = [tokenizer.convert_tokens_to_ids(ends)] if ends else []
    assert end_of_turn(tokenizer) == expected


def test_a_thought_that_the_template_opens(tokenizer):
    """It belongs to the format that the scripts judge; the end of the prompt counts."""
    long = "3 9 5 : 48 " * 9
    prompts = [long, f"{long}<think>{' ' * 15}", f"{long}<think>3</think> : 48 "]
    samples = [
        Sample(tokenizer.encode(prompt), [1], "a</think>3", logprobs=[-1.0]) for prompt in prompts
    ]
    batch = common.make_batch(samples, Config(num_generations=3), writer_of_batch(tokenizer))
    assert batch.texts() == ["a</think>3", "<think>a</think>3", "a</think>3"]


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


def expression_of(problem):
    """What is asked for, with the larger number first if their order is free."""
    text = problem.prompt.lower()
    a, b, *c = map(int, re.findall(r"\d+", text))
    low, high = sorted((a, b))
    if re.search(r"\*|times|multiply", text):
        return f"{high}*{low}"
    if not re.search("-|minus|subtract", text):
        return f"{high}+{low}"
    if c:
        return f"{high}+{low}-{c[0]}"
    return f"{b}-{a}" if "from" in text else f"{a}-{b}"


@pytest.mark.parametrize(
    "level, kinds, smallest, largest",
    [
        ("1", {"+", "-"}, 1, 20),
        ("2", {"+", "-", "+-"}, 10, 99),
        ("3", {"*"}, 10, 99),
        ("4", {"+", "-", "*", "+-"}, 100, 999),
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
            expression = expression_of(problem)
            assert eval(expression) == int(problem.gold) >= 0
            assert (zlib.crc32(expression.encode()) % 10 == 0) == are_held_out
            assert (problem.verifier, problem.level) == ("last_number", f"level {level}")
    assert len({*map(expression_of, held_out)}) == len(held_out) == 42
    assert len({re.sub(r"\d+", "", each.prompt) for each in training}) == 3 * len(kinds)
    assert level != "1" or "0" in {problem.gold for problem in training}
    assert level != "1" or len({*map(expression_of, training)}) > 345  # of 378
    found = [*map(expression_of, training + held_out)]
    assert {re.sub(r"\d+", "", expression) for expression in found} == kinds
    factors = {int(each.partition("*")[2]) for each in found if "*" in each}
    assert factors == ({*range(2, 10)} if "*" in kinds else set())
    numbers = [int(x) for each in found for x in re.findall(r"\d+", each.partition("*")[0])]
    assert (min(numbers), max(numbers)) == (smallest, largest)


SUMS, GCD = "reasoning_gym:chain_sum:max_terms=3:max_digits=1:size=300", "reasoning_gym:gcd"


def test_answers_and_levels():
    assert answers_in("7 <answer> 1 2\n3 4 </answer> 5") == ["1 2\n3 4"]
    assert answers_in(" The answer is\n**-7.**") == ["The answer is\n**-7.**", "-7"]
    assert answers_in(" ") == [""]
    difficulty = dict(value=(1, 999), num_terms=(2, 6))
    entry = dict(metadata=dict(num_terms=3, value=512, difficulty=difficulty))
    assert level_of(entry) == "num_terms 3"
    for unknown in (1.0, difficulty):
        assert level_of(dict(metadata=dict(difficulty=unknown))) == ""


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
        "chain_sums": "it has no task 'chain_sums'; near names are chain_sum, ",
        "gcd:seed=3": "it has no setting 'seed'; near names are size",
        "gcd:min_value=0": "min_value must be positive",
        "gcd:size=3:size=4": "the setting 'size' occurs twice",
    }.items():
        with pytest.raises(UserError, match=f"^cannot load reasoning_gym:{name}: {said}"):
            Config(dataset=f"countdown,reasoning_gym:{name}").check()
    for late in ("reasoning_gym:chain_sum:min_terms=2.5", "reasoning_gym:gcd:size=2.5"):
        with pytest.raises(UserError, match=f"^cannot load {late}: .*integer"):
            read_set(late, Config(dataset=late))


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

"""How a problem becomes the prompt that the policy reads: system prompts and chat templates."""

import copy
import datetime
import re
from dataclasses import replace

import rlvr.tasks.prompts
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.records import Problem, Sample
from rlvr.tasks.datasets import prepare
from rlvr.tasks.prompts import (
    SYSTEM_PROMPTS,
    encode_prompt,
    end_of_turn,
    texts_with_opened_thoughts,
    that_fit,
    write_prompts,
)

import pytest
from tokenizers.processors import TemplateProcessing
from transformers.utils import chat_template_utils

import agrae
import cwgrpo

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ASKED = "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n"
ABOUT = {  # what each system prompt has to speak of
    "assistant": ["helpful"],
    "boxed": [r"\boxed{}"],
    "think": [r"\boxed{}", "<think>", "</think>", "<answer>", "</answer>", "English"],
    "countdown": ["target", "exactly once", "<think>", "<answer>", "</answer>"],
    "number": ["number"],
    "monologue": ["internal monologue", "<think>", "</think>", r"\boxed{}"],
    "code": ["Python", "```python"],
}
GOLDS = {
    "math": r"\frac{1}{2}",
    "number": "18",
    "choice": "B",
    "code": '["assert f(1) == 2"]',
    "countdown": "1 2 : 3 ",
}
BY_DEFAULT = {
    "math": "boxed",
    "number": "boxed",
    "choice": "boxed",
    "code": "code",
    "countdown": "countdown",
}


@pytest.fixture
def tokenizer(tiny):
    """A copy of the tiny policy's, to put a chat template on."""
    return copy.deepcopy(tiny[1])


def prepared(tokenizer, verifier="math", **flags):
    """The prompt that the question "What?" becomes; all else stays as it is."""
    question = Problem("What?", GOLDS[verifier], verifier, "Hard")
    (problem,) = prepare("own", [question], Config(max_prompt_length=9999, **flags), tokenizer)
    assert replace(problem, prompt=question.prompt) == question
    return problem.prompt


def in_chatml(system):
    """The question after a system prompt, in the template."""
    return f"<|im_start|>system\n{system}<|im_end|>\n{ASKED}"


@pytest.mark.parametrize("name", ABOUT)
def test_system_prompt_by_name(tokenizer, name):
    system = SYSTEM_PROMPTS[name]
    assert all(part in system for part in ABOUT[name])
    assert "\n" not in system
    for verifier in GOLDS:
        assert prepared(tokenizer, verifier, system_prompt=name) == f"{system}\nWhat?\n"
    tokenizer.chat_template = CHATML
    for verifier in GOLDS:
        assert prepared(tokenizer, verifier, system_prompt=name) == in_chatml(system)


@pytest.mark.parametrize("verifier", GOLDS)
def test_a_suffix_behind_the_question(tokenizer, verifier):
    """Beside the system prompt, or without one; on a line of its own."""
    asked = f"What?\n{SYSTEM_PROMPTS['boxed']}"
    flags = dict(user_suffix="boxed", system_prompt="none")
    assert prepared(tokenizer, verifier, **flags) == f"{asked}\n"
    flags["system_prompt"] = "assistant"
    assert prepared(tokenizer, verifier, **flags) == f"You are a helpful assistant.\n{asked}\n"


@pytest.mark.parametrize(
    "own, first",
    [((), "Be right."), ((("system", "Be brief."),), "Be brief.")],
    ids=["none", "own"],
)
def test_a_conversation_keeps_its_own_system_prompt(tokenizer, own, first):
    """The suffix stands behind its last message."""
    turns = (*own, ("user", "Hi"), ("assistant", "Yes?"), ("user", "What?"))
    config = Config(user_suffix="boxed")
    (problem,) = write_prompts([Problem(turns, "5")], "Be right.", config, tokenizer)
    assert problem.prompt == f"{first}\nHi\nYes?\nWhat?\n{SYSTEM_PROMPTS['boxed']}\n"


@pytest.mark.parametrize("limit, fits", [(7, False), (8, True), (9, True), (10, True), (99, True)])
def test_a_prompt_of_as_many_tokens_as_allowed_fits(tokenizer, limit, fits):
    """The tiny policy's tokens are characters: these are 8."""
    problems = [Problem("1 2 : 3 ", "1 2 : 3 ")]
    assert that_fit(problems, limit, tokenizer) == problems * fits


def test_the_prompt_of_two_stage_dynamics(tokenizer):
    """As its Appendix C.2 prints it, with the question for {input}; the template adds the ends."""
    tokenizer.chat_template = CHATML
    assert prepared(tokenizer, system_prompt="assistant", user_suffix="boxed") == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWhat?\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


# As in Qwen3's: an answer without thinking begins behind thoughts that are empty.
THINKING = (
    CHATML
    + "{% if enable_thinking is defined and enable_thinking is false %}"
    + "<think>\n\n</think>\n\n{% endif %}"
)


@pytest.mark.parametrize(
    "given, end",
    [
        ("", ""),
        ("{}", ""),
        ('{"enable_thinking": true}', ""),
        ('{"enable_thinking": false}', "<think>\n\n</think>\n\n"),
        ('{"enable_thinking": false, "unknown": 1}', "<think>\n\n</think>\n\n"),
    ],
)
def test_chat_template_kwargs(tokenizer, given, end):
    tokenizer.chat_template = THINKING
    flags = dict(system_prompt="none", chat_template_kwargs=given)
    assert prepared(tokenizer, **flags) == ASKED + end


@pytest.mark.parametrize(
    "given, named",
    [
        ("enable_thinking=false", "enable_thinking=false"),
        ("[]", "JSON object"),
        ("false", "JSON object"),
        ('{"enable_thinking": False}', "JSON object"),
        ('{"tokenize": true}', "tokenize"),
        ('{"messages": []}', "messages"),
        ('{"add_generation_prompt": false}', "add_generation_prompt"),
    ],
)
def test_chat_template_kwargs_that_cannot_work(given, named):
    """They are refused before anything is loaded."""
    with pytest.raises(UserError, match=re.escape(named)):
        Config(chat_template_kwargs=given).check()


def test_chat_template_kwargs_without_a_template(tokenizer):
    with pytest.raises(UserError, match="chat_template_kwargs: the model has no chat template"):
        prepared(tokenizer, chat_template_kwargs='{"enable_thinking": false}')


def test_chat_template_kwargs_that_the_tokenizer_refuses(tokenizer):
    tokenizer.chat_template = CHATML
    with pytest.raises(UserError, match="chat template fails"):
        prepared(tokenizer, chat_template_kwargs='{"continue_final_message": true}')


def test_the_names_of_system_prompts():
    assert SYSTEM_PROMPTS.keys() == {"none", *ABOUT}


@pytest.mark.parametrize("verifier", GOLDS)
def test_without_a_system_prompt(tokenizer, verifier):
    assert prepared(tokenizer, verifier, system_prompt="none") == "What?"
    tokenizer.chat_template = CHATML
    assert prepared(tokenizer, verifier, system_prompt="none") == ASKED


@pytest.mark.parametrize("verifier", GOLDS)
def test_system_prompt_by_default(tokenizer, verifier):
    """As the verifier needs it.

    Without a template the tiny policy gets the bare numbers of Countdown.
    """
    system = SYSTEM_PROMPTS[BY_DEFAULT[verifier]]
    bare = "What?" if verifier == "countdown" else f"{system}\nWhat?\n"
    assert prepared(tokenizer, verifier) == bare
    tokenizer.chat_template = CHATML
    assert prepared(tokenizer, verifier) == in_chatml(system)


@pytest.mark.parametrize("template", [None, "<bos>" + CHATML, "{{ bos_token }}" + CHATML])
def test_special_tokens_come_once(tokenizer, template):
    """Where the chat template has written a BOS, the tokenizer puts no second one before it."""
    tokenizer.add_special_tokens(dict(bos_token="<bos>"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    bos = tokenizer.bos_token_id
    assert tokenizer.encode("12") == [bos, *tokenizer.convert_tokens_to_ids(["1", "2"])]
    tokenizer.chat_template = template
    prompt = prepared(tokenizer)
    ids = encode_prompt(tokenizer, prompt)
    assert prompt.startswith("<bos>") == (template is not None)
    assert ids[0] == bos
    assert ids.count(bos) == 1
    assert ids[1:] == tokenizer.encode(prompt.removeprefix("<bos>"), add_special_tokens=False)


def test_a_template_without_a_bos_stays_so(tokenizer):
    """Qwen's, for one: the template has the last word on special tokens."""
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<eos> $A", special_tokens=[("<eos>", 1)]
    )
    tokenizer.chat_template = CHATML
    assert tokenizer.eos_token_id == 1
    assert 1 not in encode_prompt(tokenizer, prepared(tokenizer))


# Llama 3.2 takes the date for `date_string`; others call the function themselves.
DATED = [
    "{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
    "{%- endif %}Today is {{ date_string }}.",
    "{%- set today = strftime_now('%d %b %Y') -%}Today is {{ today }}.",
]


@pytest.mark.parametrize("template", DATED)
def test_a_template_with_the_date_gives_the_same_prompt_tomorrow(tokenizer, monkeypatch, template):
    """Or a resumed run would be refused, for it has begun with other problems."""
    found = []
    for day in (1, 2):

        class Clock(datetime.datetime):
            @classmethod
            def now(cls, zone=None, day=day):
                return cls(2031, 5, day, tzinfo=zone)

        monkeypatch.setattr(chat_template_utils, "datetime", Clock)
        tokenizer.chat_template = template + f"{{# not compiled before: {day} #}}"
        found.append(prepared(tokenizer))
    assert found == ["Today is 26 Jul 2024."] * 2
    by_itself = tokenizer.apply_chat_template([dict(role="user", content="")], tokenize=False)
    assert by_itself == "Today is 02 May 2031."  # which is what would come without a fixed day


ENDS = {
    "chatml": CHATML,
    "before the next turn": CHATML.replace("<|im_end|>\n", "<|im_end|><|im_start|>"),
    "after a space": CHATML.replace("<|im_end|>\n", " \n<|im_end|>\n"),
    "answers alone": "{% for m in messages %}{% if m['role'] == 'assistant' %}"
    "<|im_start|>{{ m['content'] | trim }}<|im_end|>{% endif %}{% endfor %}",
}


@pytest.mark.parametrize("template", ENDS.values(), ids=ENDS)
def test_end_of_turn(tokenizer, template):
    """It stands behind the answer, and is not what the next turn would begin with."""
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = template
    assert end_of_turn(tokenizer) == [tokenizer.convert_tokens_to_ids("<|im_end|>")]


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
        "{% for m in messages if m['role'] == 'user' %}<|im_start|>{{ m['content'] }}{% endfor %}",
        "{{ raise_exception('no answers') }}",
    ],
    ids=["no template", "plain text", "no answers", "refuses answers"],
)
def test_a_template_without_an_end_of_turn(tokenizer, template):
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>"], special_tokens=True)
    tokenizer.chat_template = template
    assert end_of_turn(tokenizer) == []


def test_a_chat_template_without_system_prompts(tokenizer):
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}ok"
    )
    with pytest.raises(UserError, match="--system_prompt none: no system"):
        prepared(tokenizer)
    assert prepared(tokenizer, system_prompt="none") == "ok"


def test_a_template_may_open_a_thought_at_the_end_of_the_prompt(tokenizer):
    prompts = ["3 9 5 : 48 ", "3 9 5 : 48 <think> ", "<think>3 9 5</think> : 48 "]
    samples = [Sample(tokenizer.encode(prompt), [], text="a</think>3") for prompt in prompts]
    found = texts_with_opened_thoughts(samples, tokenizer)
    assert found == ["a</think>3", "<think>a</think>3", "a</think>3"]


@pytest.mark.parametrize("script", [agrae, cwgrpo])
def test_such_a_thought_belongs_to_the_format(run, no_evaluation, monkeypatch, script):
    """The scripts judge the format of the texts with it."""
    opened = [f"opened {i}" for i in range(16)]
    judged = []

    def format_reward(text, *_):
        judged.append(text)
        return 1.0

    monkeypatch.setattr(rlvr.tasks.prompts, "texts_with_opened_thoughts", lambda *_: opened)
    monkeypatch.setattr(script, "format_reward", format_reward)
    result = run(script.__name__, max_steps=1)
    assert result.code == 0, result.err
    assert judged == opened

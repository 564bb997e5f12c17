"""How a problem becomes the prompt that the policy reads: system prompt, chat template."""

import copy
from dataclasses import replace

from rlvr.flags.config import Config
from rlvr.tasks import prompt_lengths
from rlvr.tasks.datasets import prepare
from rlvr.tasks.problems import Problem, Sample
from rlvr.tasks.prompts import encode_prompt, end_of_turn
from rlvr.verify.verifiers import SYSTEM_PROMPTS

import pytest
from local_sets import refused
from samples import writer_of_batch
from tokenizers.processors import TemplateProcessing

import agrae
import common
import cwgrpo

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


@pytest.fixture
def tokenizer(tiny):
    return copy.deepcopy(tiny[1])


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
        (CHATML, '{"continue_final_message": true}', "cannot load the model's chat template: "),
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
    assert (
        prepared(tokenizer)
        == "Fri Friday 26 Jul July 07 2024 24 00:00:00; 26 26 7 12 AM 208 2024-07-26 00:00:00 %"
    )


@pytest.mark.parametrize(
    "template, ends",
    [
        ("answer" + CHATML.replace("<|im_end|>\n", "<|im_end|><|im_start|>"), "<|im_end|>"),
        ("{% for m in messages[1:] %}{{ m['content'] }}é<|im_end|>{% endfor %}", "<|im_end|>"),
        (CHATML.replace("im_end", "answer_end"), "<|answer_end|>"),
        ("nothing<|im_end|>", ""),
        ("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<line>{% endfor %}", ""),
        ("{{ raise_exception('no answers') }}", ""),
    ],
)
def test_end_of_turn(tokenizer, template, ends, capsys):
    """It stands behind the answer, and is not what the next turn would begin with."""
    tokenizer.add_tokens(["<|im_start|>", "<|im_end|>", "<|answer_end|>"], special_tokens=True)
    tokenizer.add_tokens(["<line>"])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<pad> $A", special_tokens=[("<pad>", 0)]
    )
    tokenizer.chat_template = template
    expected = [tokenizer.convert_tokens_to_ids(ends)] if ends else []
    assert end_of_turn(tokenizer) == expected
    assert ("ends no answer" in capsys.readouterr().out) == (not ends)


@pytest.mark.parametrize("script, flags", [(agrae, dict(format_share=0.5)), (cwgrpo, {})])
def test_a_thought_that_the_template_opens_belongs_to_the_format(
    tokenizer, monkeypatch, script, flags
):
    """The end of the prompt counts, and the scripts judge the format of the text with it."""
    long = "3 9 5 : 48 " * 9
    prompts = [long, f"{long}<think>{' ' * 15}", f"{long}<think>3</think> : 48 "]
    samples = [
        Sample(tokenizer.encode(prompt), [1], "a</think>3", logprobs=[-1.0]) for prompt in prompts
    ]
    config = script.Config(num_generations=3, **flags)
    batch = common.make_batch(samples, config, writer_of_batch(tokenizer))
    judged = []
    monkeypatch.setattr(script, "format_reward", lambda text, *_: judged.append(text) or 1.0)
    script.compute_advantages(batch, config)
    assert judged == ["a</think>3", "<think>a</think>3", "a</think>3"]

"""How a problem becomes the prompt that the policy reads: system prompt, chat template, images."""

import copy
from dataclasses import replace
from pathlib import Path

import rlvr.policy.models
from rlvr.flags.config import Config
from rlvr.tasks import prompt_lengths
from rlvr.tasks.datasets import prepare
from rlvr.tasks.pictures import open_image
from rlvr.tasks.problems import Problem, Sample
from rlvr.tasks.prompts import encode_prompt, end_of_turn, place_images, write_prompts
from rlvr.training.checkpoints import save_folder
from rlvr.verify.verifiers import BOXED, SYSTEM_PROMPTS

import local_sets
import PIL.Image
import pytest
import vision
from local_sets import refused, write
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


# ------------------------------------------------------------------------------------------- images

PICTURE = vision.squares(2)
IMAGE, START, END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"


@pytest.fixture(scope="module")
def vlm_tokenizer(tmp_path_factory):
    return vision.load(vision.save_vision_policy(tmp_path_factory.mktemp("vision")))[1]


FLAGS = dict(columns="prompt,answer,image", verifier="last_number", max_steps=0, eval_problems=0)


def load(vlm_tokenizer, name, **flags):
    (problems,) = local_sets.load(vlm_tokenizer, dataset=name, **FLAGS | flags)[1].values()
    return sorted(problems, key=lambda problem: problem.prompt)


def shown(*images):
    return [dict(prompt=f"{'abcdef'[i]}?", answer="1", image=each) for i, each in enumerate(images)]


def test_paths_and_bytes_of_a_file(tmp_path, monkeypatch, vlm_tokenizer):
    """Paths begin in the data set's folder or that of its file, wherever the run is started."""
    path = Path(write(tmp_path / "data/images/1.png", PICTURE))
    monkeypatch.chdir("/")
    file = write(tmp_path / "data/train.jsonl", shown("images/1.png", str(path), ""))
    for name in (file, str(tmp_path / "data")):
        assert [problem.images for problem in load(vlm_tokenizer, name)] == [(PICTURE,)] * 2 + [()]
    of_the_hub = dict(bytes=PICTURE, path="0.png"), dict(bytes=None, path=str(path))
    for image in (PICTURE, *of_the_hub):
        name = write(tmp_path / "data/set.parquet", shown([image, None, image], [], None))
        found = [problem.images for problem in load(vlm_tokenizer, name)]
        assert sorted(found) == [(), (), (PICTURE, PICTURE)]


def test_a_transparent_image_is_white_there():
    """Geometry drawn in black on nothing would be black on black otherwise."""
    image = PIL.Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.putpixel((3, 4), (0, 0, 0, 255))
    found = open_image(vision.png(image))
    assert sorted(found.getcolors()) == [(1, (0, 0, 0)), (63, (255, 255, 255))]
    assert open_image(vision.png(PIL.Image.new("P", (9, 5)))).mode == "RGB"


def test_what_cannot_be_shown_is_dropped_and_counted(tmp_path, vlm_tokenizer, capsys):
    """A huge one is too long for the prompt: the policy's processor allows 64 tokens."""
    long = vision.png(PIL.Image.new("RGB", (300, 1)))  # over 200 times as long as wide
    asked = shown(PICTURE, PICTURE[:60], b"no image", long, vision.squares(9, cells=40), PICTURE)
    asked[-1]["prompt"] = f"f {IMAGE}?"
    name = write(tmp_path / "set.parquet", asked)
    (problem,) = load(vlm_tokenizer, name, max_prompt_length=40)
    assert "a?" in problem.prompt
    told = "1 of 6 problems; dropped 4 whose images cannot be shown, 1 empty or over 40 tokens"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("flags", [{}, dict(dataset="countdown", eval_dataset="geo3k")])
def test_a_model_for_text_alone(tmp_path, tiny, monkeypatch, flags):
    save_folder(tmp_path / "policy", *tiny)
    monkeypatch.setattr(rlvr.policy.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / "set.parquet", shown(PICTURE))
    config = Config(**FLAGS | dict(dataset=name, model=str(tmp_path / "policy")) | flags)
    parts = [config.eval_names[0], "has images", "Qwen/Qwen2.5-VL-3B-Instruct"]
    refused(parts, rlvr.policy.models.load_policies, config)


def test_images_that_nothing_reads(tmp_path, vlm_tokenizer):
    bare = copy.copy(vlm_tokenizer)
    bare.chat_template = None
    name = write(tmp_path / "set.parquet", shown(PICTURE))
    broken = write(tmp_path / "broken.parquet", shown(b"1"))
    other = write(tmp_path / "other.parquet", [dict(prompt="a?", answer="1", picture=PICTURE)])
    absent = write(tmp_path / "absent.jsonl", shown("absent.png"))
    refused([broken, "0 of 1 problems; dropped 1 whose images"], load, vlm_tokenizer, broken)
    refused([other, "'image'", "picture"], load, vlm_tokenizer, other)
    refused([absent, "absent.png"], load, vlm_tokenizer, absent)
    refused(["images", "no chat template"], load, bare, name)
    (problem,) = load(vlm_tokenizer, name, columns="prompt,answer")
    assert problem.prompt == "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"


def test_places():
    """Images without a tag stand before the question, and a tag without an image is a text."""
    for question, count, expected in (
        ("Find x.", 2, "[][]Find x."),
        ("In <image> and <image12>?", 2, "In [] and []?"),
        ("In <image1>: <image2> or <image3>?", 1, "In []: <image2> or <image3>?"),
        ("In <image1>?", 3, "[][]In []?"),
    ):
        parts = place_images(question, count)
        assert "".join("[]" if p["type"] == "image" else p["text"] for p in parts) == expected


def test_the_prompt_of_the_chat_template_for_images(tmp_path, vlm_tokenizer):
    """Of chat_template.json, beside which stands one for text alone; and each image's tokens."""
    asked = dict(prompt="<image> and <image>: how many?", answer="1")
    images = [PICTURE, vision.squares(1, cells=2)]
    name = write(tmp_path / "set.parquet", [dict(asked, image=images)])
    (problem,) = load(vlm_tokenizer, name, system_prompt="boxed", user_suffix="boxed")
    assert problem.prompt == (
        f"<|im_start|>system\n{BOXED}<|im_end|>\n<|im_start|>user\n"
        f"{START}{3 * IMAGE}{END} and {START}{2 * IMAGE}{END}: how many?\n{BOXED}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    turns = (("user", "2+2?"), ("assistant", "4"), ("user", "and <image>?"))
    conversation = Problem(turns, "1", images=(PICTURE,))
    (problem,) = write_prompts([conversation], "", Config(), vlm_tokenizer)
    end = f"and {START}{IMAGE}{END}?<|im_end|>\n<|im_start|>assistant\n"
    assert problem.prompt.endswith(f"assistant\n4<|im_end|>\n<|im_start|>user\n{end}")

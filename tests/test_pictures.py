"""Images of a data set: how they are stored, which are dropped, where they stand in a prompt."""

import copy
from pathlib import Path

import rlvr.policy.models
from rlvr.flags.config import Config
from rlvr.tasks.pictures import open_image
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import place_images, write_prompts
from rlvr.training.checkpoints import save_folder
from rlvr.verify.verifiers import BOXED

import local_sets
import PIL.Image
import pytest
import vision
from local_sets import refused, write

PICTURE = vision.squares(2)
IMAGE, START, END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return vision.load(vision.save_vision_policy(tmp_path_factory.mktemp("vision")))[1]


FLAGS = dict(columns="prompt,answer,image", verifier="last_number", max_steps=0, eval_problems=0)


def load(tokenizer, name, **flags):
    """The problems of a data set of our own, in the order of their questions."""
    (problems,) = local_sets.load(tokenizer, dataset=name, **FLAGS | flags)[1].values()
    return sorted(problems, key=lambda problem: problem.prompt)


def shown(*images):
    """Rows that ask a?, b? ... of these images."""
    return [dict(prompt=f"{'abcdef'[i]}?", answer="1", image=each) for i, each in enumerate(images)]


def test_paths_and_bytes_of_a_file(tmp_path, monkeypatch, tokenizer):
    """Paths begin in the data set's folder or that of its file, wherever the run is started."""
    path = Path(write(tmp_path / "data/images/1.png", PICTURE))
    monkeypatch.chdir("/")
    file = write(tmp_path / "data/train.jsonl", shown("images/1.png", str(path)))
    for name in (file, str(tmp_path / "data")):
        assert [problem.images for problem in load(tokenizer, name)] == [(PICTURE,)] * 2
    of_the_hub = dict(bytes=PICTURE, path="0.png")
    for image in (PICTURE, of_the_hub):
        name = write(tmp_path / "data/set.parquet", shown([image, None, image], [], None))
        found = [problem.images for problem in load(tokenizer, name)]
        assert sorted(found) == [(), (), (PICTURE, PICTURE)]


def test_a_transparent_image_is_white_there():
    """Geometry drawn in black on nothing would be black on black otherwise."""
    image = PIL.Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.putpixel((3, 4), (0, 0, 0, 255))
    found = open_image(vision.png(image))
    assert sorted(found.getcolors()) == [(1, (0, 0, 0)), (63, (255, 255, 255))]
    assert open_image(vision.png(PIL.Image.new("P", (9, 5)))).mode == "RGB"


def test_what_cannot_be_shown_is_dropped_and_counted(tmp_path, tokenizer, capsys):
    """A huge one is too long for the prompt: the policy's processor allows 64 tokens."""
    long = vision.png(PIL.Image.new("RGB", (300, 1)))  # over 200 times as long as wide
    asked = shown(PICTURE, PICTURE[:60], b"no image", long, vision.squares(9, cells=40), PICTURE)
    asked[-1]["prompt"] = f"f {IMAGE}?"
    name = write(tmp_path / "set.parquet", asked)
    (problem,) = load(tokenizer, name, max_prompt_length=40)
    assert "a?" in problem.prompt
    told = "1 of 6 problems; dropped 4 whose images cannot be shown, 1 empty or over 40 tokens"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("flags", [{}, dict(dataset="countdown", eval_dataset="geo3k")])
def test_a_model_for_text_alone(tmp_path, tiny, monkeypatch, flags):
    """That is told before any weights are loaded."""
    save_folder(tmp_path / "policy", *tiny)
    monkeypatch.setattr(rlvr.policy.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / "set.parquet", shown(PICTURE))
    config = Config(**FLAGS | dict(dataset=name, model=str(tmp_path / "policy")) | flags)
    parts = [config.eval_names[0], "has images", "Qwen/Qwen2.5-VL-3B-Instruct"]
    refused(parts, rlvr.policy.models.load_policies, config)


def test_images_that_nothing_reads(tmp_path, tokenizer):
    """One line for each thing that is missing. Without a column there are no images."""
    bare = copy.copy(tokenizer)
    bare.chat_template = None
    name = write(tmp_path / "set.parquet", shown(PICTURE))
    broken = write(tmp_path / "broken.parquet", shown(b"1"))
    other = write(tmp_path / "other.parquet", [dict(prompt="a?", answer="1", picture=PICTURE)])
    absent = write(tmp_path / "absent.jsonl", shown("absent.png"))
    refused([broken, "0 of 1 problems; dropped 1 whose images"], load, tokenizer, broken)
    refused([other, "'image'", "picture"], load, tokenizer, other)
    refused([absent, "absent.png"], load, tokenizer, absent)
    refused(["images", "no chat template"], load, bare, name)
    (problem,) = load(tokenizer, name, columns="prompt,answer")
    assert problem.prompt == "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"


def test_places():
    """Images without a tag stand before the question, and a tag without an image is a text."""
    for question, count, expected in (
        ("Find x.", 2, "[][]Find x."),
        ("In <image> and <image2>?", 2, "In [] and []?"),
        ("In <image1>: <image2> or <image3>?", 1, "In []: <image2> or <image3>?"),
        ("In <image1>?", 3, "[][]In []?"),
    ):
        parts = place_images(question, count)
        assert "".join("[]" if p["type"] == "image" else p["text"] for p in parts) == expected


def test_the_prompt_of_the_chat_template_for_images(tmp_path, tokenizer):
    """Of chat_template.json, beside which stands one for text alone; and each image's tokens."""
    asked = dict(prompt="<image> and <image>: how many?", answer="1")
    images = [PICTURE, vision.squares(1, cells=2)]
    name = write(tmp_path / "set.parquet", [dict(asked, image=images)])
    (problem,) = load(tokenizer, name, system_prompt="boxed", user_suffix="boxed")
    assert problem.prompt == (
        f"<|im_start|>system\n{BOXED}<|im_end|>\n<|im_start|>user\n"
        f"{START}{3 * IMAGE}{END} and {START}{2 * IMAGE}{END}: how many?\n{BOXED}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    turns = (("user", "2+2?"), ("assistant", "4"), ("user", "and <image>?"))
    (problem,) = write_prompts([Problem(turns, "1", images=(PICTURE,))], "", Config(), tokenizer)
    end = f"and {START}{IMAGE}{END}?<|im_end|>\n<|im_start|>assistant\n"
    assert problem.prompt.endswith(f"assistant\n4<|im_end|>\n<|im_start|>user\n{end}")

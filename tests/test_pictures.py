"""Images of a data set: how they are stored, which are dropped, where they stand in a prompt."""

import copy
import importlib.util

import rlvr.models
from rlvr.checkpoints import save_folder
from rlvr.config import Config
from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.datasets import load_problems, without_overlap
from rlvr.tasks.pictures import open_image, read_images
from rlvr.tasks.prompts import place_images, write_prompts

import datasets
import PIL.Image
import pytest
import torch
import vision
from local_sets import one_line, write

PICTURE = vision.squares(2)
IMAGE, START, END = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return vision.load(vision.save_vision_policy(tmp_path_factory.mktemp("vision")))[1]


def asking(name, **flags):
    """The flags of an evaluation on a data set of our own."""
    given = dict(image_column="image", system_prompt="none", verifier="last_number", max_steps=0)
    return Config(**given | dict(dataset=name, eval_problems=0) | flags)


def load(tokenizer, name, **flags):
    """The problems of a data set of our own, in the order of their questions."""
    (problems,) = load_problems(asking(name, **flags), tokenizer)[1].values()
    return sorted(problems, key=lambda problem: problem.prompt)


# ------------------------------------------------------------------------------- where they are


def test_paths_and_bytes_of_a_file(tmp_path, monkeypatch, tokenizer):
    """Paths begin in the folder of the file, wherever the run is started."""
    (tmp_path / "data/images").mkdir(parents=True)
    (tmp_path / "data/images/1.png").write_bytes(PICTURE)
    monkeypatch.chdir("/")
    asked = [
        dict(prompt="a?", answer="1", image="images/1.png"),
        dict(prompt="b?", answer="2", image=str(tmp_path / "data/images/1.png")),
    ]
    name = write(tmp_path / "data/set.jsonl", asked)
    assert [problem.images for problem in load(tokenizer, name)] == [(PICTURE,)] * 2
    asked = [
        dict(prompt="a?", answer="1", image=[PICTURE, PICTURE]),
        dict(prompt="b?", answer="2", image=[]),
        dict(prompt="c?", answer="3", image=None),
    ]
    name = write(tmp_path / "data/set.parquet", asked)
    found = [problem.images for problem in load(tokenizer, name)]
    assert sorted(found) == [(), (), (PICTURE, PICTURE)]


def test_images_of_pillow_in_a_saved_data_set(tmp_path, tokenizer):
    """`datasets` saves them as it does on the hub: encoded, and in a feature of its own."""
    images = [vision.as_image(vision.squares(count)) for count in (1, 2)]
    saved = datasets.Dataset.from_list(
        [
            dict(prompt="a?", answer="1", image=images[:1]),
            dict(prompt="b?", answer="2", image=images),
        ]
    )
    assert "Image" in str(saved.features["image"])
    saved.save_to_disk(tmp_path / "saved")
    counts = [len(problem.images) for problem in load(tokenizer, str(tmp_path / "saved"))]
    assert sorted(counts) == [1, 2]


def test_the_files_of_the_hub_are_not_decoded_by_datasets(tmp_path, monkeypatch, tokenizer):
    """In Geometry3K's own features, a list of images; all of them decoded would fill the memory."""
    monkeypatch.setattr(datasets.Image, "decode_example", lambda *_, **__: pytest.fail("decoded"))
    features = datasets.Features(
        images=datasets.List(datasets.Image()),
        problem=datasets.Value("string"),
        answer=datasets.Value("string"),
    )
    rows = [dict(images=[dict(bytes=PICTURE, path=None)], problem="<image>Find x.", answer="3")]
    file = tmp_path / "test.parquet"
    datasets.Dataset.from_list(rows, features).to_parquet(file)
    flags = dict(prompt_column="problem", image_column="images")
    (problem,) = load(tokenizer, str(file), **flags)
    assert problem.images == (PICTURE,)


@pytest.mark.parametrize(
    "cell, expected",
    [
        (None, ()),
        ([], ()),
        (PICTURE, (PICTURE,)),
        (dict(bytes=PICTURE, path="unused.png"), (PICTURE,)),
        (dict(bytes=None, path="absent.png"), (b"",)),
        ("absent.png", (b"",)),
        ("a\0b", (b"",)),
        ("x" * 5000, (b"",)),
        (7, (b"",)),
        ([PICTURE, None, "absent.png"], (PICTURE, b"")),
    ],
)
def test_cells(tmp_path, cell, expected):
    """What is missing becomes an image that cannot be read, so that it is dropped and counted."""
    assert read_images(cell, tmp_path) == expected


def test_a_transparent_image_is_white_there():
    """Geometry drawn in black on nothing would be black on black otherwise."""
    image = PIL.Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    image.putpixel((3, 4), (0, 0, 0, 255))
    found = open_image(vision.png(image))
    assert found.mode == "RGB"
    assert sorted(found.getcolors()) == [(1, (0, 0, 0)), (63, (255, 255, 255))]


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "CMYK", "RGB", "RGBA"])
def test_images_of_all_modes_are_read(mode):
    format_of_mode = "tiff" if mode == "CMYK" else "png"
    encoded = vision.png(PIL.Image.new(mode, (9, 5)), format_of_mode)
    assert (open_image(encoded).mode, open_image(encoded).size) == ("RGB", (9, 5))


# ------------------------------------------------------------------------------ what is dropped


def test_broken_and_huge_images_are_dropped_and_counted(tmp_path, tokenizer, capsys):
    """1024 tokens of 64 pixels are 65,536 pixels; the policy's processor allows 64 tokens."""
    long = vision.png(PIL.Image.new("RGB", (300, 1)))  # over 200 times as long as wide
    asked = [
        dict(prompt="a?", answer="1", image=PICTURE),
        dict(prompt="b?", answer="1", image=PICTURE[:60]),
        dict(prompt="c?", answer="1", image=b"no image"),
        dict(prompt="d?", answer="1", image=long),
        dict(prompt="e?", answer="1", image=vision.squares(9, cells=40)),
        dict(prompt=f"f {IMAGE}?", answer="1", image=PICTURE),
    ]
    name = write(tmp_path / "set.parquet", asked)
    (problem,) = load(tokenizer, name, max_prompt_length=40)
    assert "a?" in problem.prompt
    told = (
        "6 problems less 3 with an image that cannot be read, 1 whose prompt does not show each "
        "image once, 1 over 40 tokens are 1"
    )
    assert told in capsys.readouterr().out


def test_an_image_that_would_fill_the_memory_is_dropped(tmp_path, tokenizer, monkeypatch):
    """Pillow refuses what has twice as many pixels as it warns of."""
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 50)
    asked = [
        dict(prompt="a?", answer="1", image=vision.squares(1, cells=1)),
        dict(prompt="b?", answer="1", image=vision.squares(1, cells=2)),
    ]
    name = write(tmp_path / "set.parquet", asked)
    with pytest.warns(PIL.Image.DecompressionBombWarning):
        (problem,) = load(tokenizer, name)
    assert "a?" in problem.prompt


def test_nothing_is_left(tmp_path, tokenizer):
    name = write(tmp_path / "set.parquet", [dict(prompt="a?", answer="1", image=b"1")])
    with pytest.raises(UserError) as error:
        load(tokenizer, name)
    assert one_line(error, "1 problems less 1 with an image that cannot be read are 0")


@pytest.mark.parametrize("flags", [{}, dict(dataset="countdown", eval_dataset="mathverse")])
def test_a_model_for_text_alone(tmp_path, tiny, monkeypatch, flags):
    """That is told before any weights are loaded."""
    save_folder(tmp_path / "policy", *tiny)
    monkeypatch.setattr(rlvr.models, "load_weights", lambda *_: pytest.fail("loaded"))
    name = write(tmp_path / "set.parquet", [dict(prompt="a?", answer="1", image=PICTURE)])
    config = asking(**{"name": name, "model": str(tmp_path / "policy"), **flags})
    with pytest.raises(UserError) as error:
        rlvr.models.load_policy(config, torch.device("cpu"))
    assert one_line(error, config.eval_names[0], "has images", "Qwen/Qwen2.5-VL-3B-Instruct")


def test_a_model_without_a_chat_template(tmp_path, tokenizer):
    bare = copy.copy(tokenizer)
    bare.chat_template = None
    name = write(tmp_path / "set.parquet", [dict(prompt="a?", answer="1", image=PICTURE)])
    with pytest.raises(UserError) as error:
        load(bare, name)
    assert one_line(error, name, "has images", "no chat template")


def test_without_pillow(tmp_path, tokenizer, monkeypatch):
    """One line for images; and a run on texts, for which nothing is missing."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "PIL" else find_spec(name)
    )
    rows = [dict(prompt="a?", answer="1", image=PICTURE)]
    name = write(tmp_path / "set.parquet", rows)
    with pytest.raises(UserError) as error:
        load(tokenizer, name)
    assert one_line(error, name, "pip install pillow")
    _, without = vision.load(vision.save_vision_policy(tmp_path / "policy"))
    (problem,) = load(without, name, image_column="")
    assert problem.prompt == "<|im_start|>user\na?<|im_end|>\n<|im_start|>assistant\n"


def test_the_column_is_missing(tmp_path, tokenizer):
    name = write(tmp_path / "set.parquet", [dict(prompt="a?", answer="1", picture=PICTURE)])
    with pytest.raises(UserError) as error:
        load(tokenizer, name)
    assert one_line(error, name, "'image'", "picture")


def test_the_same_question_about_another_image_is_another_problem():
    """Much of Geometry3K asks "Find x."."""
    training = [Problem("Find x.", "1", images=(bytes([i]),)) for i in range(3)]
    evaluated = [Problem("find  X.", "1", images=(bytes([i]),)) for i in (1, 7)]
    kept = without_overlap("a", training, {"b": evaluated})
    assert [problem.images for problem in kept] == [(b"\0",), (b"\2",)]


# --------------------------------------------------------------------------- where they stand


@pytest.mark.parametrize(
    "question, count, expected",
    [
        ("Find x.", 0, "Find x."),
        ("Find x.", 1, "[]Find x."),
        ("Find x.", 2, "[][]Find x."),
        ("<image>Find x.", 1, "[]Find x."),
        ("In <image> and <image2>?", 2, "In [] and []?"),
        ("In <image1>: <image2> or <image3>?", 1, "In []: <image2> or <image3>?"),
        ("In <image1>?", 3, "[][]In []?"),
        ("In <image1>?", 0, "In <image1>?"),
    ],
)
def test_places(question, count, expected):
    parts = place_images(question, count)
    shown = ["[]" if part["type"] == "image" else part["text"] for part in parts]
    assert "".join(shown) == expected


def test_the_prompt_of_the_chat_template_for_images(tmp_path, tokenizer):
    """Of chat_template.json, beside which stands one for text alone; and each image's tokens."""
    asked = dict(prompt="<image> and <image>: how many?", answer="1")
    name = write(
        tmp_path / "set.parquet", [dict(asked, image=[PICTURE, vision.squares(1, cells=2)])]
    )
    (problem,) = load(tokenizer, name, system_prompt="boxed", user_suffix="boxed")
    boxed = "Please reason step by step, and put your final answer within \\boxed{}."
    assert problem.prompt == (
        f"<|im_start|>system\n{boxed}<|im_end|>\n<|im_start|>user\n"
        f"{START}{3 * IMAGE}{END} and {START}{2 * IMAGE}{END}: how many?\n{boxed}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_images_stand_in_the_last_turn_of_a_conversation(tokenizer):
    turns = (("user", "2+2?"), ("assistant", "4"), ("user", "and <image>?"))
    (problem,) = write_prompts([Problem(turns, "1", images=(PICTURE,))], "", Config(), tokenizer)
    assert problem.prompt == (
        "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n<|im_start|>user\n"
        f"and {START}{IMAGE}{END}?<|im_end|>\n<|im_start|>assistant\n"
    )

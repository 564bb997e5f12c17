"""A small Qwen2.5-VL of random weights, laid out as Qwen's own checkpoints are, and pictures."""

import copy
import functools
import io
import json
from pathlib import Path

import rlvr.policy.models
from rlvr.flags.config import Config
from rlvr.tasks.pictures import with_images
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import write_prompts

import PIL.Image
import torch
import transformers
from local_sets import write
from runs import tokenizer_of_tiny

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
SPECIAL += ["<|image_pad|>", "<|video_pad|>"]
IMAGE_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIDE = 8  # pixels of an image token's side: two patches of four
TOKENIZER = copy.deepcopy(tokenizer_of_tiny())  # of characters; letters are all unknown
TOKENIZER.add_tokens(SPECIAL, special_tokens=True)
TOKENIZER.eos_token, TOKENIZER.chat_template = "<|im_end|>", "for text alone"
_, STOP, VISION_START, VISION_END, IMAGE_TOKEN, VIDEO_TOKEN = TOKENIZER.convert_tokens_to_ids(
    SPECIAL
)
TEXT = dict(vocab_size=len(TOKENIZER), bos_token_id=None, eos_token_id=STOP, pad_token_id=0)
TEXT |= dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=512)
TEXT |= dict(num_attention_heads=4, num_key_value_heads=2)
TEXT["rope_parameters"] = dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 2, 2])


def build_policy():
    """A language model of two layers, and a vision tower of two, one of them with windows."""
    tower = dict(depth=2, num_heads=2, hidden_size=32, intermediate_size=48, patch_size=SIDE // 2)
    tower |= dict(window_size=2 * SIDE, fullatt_block_indexes=[1])
    tower |= dict(out_hidden_size=TEXT["hidden_size"])
    ids = dict(image_token_id=IMAGE_TOKEN, video_token_id=VIDEO_TOKEN)
    ids |= dict(vision_start_token_id=VISION_START, vision_end_token_id=VISION_END)
    parts = dict(text_config=TEXT, vision_config=tower, tie_word_embeddings=True)
    shape = transformers.Qwen2_5_VLConfig(**parts, **ids)
    return transformers.Qwen2_5_VLForConditionalGeneration(shape)


def save_vision_policy(folder, scale=1.0):
    """A folder as Qwen's are on the hub -> its path. `scale` sharpens the random matrices."""
    folder = Path(folder)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        policy = build_policy()
        for parameter in policy.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(scale)
    policy.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder, save_jinja_files=False)
    # beside the template for text alone
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": IMAGE_TEMPLATE}))
    processor = dict(image_processor_type="Qwen2VLImageProcessor")
    processor |= dict(processor_class="Qwen2_5_VLProcessor", min_pixels=SIDE**2)
    processor |= dict(max_pixels=64 * SIDE**2, patch_size=SIDE // 2, temporal_patch_size=2)
    processor |= dict(merge_size=2, image_mean=[0.48, 0.46, 0.41], image_std=[0.27, 0.26, 0.28])
    processor |= dict(resample=PIL.Image.Resampling.BILINEAR)  # no library's default
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return str(folder)


def load(folder):
    config = Config(model=str(folder), max_steps=0)
    policy, _, tokenizer = rlvr.policy.models.load_policies(config)
    return policy, tokenizer


def problems(tokenizer, shown):
    asked = [Problem(question, "2", "last_number", images=images) for question, images in shown]
    return with_images("shown", write_prompts(asked, "", Config(), tokenizer), tokenizer)


def png(image):
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


@functools.cache
def squares(count, cells=3, shade=0):
    """A picture of a row of cells, the first `count` of them white, the others dark."""
    image = PIL.Image.new("RGB", (cells * SIDE, SIDE), (shade, 0, 0))
    for cell in range(count):
        image.paste("white", (cell * SIDE, 0, (cell + 1) * SIDE, SIDE))
    return png(image)


UNEVEN = png(PIL.Image.open(io.BytesIO(squares(2, cells=5))).resize((37, 11)))  # is resized again


def counting(path, counts=(1, 2, 3)):
    rows = [
        dict(prompt="how many?", answer=str(count), image=squares(count, 4, shade))
        for shade in range(0, 80, 10)
        for count in counts
    ]
    return write(Path(path), rows)


def as_image(encoded):
    return PIL.Image.open(io.BytesIO(encoded))

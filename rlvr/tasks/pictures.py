"""Images of problems: how a data set holds them, and where they stand in a prompt."""

import io
from dataclasses import replace
from pathlib import Path

from rlvr.errors import UserError
from rlvr.tasks.problems import Problem
from rlvr.verify import in_threads


def reader_of(holder):
    """The rlvr.policy.ImageReader of a policy or a tokenizer; None where they read text alone."""
    return getattr(holder, "image_reader", None)


def read_images(cell, folder) -> tuple[bytes, ...]:
    """The encoded images of a cell, which holds none, one, or a list; b"" for one that is missing.

    An image is a path, which begins in `folder`, or bytes, or the hub's dict of both.
    """
    if cell is None:
        return ()
    if isinstance(cell, list):
        return tuple(image for each in cell for image in read_images(each, folder))
    if isinstance(cell, dict):
        return read_images(cell.get("bytes") or cell.get("path"), folder)
    if isinstance(cell, str):
        try:
            return (Path(folder, cell).read_bytes(),)
        except (OSError, ValueError):  # ValueError for a path that no system has
            return (b"",)
    return (cell if isinstance(cell, bytes) else b"",)


def open_image(encoded: bytes):
    """A PIL image in RGB, white where it is transparent.

    Pillow raises errors of many kinds for bytes that are no image or a broken one, and for one so
    large that it would fill the memory.
    """
    import PIL.Image  # which a text-only run does not load

    with PIL.Image.open(io.BytesIO(encoded)) as opened:
        image = opened.convert("RGBA")
    white = PIL.Image.new("RGBA", image.size, "white")
    return PIL.Image.alpha_composite(white, image).convert("RGB")


def with_images(name: str, problems: list[Problem], tokenizer) -> list[Problem]:
    """The problems whose images can be read, and those without images.

    UserError where there are images and nothing that reads them.
    """
    if not any(problem.images for problem in problems):
        return problems
    if not tokenizer.chat_template:
        raise UserError(
            f"the data set {name} has images, and --model no chat template to place them"
        )
    reader = reader_of(tokenizer)

    def is_readable(problem: Problem) -> bool:
        try:
            for image in map(open_image, problem.images):
                reader.count_tokens(image.height, image.width)
        except Exception:  # Pillow's are of many kinds
            return False
        return True

    found = in_threads(is_readable, problems, f"{name}: reading the images")
    return [problem for problem, readable in zip(problems, found, strict=True) if readable]


def with_image_tokens(problems: list[Problem], tokenizer) -> list[Problem]:
    """The problems, with as many image tokens in their prompts as their images have.

    The chat template has written one for each image. Problems are left out whose prompts have
    more or fewer than that, as where a question contains the token's own text.
    """
    reader = reader_of(tokenizer)
    if reader is None:
        return problems
    import PIL.Image

    token = tokenizer.convert_ids_to_tokens(reader.token_id)
    kept = []
    for problem in problems:
        prompt, *texts = problem.prompt.split(token)
        if len(texts) == len(problem.images):
            for encoded, text in zip(problem.images, texts, strict=True):
                with PIL.Image.open(io.BytesIO(encoded)) as image:  # not decoded for its size
                    prompt += token * reader.count_tokens(image.height, image.width) + text
            kept.append(replace(problem, prompt=prompt))
    return kept

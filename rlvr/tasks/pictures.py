"""Images of problems: how a data set holds them, and where they stand in a prompt."""

import io
from dataclasses import replace
from pathlib import Path

from rlvr.tasks.problems import Problem
from rlvr.verify.pool import in_threads


def reader_of(holder):
    """The rlvr.policy.ImageReader of a policy or a tokenizer; None where they read text alone."""
    return getattr(holder, "image_reader", None)


def read_images(cell, folder) -> tuple[bytes, ...]:
    """The encoded images of a cell, which holds none, one, or a list.

    An image is a path, which begins in `folder`, or bytes, or the hub's dict of both. OSError where
    there is no such file.
    """
    if not cell:
        return ()
    if isinstance(cell, list):
        return tuple(image for each in cell for image in read_images(each, folder))
    if isinstance(cell, dict):
        return read_images(cell.get("bytes") or cell.get("path"), folder)
    return (Path(folder, cell).read_bytes() if isinstance(cell, str) else cell,)


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
    """The problems, with as many image tokens in their prompts as their images have.

    The chat template has written one for each image. Problems are left out that have an image that
    cannot be read, or whose prompts have more or fewer of these tokens, as where a question
    contains the token's own text.
    """
    reader = reader_of(tokenizer)
    if reader is None:
        return problems
    token = tokenizer.convert_ids_to_tokens(reader.token_id)

    def show(problem: Problem) -> Problem | None:
        prompt, *texts = problem.prompt.split(token)
        try:
            # strict: a ValueError where there are more tokens than images, or fewer
            for encoded, text in zip(problem.images, texts, strict=True):
                image = open_image(encoded)
                prompt += token * reader.count_tokens(image.height, image.width) + text
        except Exception:  # Pillow's are of many kinds
            return None
        return replace(problem, prompt=prompt)

    shown = in_threads(show, problems, f"{name}: reading the images")
    return [problem for problem in shown if problem]

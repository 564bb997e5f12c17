"""Images of problems: how data sets store them, and where they stand in a prompt."""

import io
import struct
from dataclasses import replace
from pathlib import Path

from rlvr.tasks.problems import Problem
from rlvr.verify.pool import in_threads


def reader_of(holder):
    """Return the rlvr.policy.images.ImageReader of a policy or tokenizer. None if it has none."""
    return getattr(holder, "image_reader", None)


def read_images(cell, folder) -> tuple[bytes, ...]:
    """Return the encoded images of a cell, which holds none, one, or a list.

    An image is a path relative to `folder`, or bytes, or the hub's dict of both. OSError if there
    is no such file.
    """
    if not cell:
        return ()
    if isinstance(cell, list):
        return tuple(image for item in cell for image in read_images(item, folder))
    if isinstance(cell, dict):
        return read_images(cell.get("bytes") or cell.get("path"), folder)
    return (Path(folder, cell).read_bytes() if isinstance(cell, str) else cell,)


def open_image(encoded: bytes):
    """Return a PIL image in RGB, white where transparent. Pillow raises errors of many kinds."""
    import PIL.Image

    with PIL.Image.open(io.BytesIO(encoded)) as opened:
        image = opened.convert("RGBA")
    white = PIL.Image.new("RGBA", image.size, "white")
    return PIL.Image.alpha_composite(white, image).convert("RGB")


def with_images(name: str, problems: list[Problem], tokenizer) -> list[Problem]:
    """Return the problems, with as many image tokens in their prompts as their images have.

    The chat template has written one token per image. A problem is left out if an image cannot be
    read, or if the prompt has another number of these tokens, for example because a question
    contains the token's own text.
    """
    reader = reader_of(tokenizer)
    if reader is None:
        return problems
    import PIL.Image  # not needed for text alone

    token = tokenizer.convert_ids_to_tokens(reader.token_id)
    # what Pillow raises for a damaged image, a SyntaxError for a PNG
    damages = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error)
    damages += (PIL.Image.DecompressionBombError,)

    def show(problem: Problem) -> Problem | None:
        prompt, *texts = problem.prompt.split(token)
        try:
            # strict: a ValueError if there are more tokens than images, or fewer
            for encoded, text in zip(problem.images, texts, strict=True):
                image = open_image(encoded)
                prompt += token * reader.count_tokens(image.height, image.width) + text
        except damages:
            return None
        return replace(problem, prompt=prompt)

    shown = in_threads(show, problems, f"{name}: reading the images")
    return [problem for problem in shown if problem]

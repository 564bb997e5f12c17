"""Images beside the text: how a policy of the Qwen2.5-VL family reads them.

An image is cut into patches, and the policy's vision tower turns them into embeddings of image
tokens. They take the place in the prompt where the chat template has put the image.
"""

from rlvr.policy.settings import settings_of
from rlvr.tasks import Sample, open_image

import torch


def reads_images(model_config) -> bool:
    """Return whether a policy of this configuration has a vision tower that is used here."""
    return model_config.model_type == "qwen2_5_vl"


def model_class(model_config):
    """Return the transformers class that loads a policy with this configuration."""
    import transformers

    if reads_images(model_config):
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


class ImageReader:
    """What a checkpoint says about images: how they are cut into patches, and their token."""

    def __init__(self, source, model_config):
        from transformers import Qwen2VLImageProcessorPil

        self.processor = Qwen2VLImageProcessorPil.from_pretrained(source)
        self.token_id: int = model_config.image_token_id

    def resized(self, encoded: bytes):
        """Return a PIL image in the size that the policy reads, in transformers and in vLLM."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        image, size = open_image(encoded), self.processor.size
        height, width = smart_resize(
            image.height,
            image.width,
            self.processor.patch_size * self.processor.merge_size,
            size["shortest_edge"],
            size["longest_edge"],
        )
        return image.resize((width, height), resample=self.processor.resample)

    def count_tokens(self, height: int, width: int) -> int:
        """Return the number of image tokens. ValueError if the image is too long for its width."""
        patches = self.processor.get_number_of_image_patches(height, width)
        return patches // self.processor.merge_size**2

    def patches(self, images: list[bytes]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the patches of all images, one per row, and the grids (1, rows, columns)."""
        inputs = self.processor([self.resized(image) for image in images], return_tensors="pt")
        return inputs["pixel_values"], inputs["image_grid_thw"]

    def blank(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the patches, all zeros, and the grid of the smallest image."""
        side = self.processor.merge_size
        numbers = 3 * self.processor.temporal_patch_size * self.processor.patch_size**2
        return torch.zeros(side * side, numbers), torch.tensor([[1, side, side]])

    def merge_repeats(self, ids: list[int]) -> list[int]:
        """Return the ids of a prompt with a single token for each image."""
        pairs = zip([None, *ids], ids, strict=False)
        return [token for before, token in pairs if not before == token == self.token_id]


def model_inputs(policy, samples: list[Sample], ids: torch.Tensor) -> dict:
    """Return the inputs of the policy's base model for the samples' ids [n, S].

    Each distinct image passes through the vision tower once. An image token that the policy itself
    has written is an ordinary token.
    """
    reader = settings_of(policy).images
    if reader is None:
        return dict(input_ids=ids)
    base, device = policy.base_model, ids.device
    shown = [image for sample in samples for image in sample.images]
    different = [*dict.fromkeys(shown)]
    # Ranks gather the tower's sharded weights together: one without images reads a blank one.
    values, grids = reader.patches(different) if different else reader.blank()
    features = base.get_image_features(values.to(device), grids.to(device)).pooler_output
    order = [different.index(image) for image in shown]
    seen = torch.cat([*(features[i] for i in order), features[0][:0]])  # [image tokens, H]

    prompts = torch.tensor([[len(sample.prompt_ids)] for sample in samples], device=device)
    in_prompts = torch.arange(ids.shape[1], device=device) < prompts  # [n, S]
    is_image = in_prompts & (ids == reader.token_id)  # [n, S]
    embeddings = base.get_input_embeddings()(ids)  # [n, S, H]
    embeddings = embeddings.masked_scatter(is_image[:, :, None], seen.to(embeddings.dtype))
    positions, _ = base.get_rope_index(
        ids, mm_token_type_ids=is_image.int(), image_grid_thw=grids[order].to(device)
    )  # [3, n, S]
    return dict(inputs_embeds=embeddings, position_ids=positions)

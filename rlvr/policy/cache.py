"""Keys and values of the tokens that a policy has read."""

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer


def make_cache(policy) -> DynamicCache:
    """A cache for the policy's layers; those with a sliding window keep transformers' own."""
    cache = DynamicCache(config=policy.config.get_text_config())
    cache.layers = [
        LayerWithRoom() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


class LayerWithRoom(DynamicLayer):
    """A layer's keys and values [n, heads, S, d], to which a token is added without copying all.

    Short texts are copied all the same: attention reads a tensor without gaps faster. So are those
    whose gradients are wanted.
    """

    def update(self, keys, values, *args, **kwargs):
        """Add those of new tokens -> those of all tokens."""
        if self.get_seq_length() < 256 or torch.is_grad_enabled():
            return super().update(keys, values, *args, **kwargs)
        self.keys, self.values = append(self.keys, keys), append(self.values, values)
        return self.keys, self.values


def append(kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """torch.cat([kept, new], -2), in the memory behind `kept` or with room for 256 tokens more."""
    count, end = kept.shape[-2], kept.shape[-2] + new.shape[-2]
    room = kept if kept._base is None else kept._base  # what `kept` is the beginning of
    if end > room.shape[-2]:
        room = pad(kept, (0, 0, 0, new.shape[-2] + 256))
    room[..., count:end, :] = new
    return room[..., :end, :]

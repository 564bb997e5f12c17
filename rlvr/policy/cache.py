"""Keys and values of the tokens that a policy has read."""

import torch
from torch.nn.functional import pad
from transformers.cache_utils import DynamicCache, DynamicLayer


def make_cache(policy) -> DynamicCache:
    """Return a cache for the policy; layers with a sliding window keep transformers' own."""
    cache = DynamicCache(config=policy.config)
    cache.layers = [
        LayerWithRoom() if type(layer) is DynamicLayer else layer for layer in cache.layers
    ]
    return cache


class LayerWithRoom(DynamicLayer):
    """A layer's keys and values [n, heads, S, d]. Adding a token does not copy all of them.

    Short texts are still copied, because attention reads a tensor without gaps faster. So are texts
    that need gradients.
    """

    def update(self, keys, values, *args, **kwargs):
        """Add keys and values of new tokens. Return those of all tokens."""
        if self.get_seq_length() < 256 or torch.is_grad_enabled():
            return super().update(keys, values, *args, **kwargs)
        assert self.keys is not None and self.values is not None
        self.keys, self.values = append(self.keys, keys), append(self.values, values)
        return self.keys, self.values


def append(kept: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Return torch.cat([kept, new], -2), in spare memory after `kept` or in 256 tokens more."""
    count, end = kept.shape[-2], kept.shape[-2] + new.shape[-2]
    room = kept if kept._base is None else kept._base  # the memory that begins with `kept`
    if end > room.shape[-2]:
        room = pad(kept, (0, 0, 0, new.shape[-2] + 256))
    room[..., count:end, :] = new
    return room[..., :end, :]

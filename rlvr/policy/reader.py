"""A policy that reads texts and keeps the keys and values of earlier tokens."""

import inspect

from rlvr.policy.sharding import use
from rlvr.tasks import padded

import torch
from torch.nn.functional import pad


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b for two matrices of one dtype, accumulated and kept in fp32 or better.

    For two bf16 matrices, `a @ b` is rounded to bf16. A logit of 20 would then be off by up to
    0.06, and a ratio of two such probabilities by a percent.
    """
    if a.dtype == torch.float64 or a.dtype == torch.float32:
        return a @ b
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


class Reader:
    """Rows of tokens, and the policy's state behind each row, which predicts the next token.

    A prompt that several rows begin with is read once. The prompts are padded on the left, the
    padding is masked, and positions are counted without it.
    """

    def __init__(self, policy, prompts: list[list[int]]):
        """Read the prompts, each a list of token ids."""
        from transformers.cache_utils import DynamicCache  # takes seconds to import

        if policy.training:
            policy.eval()
        self.policy = policy
        head = policy.get_output_embeddings().weight  # [V, H]
        # `product` would make this copy at each token
        self.head = head if head.is_cuda or head.dtype.itemsize > 2 else head.float()

        number = {}  # of each different prompt
        order = [number.setdefault(tuple(prompt), len(number)) for prompt in prompts]
        lengths = torch.tensor([*map(len, number)])
        ids = padded([*number]).to(policy.device)  # [n, S]
        # A sliding window counts columns: so the padding is moved to the left, and all prompts end
        # in the last one.
        padding = ids.shape[1] - lengths[:, None]  # [n, 1]
        places = torch.arange(ids.shape[1])  # [S]
        row, column = torch.arange(len(ids))[:, None], (places - padding) % ids.shape[1]  # [n, S]
        self.mask = (places >= padding).long().to(policy.device)  # [n, S]
        self.position = lengths[:, None].to(policy.device)  # [n, 1], of the next token
        self.cache = DynamicCache(config=policy.config)
        inputs = dict(input_ids=ids[row, column], position_ids=column.to(policy.device))
        states = use(policy, self.hidden_states, **inputs)  # [n, S, H]
        self.state = states[:, -1]  # [n, H]
        self.select(order)

    def logits(self) -> torch.Tensor:
        """Return the logits [n, V] of the next token, in fp32 or better."""
        return product(self.state.to(self.head.dtype), self.head.T)

    def select(self, rows: list[int]) -> None:
        """Continue with these rows alone, each perhaps several times."""
        chosen = torch.tensor(rows, device=self.state.device)
        self.cache.batch_select_indices(chosen)
        self.mask, self.state = self.mask[chosen], self.state[chosen]
        self.position = self.position[chosen]

    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read more tokens [n, t] of each row. Return the states [n, t, H] after them."""
        count = tokens.shape[1]
        self.mask = pad(self.mask, (0, count), value=1)
        positions = self.position + torch.arange(count, device=tokens.device)
        states = use(self.policy, self.hidden_states, input_ids=tokens, position_ids=positions)
        self.state, self.position = states[:, -1], self.position + count
        return states

    def hidden_states(self, policy, **inputs) -> torch.Tensor:
        """Return the states [n, t, H] of inputs, whose keys and values the cache keeps."""
        named = inspect.signature(policy.base_model.forward).parameters
        inputs["cache" if "cache" in named else "past_key_values"] = self.cache  # 5.24 renamed it
        inputs["attention_mask"] = self.mask
        return policy.base_model(**inputs, use_cache=True).last_hidden_state

"""The policy: how it is loaded and sharded, and its log-probs.

Read models.py, then logprobs.py. Skip sharding.py with one GPU, and reader.py unless you change the
decoding loop.
"""

from .logprobs import completion_logprobs, frozen_logprobs, microbatches
from .models import load_policies
from .reader import Reader
from .settings import settings_of
from .sharding import add_up_gradients, gathered, is_sharded, whole

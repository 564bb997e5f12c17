"""The policy: how it is loaded and sharded, and its log-probs."""

from .images import model_class
from .logprobs import completion_logprobs, frozen_logprobs, microbatches
from .models import load_policies
from .reader import Reader
from .sharding import add_up_gradients, is_sharded, unshard, whole

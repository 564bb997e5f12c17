"""The policy: how it is loaded, taught, sharded and saved, and its log-probs."""

from rlvr import door

__getattr__ = door(
    __name__,
    images="model_class",
    logprobs="completion_logprobs frozen_logprobs microbatches",
    models="load_policy load_reference",
    reader="Reader",
    saving="save_folder",
    sharding="add_up_gradients is_sharded unshard whole",
)

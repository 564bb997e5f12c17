"""Other methods that the papers compare theirs with, and statistics, as pure functions."""

from rlvr import door

__getattr__ = door(
    __name__,
    controls="clip_cov_mask controlled_advantage grpo_lead_advantage w_reinforce_advantage",
    policy_weights="BASELINES read_arguments try_weight",
    statistics="covariance_statistics fit_pass_at_k rank1_statistics",
)

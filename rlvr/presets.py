"""Named groups of flags that all scripts have."""

# The defaults where the policy is not the tiny one, or the data set is not Countdown.
LARGE = dict(
    learning_rate=1e-6,
    max_steps=200,
    num_generations=8,
    minibatch_size=128,
    microbatch_tokens=16384,
    gradient_checkpointing=True,
    rollout_batch_size=64,
    max_completion_length=1024,
    eval_samples=4,
    ddp_timeout=7200.0,  # ranks drift apart by as much in an evaluation of many long completions
)

# On a GPU rlvr.fit chooses these by its memory, unless they are given.
CHOSEN_BY_MEMORY = frozenset(
    {
        "gradient_checkpointing",
        "microbatch_tokens",
        "rollout_batch_size",
        "vllm_enable_sleep_mode",
        "vllm_gpu_memory_utilization",
    }
)

# How the papers evaluate.
PROTOCOLS = {
    "none": dict(),
    "agrae": dict(
        eval_temperature=0.6, top_p=0.95, eval_samples=16, eval_max_completion_length=4096
    ),
    "two-stage": dict(eval_temperature=0.6, top_p=0.95, eval_samples=256),
    "asymgrpo": dict(eval_temperature=0.4, eval_samples=10),
    "fade": dict(eval_temperature=1.0, eval_samples=256),
}

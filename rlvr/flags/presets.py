"""Named groups of flags that all scripts have."""

# The defaults where the policy is of the hub, or the data set is not Countdown.
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
)

# Beside LARGE, the defaults for arithmetic, so that a model of some 100 M parameters learns it on a
# CPU within minutes.
ARITHMETIC = dict(
    learning_rate=1e-5,
    max_steps=24,
    prompts_per_step=8,
    minibatch_size=64,
    max_prompt_length=64,
    max_completion_length=10,
    eval_problems=32,
    eval_samples=8,
    eval_steps=8,
    microbatch_tokens=1024,
    gradient_checkpointing=False,
    rollout_batch_size=256,
)

AGRAE = dict(eval_temperature=0.6, top_p=0.95, eval_max_completion_length=4096)

ASYMGRPO = dict(eval_temperature=0.4, top_p=1.0, eval_max_completion_length=0)

# How the papers evaluate. Each sets all four flags, so that one can take another's place.
PROTOCOLS = {
    "none": dict(),
    "agrae": dict(**AGRAE, eval_samples=16),  # its AIME 2025 and AMC 23
    "agrae-4": dict(**AGRAE, eval_samples=4),  # its other sets
    "agrae-256": dict(**AGRAE, eval_samples=256),  # pass@256 of its Tables 2, 4, 5 and 6
    "two-stage": dict(
        eval_temperature=0.6, top_p=0.95, eval_samples=256, eval_max_completion_length=3072
    ),
    "asymgrpo": dict(**ASYMGRPO, eval_samples=10),  # its AIME and AMC 23
    "asymgrpo-5": dict(**ASYMGRPO, eval_samples=5),  # its MATH-500 and OlympiadBench
    "fade": dict(  # its pass@100 comes from 200 samples or more (11.2)
        eval_temperature=1.0, top_p=1.0, eval_samples=256, eval_max_completion_length=0
    ),
    "cwgrpo": dict(  # one sample, by Table 2's 3 of 30; the rest is of its released code
        eval_temperature=0.6, top_p=0.95, eval_samples=1, eval_max_completion_length=32768
    ),
}

"""Named groups of flags that all scripts have."""

# The defaults if the policy comes from the hub, or if the data set is not Countdown.
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

# On top of LARGE, the defaults for arithmetic: a model of some 100 M parameters learns it on a CPU
# within minutes.
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


def sampled(temperature: float, top_p: float, samples: int, length: int) -> dict:
    """Return all flags of an evaluation's samples. Length 0 is that of the rollouts."""
    flags = dict(eval_temperature=temperature, top_p=top_p, eval_samples=samples)
    return flags | dict(eval_max_completion_length=length)


# How the papers evaluate. For some sets, they take another --eval_samples.
PROTOCOLS = {
    "none": dict(),
    "agrae": sampled(0.6, 0.95, 16, 4096),
    "two-stage": sampled(0.6, 0.95, 256, 3072),
    "asymgrpo": sampled(0.4, 1.0, 10, 0),
    "fade": sampled(1.0, 1.0, 256, 0),  # its pass@100 comes from 200 samples or more (11.2)
    # one sample, by Table 2's 3 of 30; the rest is from its released code
    "cwgrpo": sampled(0.6, 0.95, 1, 32768),
}

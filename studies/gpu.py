"""How near grpo.py comes to a GPU's limits, with random weights in the shapes of Qwen2.5.

    python studies/gpu.py                                                      # on a GPU
    pip install trl==1.16.0 && python studies/throughput.py --work 0.5B 1.5B   # the ratios to TRL
    python studies/gpu.py --quick                                              # a small shape

The limits are measured first: the rate of a large matrix product (in bf16 on a GPU), and the rate
of a large copy.

- Training is the model's FLOPs, 6 a weight and token plus attention's, against the product's rate.
- A step of `generate` reads every weight once, in bf16, and the cache. Its limit is that by the
  copy's rate.
- vLLM, where it is installed, is measured likewise, and the seconds to give it the weights.
- Samplers and trainer round to bf16, each in its own way: how far are their log-probs apart?
- Memory is the peak of a training pass against what grpo.py prints before it starts.
"""

import argparse
import importlib.util
import tempfile
from dataclasses import replace

import project

import rlvr.config
import rlvr.fit
import rlvr.logprobs
import rlvr.memory
import rlvr.metrics
import rlvr.models
import rlvr.rollouts
import rlvr.samplers
from rlvr.records import Sample

import torch
from measure import gradients, make_model, measured, memory_now, now, peak_memory
from processes import alone

WORK = {  # (rows, prompt tokens, completion tokens) of the training pass, and of the rollout
    "0.5B": ((64, 128, 1024), (256, 128, 256)),
    "1.5B": ((64, 128, 1024), (256, 128, 256)),
    "small": ((4, 8, 16), (4, 8, 16)),
}


def measure_limits(size: int) -> tuple[float, float]:
    """FLOP/s of a product of two matrices [size, size], and bytes/s of a copy of 8 of them."""
    gpu = torch.cuda.is_available()
    device, dtype = ("cuda", torch.bfloat16) if gpu else ("cpu", torch.float32)
    a = torch.randn(8, size, size, device=device, dtype=dtype)
    b = torch.empty_like(a)

    def fastest(call) -> float:
        return min(measured(call, repeats=20)[0] for _ in range(3))

    flops = 2 * size**3 / fastest(lambda: a[0] @ a[1])
    bandwidth = 2 * a.nbytes / fastest(lambda: b.copy_(a))  # read and written
    return flops, bandwidth


def near_limits(name: str, folder: str, flops: float, bandwidth: float) -> list[tuple[str, str]]:
    """Rows of the table for a policy of measure.py that lies in `folder`."""
    training, rollout = WORK[name]
    _, prompt, completion = training
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    config = rlvr.config.Config(
        model=folder,
        microbatch_tokens=16384,
        gradient_checkpointing=True,  # without it the update of 1.5 B does not fit into 80 GB
        max_prompt_length=prompt,
        max_completion_length=max(completion, rollout[2]),
        vllm_gpu_memory_utilization=0.5,
        engine="vllm" if importlib.util.find_spec("vllm") else "hf",
    )
    floor = memory_now()
    policy, tokenizer = rlvr.models.load_policy(config, device)
    found = measure_training(policy, config, training, flops, floor)
    samplers = {"generate": rlvr.samplers.GenerateSampler}
    if config.engine == "vllm":
        from rlvr.vllm_sampler import VllmSampler  # vLLM need not be installed

        samplers["vLLM"] = VllmSampler
    limit = decoding_limit(policy, rollout, bandwidth)
    for kind, sampler_class in samplers.items():
        sampler = sampler_class(policy, tokenizer, config)
        found += measure_rollout(kind, sampler, rollout, limit)
    return found


def measure_training(
    policy, config, work: tuple[int, int, int], flops: float, floor: int
) -> list[tuple[str, str]]:
    """Rows of the table on updates; `floor` is the memory before the policy was loaded."""
    rows, prompt, completion = work
    optimizer = torch.optim.AdamW(policy.parameters(), fused=True)
    samples = [
        Sample([5] * prompt, torch.randint(2, 26, (completion,)).tolist()) for _ in range(rows)
    ]

    def update():
        gradients(policy, samples, config)
        optimizer.step()
        optimizer.zero_grad()

    seconds, _ = measured(update, repeats=3)
    gigabytes = (peak_memory() - floor) / 1e9
    shape = policy.config
    weights = sum(parameter.numel() for parameter in policy.parameters())
    tokens = rows * (prompt + completion)
    # 4 H a layer for each pair of a token and one before it, three times with the backward pass
    attention = 6 * shape.num_hidden_layers * shape.hidden_size * (prompt + completion)
    utilisation = tokens * (6 * weights + attention) / seconds / flops
    return [
        ("training, tokens/s", f"{tokens / seconds:,.0f}"),
        ("training, model FLOPs utilisation", f"{utilisation:.1%}"),
        ("training, peak memory, GB", f"{gigabytes:.2f}"),
        ("printed estimate of it, GB", f"{estimate_of_training(policy, config):.2f}"),
    ]


def estimate_of_training(policy, config) -> float:
    """GB that an update needs by what grpo.py prints, where no vLLM is beside it."""
    sizes = rlvr.memory.policy_sizes(policy.config)
    without_vllm = replace(config, engine="hf")
    gpu_memory = rlvr.fit.smallest_gpu(policy.device)
    return rlvr.memory.memory_estimate(sizes, without_vllm, gpu_memory)["an update"]


def decoding_limit(policy, work: tuple[int, int, int], bandwidth: float) -> float:
    """Tokens/s of decoding, if nothing but reading the weights and the cache took time."""
    rows, prompt, completion = work
    shape = policy.config
    weights = sum(parameter.numel() for parameter in policy.parameters())
    head_size = shape.hidden_size // shape.num_attention_heads
    keys_and_values = 2 * shape.num_hidden_layers * shape.num_key_value_heads * head_size
    cache = 2 * keys_and_values * (prompt + completion / 2)  # bytes a row, halfway
    return rows / ((2 * weights + rows * cache) / bandwidth)


def measure_rollout(
    kind: str, sampler, work: tuple[int, int, int], limit: float
) -> list[tuple[str, str]]:
    """Rows of the table on a sampler."""
    rows, prompt, completion = work
    sampler.stops = [sampler.policy.config.vocab_size]  # no token: completions have full length
    started = now()
    sampler.sync()
    seconds_to_sync = now() - started
    sampler.generate([[5] * prompt] * rows, 1.0, 1.0, 4)  # warms up
    started = now()
    completions, _ = sampler.generate([[5] * prompt] * rows, 1.0, 1.0, completion)
    rate = sum(map(len, completions)) / (now() - started)
    found = [
        (f"{kind}, seconds to take the weights", f"{seconds_to_sync:.3f}"),
        (f"{kind}, tokens/s", f"{rate:,.0f}"),
        (f"{kind}, share of the bandwidth's limit", f"{rate / limit:.1%}"),
    ]
    distance = mismatch(sampler, [5] * prompt)
    found.append((f"{kind}, mean difference to the trainer's log-probs, nats", f"{distance:.2g}"))
    if kind == "vLLM":
        compared = "yes" if sampler.sums_can_tell else "no"
        found.append(("vLLM, compares weights after a push", compared))
        found.append(("vLLM, gap of log-probs after a push, nats", f"{sampler.gap:.2g}"))
    sampler.sleep()
    return found


def mismatch(sampler, prompt: list[int]) -> float:
    """Mean difference of the sampler's log-probs to the trainer's: rounding, and no more."""
    completions, logprobs = sampler.generate([prompt] * 16, 1.0, 1.0, 64)
    samples = [
        Sample(prompt, completion, logprobs=drawn)
        for completion, drawn in zip(completions, logprobs, strict=True)
    ]
    policy = sampler.policy
    ours, _ = rlvr.logprobs.frozen_logprobs(policy, samples, sampler.config)
    drawn = rlvr.rollouts.sampled_logprobs(samples, policy.device)
    return rlvr.metrics.sampler_mismatch(samples, ours, drawn)["mismatch"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    flops, bandwidth = alone(measure_limits, 512 if quick else 8192)
    print(f"limits: {flops / 1e12:.3g} TFLOP/s, {bandwidth / 1e9:.4g} GB/s")
    for name in ["small"] if quick else ["0.5B", "1.5B"]:
        with tempfile.TemporaryDirectory() as folder:
            model = alone(make_model, name, folder)
            for what, value in alone(near_limits, name, model, flops, bandwidth):
                print(f"| {name} {what} | {value} |")


if __name__ == "__main__":
    main()

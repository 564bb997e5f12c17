"""How near grpo.py comes to a GPU's limits, with random weights in the shapes of Qwen2.5-0.5B and 1.5B.

    python studies/gpu.py                                                 # on a GPU
    pip install trl==1.16.0 && python studies/throughput.py --work 0.5B 1.5B   # there, the ratios to TRL
    python studies/gpu.py --quick                                         # anywhere, a small shape

Limits are measured first: the rate of a large matrix product (in bf16 on a GPU) and of a large copy. Training: model
FLOPs, 6 a weight and token plus attention's, against the product's rate. `generate`: a step reads every weight once, in
bf16, and the cache; its limit is that by the copy's rate. vLLM, where it is installed: the same, and the seconds of
giving it the policy's weights. Memory: the peak of a training pass against what grpo.py prints before it starts.
"""
import argparse
import importlib.util
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from measure import alone, gradients, make_model, measured, memory_now, now, peak_memory

WORK = {  # rows and tokens of a prompt and of a completion: of the training pass, and of the rollout
    "0.5B": ((64, 128, 1024), (256, 128, 256)),
    "1.5B": ((64, 128, 1024), (256, 128, 256)),
    "small": ((4, 8, 16), (4, 8, 16)),
}


def limits(size: int) -> tuple[float, float]:
    """FLOP/s of a product of two matrices [size, size], and bytes/s of a copy of 8 such matrices, read and written."""
    import torch
    gpu = torch.cuda.is_available()
    a = torch.randn(8, size, size, device="cuda" if gpu else "cpu", dtype=torch.bfloat16 if gpu else torch.float32)
    b = torch.empty_like(a)
    product, copy = (min(measured(call, 20)[0] for _ in range(3)) for call in (lambda: a[0] @ a[1], lambda: b.copy_(a)))
    return 2 * size**3 / product, 2 * a.nbytes / copy


def near_limits(name: str, folder: str, flops: float, bandwidth: float) -> list[tuple[str, str]]:
    """Rows of the table for a policy of measure.py that lies in `folder`."""
    import torch

    import common
    (rows, prompt, length), (drawn, asked, new) = WORK[name]
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    config = common.Config(
        model=folder, microbatch_tokens=16384, max_prompt_length=prompt, max_completion_length=max(length, new),
        vllm_gpu_memory_utilization=0.5, engine="vllm" if importlib.util.find_spec("vllm") else "hf")
    floor = memory_now()
    policy, tokenizer = common.load_policy(config, device)
    optimizer = torch.optim.AdamW(policy.parameters(), fused=True)
    shape, weights = policy.config, sum(p.numel() for p in policy.parameters())
    samples = [common.Sample([5] * prompt, torch.randint(2, 26, (length,)).tolist()) for _ in range(rows)]

    def update():
        gradients(policy, samples, config)
        optimizer.step()
        optimizer.zero_grad()

    seconds, _ = measured(update, 3)
    gigabytes = (peak_memory() - floor) / 1e9
    tokens = rows * (prompt + length)
    # attention: 4 H a layer for each pair of a token and one before it, three times with the backward pass
    work = tokens * (6 * weights + 6 * shape.num_hidden_layers * shape.hidden_size * (prompt + length))
    estimate = common.memory_estimate(shape, config)
    found = [("training, tokens/s", f"{tokens / seconds:,.0f}"),
             ("training, model FLOPs utilisation", f"{work / seconds / flops:.1%}"),
             ("training, peak memory, GB", f"{gigabytes:.2f}"),
             ("printed estimate of it, GB", f"{sum([*estimate.values()][:3]):.2f}")]

    head = shape.hidden_size // shape.num_attention_heads
    cache = 2 * 2 * shape.num_hidden_layers * shape.num_key_value_heads * head * (asked + new / 2)  # bytes a row
    limit = drawn / ((2 * weights + drawn * cache) / bandwidth)
    samplers = {"generate": common.GenerateSampler}
    if config.engine == "vllm":
        samplers["vLLM"] = common.VllmSampler
    for kind, sampler in samplers.items():
        sampler = sampler(policy, tokenizer, config)
        sampler.stops = [shape.vocab_size]  # which is no token: completions of full length
        started = now()
        sampler.sync()
        found.append((f"{kind}, seconds to take the weights", f"{now() - started:.3f}"))
        sampler.generate([[5] * asked] * drawn, 1.0, 1.0, 4)  # warms up
        started = now()
        completions, _ = sampler.generate([[5] * asked] * drawn, 1.0, 1.0, new)
        rate = sum(map(len, completions)) / (now() - started)
        found += [(f"{kind}, tokens/s", f"{rate:,.0f}"),
                  (f"{kind}, share of the bandwidth's limit", f"{rate / limit:.1%}")]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    flops, bandwidth = alone(limits, 512 if quick else 8192)
    print(f"limits: {flops / 1e12:.3g} TFLOP/s, {bandwidth / 1e9:.4g} GB/s")
    for name in ["small"] if quick else ["0.5B", "1.5B"]:
        with tempfile.TemporaryDirectory() as folder:
            model = alone(make_model, name, folder)
            for what, value in alone(near_limits, name, model, flops, bandwidth):
                print(f"| {name} {what} | {value} |")


if __name__ == "__main__":
    main()

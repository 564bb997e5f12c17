"""What the benchmarks share: seconds, peak memory, and policies with random weights in real shapes."""
import multiprocessing
import statistics
import time
from pathlib import Path

SHAPES = {  # Qwen2.5's; "tiny" stands for the policy that grpo.py trains by default
    "0.5B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14),
    "0.5B, 2 layers": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=2, num_attention_heads=14),
    "1.5B": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12),
    "small": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, vocab_size=500),
}


def make_model(name: str, folder: str) -> str:
    """A folder with a random policy of that shape and the tiny one's tokenizer; or the tiny policy's after its warm-up.
    """
    import torch
    import transformers

    import common
    if name == "tiny":
        return str(common.warm_up_tiny(common.Config()))
    torch.manual_seed(0)
    shape = dict(vocab_size=151936, num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True,
                 pad_token_id=0, eos_token_id=1, bos_token_id=None) | SHAPES[name]
    transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape)).save_pretrained(folder)
    common.build_tiny()[1].save_pretrained(folder)
    return folder


def peak_memory() -> int:
    """The most bytes since `memory_now`: of torch on a GPU, of the process on a CPU, as Linux counts them."""
    import torch
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


def memory_now() -> int:
    """Bytes; the peak is counted from here."""
    import torch
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def now() -> float:
    """Seconds on a clock, once a GPU has done what it was given."""
    import torch
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measured(function, repeats: int) -> tuple[float, float]:
    """Median seconds of the calls after the first, which warms up, and the GB that the first one adds."""
    floor, seconds, peaks = memory_now(), [], []
    for _ in range(repeats):
        started = now()
        function()
        seconds.append(now() - started)
        peaks.append(peak_memory())
    return statistics.median(seconds[1:]), (peaks[0] - floor) / 1e9


def gradients(policy, samples: list, config):
    """Forward and backward as an update does them, a microbatch at a time, of a loss of log-probs and entropy."""
    import common
    for rows in common.microbatches(samples, range(len(samples)), config.microbatch_tokens):
        logprobs, entropy = common.token_logprobs(policy, samples, rows)
        (logprobs - 0.01 * entropy).sum().backward()


def alone(function, *arguments):
    """function(*arguments) in a process of its own, whose memory nothing else has used."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)

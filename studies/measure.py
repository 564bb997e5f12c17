"""What the benchmarks share: seconds, peak memory, and random policies in real shapes."""

import statistics
import time
from pathlib import Path

import rlvr.config
import rlvr.logprobs
import rlvr.tiny

import torch
import transformers

import common

SHAPES = {  # Qwen2.5's; "tiny" stands for the policy that grpo.py trains by default
    "0.5B": dict(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14
    ),
    "0.5B, 2 layers": dict(
        hidden_size=896, intermediate_size=4864, num_hidden_layers=2, num_attention_heads=14
    ),
    "1.5B": dict(
        hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12
    ),
    "small": dict(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=500,
    ),
}
IN_ALL_SHAPES = dict(
    vocab_size=151936,
    num_key_value_heads=2,
    max_position_embeddings=32768,
    tie_word_embeddings=True,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=None,
)


def make_model(name: str, folder: str) -> str:
    """A folder with a random policy of that shape, and with the tiny policy's tokenizer.

    For "tiny" it is the folder of the tiny policy that `python grpo.py` starts from.
    """
    if name == "tiny":
        return str(rlvr.tiny.tiny_folder(rlvr.config.Config()))
    torch.manual_seed(0)
    shape = transformers.Qwen2Config(**(IN_ALL_SHAPES | SHAPES[name]))
    transformers.Qwen2ForCausalLM(shape).save_pretrained(folder)
    _, tokenizer = rlvr.tiny.build_tiny()
    tokenizer.save_pretrained(folder)
    return folder


def peak_memory() -> int:
    """The most bytes since `memory_now`.

    On a GPU they are torch's, on a CPU those of the process, as Linux counts them.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status").read_text()
    kilobytes = status.split("VmHWM:")[1].split()[0]
    return int(kilobytes) * 1024


def memory_now() -> int:
    """Bytes; the peak is counted from here."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def now() -> float:
    """Seconds on a clock, once a GPU has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measured(function, repeats: int) -> tuple[float, float]:
    """Median seconds of the calls after the first, which warms up, and the GB that it adds."""
    floor = memory_now()
    seconds, peaks = [], []
    for _ in range(repeats):
        started = now()
        function()
        seconds.append(now() - started)
        peaks.append(peak_memory())
    return statistics.median(seconds[1:]), (peaks[0] - floor) / 1e9


def gradients(policy, samples: list, config) -> None:
    """Forward and backward as an update does them, of a loss of log-probs and entropy."""
    rows = range(len(samples))
    for part in rlvr.logprobs.microbatches(samples, rows, config.microbatch_tokens):
        logprobs, entropy = common.token_logprobs(policy, samples, part)
        (logprobs - 0.01 * entropy).sum().backward()

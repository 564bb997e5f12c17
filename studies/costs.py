"""What a token costs: as batches, completions and vocabularies grow, and what work is wasted.

    pip install trl==1.16.0               # for its log-probs; without it that line is left out
    python studies/costs.py               # 15 minutes on 2 CPU cores; draws figures/costs.png
    python studies/costs.py --quick       # a small point of each, in one process

Log-probs are measured in several ways. Every point is measured in a process of its own: seconds,
and the peak of its memory above what it held before. In one process, as with --quick, the memory
means nothing. On a GPU the same command measures torch's memory there.
"""

import argparse
import importlib.util
import random
from functools import partial
from pathlib import Path

import project

import rlvr.config
import rlvr.logprobs
import rlvr.samplers
import rlvr.tiny
from rlvr.records import Sample

import torch
import transformers
from matplotlib.figure import Figure
from measure import gradients, measured
from processes import alone
from torch.utils.checkpoint import checkpoint

LENGTHS = 64, 256, 1024, 4096  # tokens of a completion
GENERATIONS = 1, 4, 16, 64  # completions of a prompt
VOCABULARIES = 64, 1024, 16384, 151936
ROWS = 128, 512, 2048  # tokens of a log-prob pass
CHECKPOINTED_ROWS = 256


def growth(
    part: str, length: int, prompts: int, generations: int, vocabulary: int
) -> tuple[float, float]:
    """Microseconds a token, and GB, to "generate" or "update".

    The policy is random and has the tiny one's shape but for its vocabulary.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    policy, tokenizer = rlvr.tiny.build_tiny()
    shape = policy.config
    shape.vocab_size, shape.max_position_embeddings = vocabulary, 8192
    policy = transformers.Qwen2ForCausalLM(shape).to(device)
    policy.generation_config.eos_token_id = vocabulary  # no token, so completions have full length
    config = rlvr.config.Config(max_completion_length=length)
    prompt_ids = [[5 + i % 20] * 16 for i in range(prompts) for _ in range(generations)]

    def update():
        gradients(policy, samples, config)
        policy.zero_grad()

    if part == "update":
        samples = [Sample(ids, torch.randint(2, 26, (length,)).tolist()) for ids in prompt_ids]
        found = measured(update, repeats=3)
    else:
        sampler = rlvr.samplers.GenerateSampler(policy, tokenizer, config)
        generate = partial(sampler.generate, prompt_ids, 1.0, 1.0, length)
        found = measured(generate, repeats=2)
    return per_token(found, length * len(prompt_ids))


def checkpointed(hidden, weight, targets, temperature):
    """plain_logprobs in parts, each computed again in the backward pass."""
    parts = []
    both = hidden.split(CHECKPOINTED_ROWS), targets.split(CHECKPOINTED_ROWS)
    for states, words in zip(*both, strict=True):
        arguments = states, weight, words, temperature
        parts.append(checkpoint(rlvr.logprobs.plain_logprobs, *arguments, use_reentrant=False))
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def trl_logprobs(hidden, weight, targets, temperature):
    """TRL's own, which has more arguments."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction  # TRL need not be installed
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE as CHUNK_SIZE

    logprobs, entropies, *_ = ChunkedLogProbFunction.apply(
        hidden, weight, None, targets, temperature, CHUNK_SIZE, None, 1.0, ("entropy",)
    )
    return logprobs, entropies


WAYS = {  # to compute log-probs and entropies
    "ours": rlvr.logprobs.LinearLogProbs.apply,
    "naive": rlvr.logprobs.plain_logprobs,
    "checkpoint": checkpointed,
    "TRL": trl_logprobs,
}


def logprob_pass(way: str, tokens: int, hidden_size: int, vocabulary: int) -> tuple[float, float]:
    """Seconds and GB from the same hidden states to the gradients of these and of the head."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    hidden = torch.randn(tokens, hidden_size, device=device, requires_grad=True)
    weight = (0.02 * torch.randn(vocabulary, hidden_size, device=device)).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), device=device)

    def forward_and_backward():
        logprobs, entropy = WAYS[way](hidden, weight, targets, 0.7)
        (logprobs.sum() + 0.01 * entropy.sum()).backward()
        hidden.grad = weight.grad = None

    return measured(forward_and_backward, repeats=3)


def waste() -> list[tuple[str, float]]:
    """Shares of work that no completion token needs.

    The lengths are as skewed as those of a log-normal with sigma 0.6.
    """
    rng = random.Random(0)
    lengths = [min(1024, max(1, int(rng.lognormvariate(5.5, 0.6)))) for _ in range(512)]
    prompt = 100  # tokens
    samples = [Sample([0] * prompt, [0] * length) for length in lengths]
    real = sum(lengths) + prompt * len(lengths)
    found = []
    for budget in (4096, 16384, 10**9):
        parts = rlvr.logprobs.microbatches(samples, range(len(samples)), budget)
        padded = sum(len(part) * (prompt + max(lengths[i] for i in part)) for part in parts)
        name = f"padding in microbatches of {budget} tokens, of 512 completions"
        found.append((name, 1 - real / padded))
    fours = [lengths[i : i + 4] for i in range(0, 512, 4)]
    padded = sum(4 * (prompt + max(four)) for four in fours)
    found.append(("padding in unsorted batches of 4 completions", 1 - real / padded))
    for generations in (1, 8, 16):
        repeated = prompt * (512 - 512 // generations)
        name = f"prompts of 100 tokens that {generations} completions repeat"
        found.append((name, repeated / real))
    for size in (512, 64):
        batches = [lengths[i : i + size] for i in range(0, 512, size)]
        decoded = sum(size * max(batch) for batch in batches)
        name = f"`generate` on rows that have ended, {size} at once"
        found.append((name, 1 - sum(lengths) / decoded))
    found.append(("`generate` after every row has ended", steps_after_the_last_end()))
    return found


def steps_after_the_last_end() -> float:
    """The share of `generate`'s steps that come after every row has ended."""
    policy, tokenizer = rlvr.tiny.build_tiny()  # untrained: it ends after some 26 tokens
    steps = []
    policy.register_forward_hook(lambda *_: steps.append(1))
    sampler = rlvr.samplers.GenerateSampler(policy, tokenizer, rlvr.config.Config())
    completions, _ = sampler.generate([[5, 6]] * 64, 1.0, 1.0, 512)
    return 1 - max(map(len, completions)) / len(steps)


def line(name: str, *cells) -> str:
    """A line of a table in Markdown; numbers have three digits."""
    texts = [cell if isinstance(cell, str) else f"{cell:.3g}" for cell in cells]
    return f"| {' | '.join([name, *texts])} |"


def here(function, *arguments):
    """In place of `alone`, in this process."""
    return function(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=project.FIGURES)
    flags = parser.parse_args()
    few = slice(1) if flags.quick else slice(None)
    call = here if flags.quick else alone

    measurements = measure_growth(call, few)
    passes = measure_logprobs(call, few, (64, 1000) if flags.quick else (896, 151936))
    measurements["tokens of a log-prob pass"] = [
        (rows, {way: per_token(found[i], rows) for way, found in passes.items()})
        for i, rows in enumerate(ROWS[few])
    ]
    print(line("\nwork that no token needs", "share"), "|---|---|", sep="\n")
    for name, share in waste():
        print(line(name, f"{share:.0%}"))
    flags.out.mkdir(parents=True, exist_ok=True)
    draw(measurements).savefig(flags.out / "costs.png", dpi=110)


def measure_growth(call, few: slice) -> dict[str, list]:
    """By axis, the points [(x, {part: (us a token, GB)})] of the first three columns of `draw`."""
    points = {  # x, and the arguments of `growth` after the part
        "tokens a completion": [(x, (x, 4, 1, 26)) for x in LENGTHS[few]],
        "completions a prompt": [(x, (64, 4, x, 26)) for x in GENERATIONS[few]],
        "words in the vocabulary": [(x, (64, 16, 1, x)) for x in VOCABULARIES[few]],
    }
    print(line("", "us a token, update", "generate", "GB, update", "generate"))
    print("|---|---|---|---|---|")
    measurements = {}
    for axis, runs in points.items():
        measurements[axis] = []
        for x, arguments in runs:
            found = {part: call(growth, part, *arguments) for part in ("update", "generate")}
            measurements[axis].append((x, found))
            microseconds, gigabytes = zip(*found.values(), strict=True)
            print(line(f"{x} {axis}", *microseconds, *gigabytes), flush=True)
    return measurements


def measure_logprobs(call, few: slice, shape: tuple[int, int]) -> dict[str, list]:
    """By way, (seconds, GB) of each of ROWS; the shape is hidden size and vocabulary."""
    columns = [f"{rows} tokens" for rows in ROWS[few]]
    print(line("\nlog-probs and entropy, forward and backward", *columns))
    print("|---" * (1 + len(columns)) + "|")
    passes = {}
    for way in WAYS:
        if way == "TRL" and not importlib.util.find_spec("trl"):
            continue
        passes[way] = [call(logprob_pass, way, rows, *shape) for rows in ROWS[few]]
        print(line(way, *(f"{seconds:.3g} s, {gb:.2f} GB" for seconds, gb in passes[way])))
    return passes


def per_token(found: tuple[float, float], tokens: int) -> tuple[float, float]:
    """(seconds, GB) of so many tokens -> (microseconds a token, GB)."""
    seconds, gigabytes = found
    return 1e6 * seconds / tokens, gigabytes


def draw(measurements: dict[str, list]) -> Figure:
    """A column an axis, with a curve for each name in its points [(x, {name: (us a token, GB)})].

    The upper row is time a token, the lower row peak memory; all scales are logarithmic.
    """
    figure = Figure(figsize=(13, 6), layout="constrained")
    panels = figure.subplots(2, 4, sharey="row", sharex="col")
    for (upper, lower), (axis, points) in zip(panels.T, measurements.items(), strict=True):
        xs = [x for x, _ in points]
        for name in points[0][1]:
            microseconds, gigabytes = zip(*(found[name] for _, found in points), strict=True)
            upper.plot(xs, microseconds, ".-", label=name)
            lower.plot(xs, gigabytes, ".-", label=name)
        upper.legend(fontsize="small")
        for panel in (upper, lower):
            panel.set(xscale="log", yscale="log")
        lower.set(xlabel=axis)
        lower.set_xticks(xs, [f"{x:,}" for x in xs])
        lower.minorticks_off()
    panels[0, 0].set(ylabel="microseconds a token")
    panels[1, 0].set(ylabel="peak GB")
    return figure


if __name__ == "__main__":
    main()

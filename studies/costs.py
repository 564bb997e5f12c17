"""What a token costs: as batches, completions and vocabularies grow, in log-probs done in other ways, and in waste.

    pip install trl==1.16.0               # for its log-probs; without it that line is left out
    python studies/costs.py               # 15 minutes on 2 CPU cores; draws studies/figures/costs.png
    python studies/costs.py --quick       # a small point of each, in one process, whose memory then means nothing

Every point is measured in a process of its own: seconds, and the peak of its memory above what it held before. On a GPU
the same command measures torch's memory there.
"""
import argparse
import importlib.util
import random
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from measure import alone, gradients, measured

HERE = Path(__file__).parent
LENGTHS, GENERATIONS, VOCABULARIES = (64, 256, 1024, 4096), (1, 4, 16, 64), (64, 1024, 16384, 151936)
ROWS = (128, 512, 2048)  # tokens of a log-prob pass


def growth(part: str, length: int, prompts: int, generations: int, vocabulary: int) -> tuple[float, float]:
    """Microseconds a token, and GB, to "generate" or "update" with a random policy of the tiny one's shape."""
    import torch
    import transformers

    import common
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    policy, tokenizer = common.build_tiny()
    shape = policy.config
    shape.vocab_size, shape.max_position_embeddings = vocabulary, 8192
    policy = transformers.Qwen2ForCausalLM(shape).to(device)
    policy.generation_config.eos_token_id = vocabulary  # which is no token: completions of full length
    config = common.Config(max_completion_length=length)
    prompt = [[5 + i % 20] * 16 for i in range(prompts) for _ in range(generations)]
    samples = [common.Sample(ids, torch.randint(2, 26, (length,)).tolist()) for ids in prompt]
    sampler = common.GenerateSampler(policy, tokenizer, config)

    def update():
        gradients(policy, samples, config)
        policy.zero_grad()

    generate = partial(sampler.generate, prompt, 1.0, 1.0, length)
    seconds, gigabytes = measured(update, 3) if part == "update" else measured(generate, 2)
    return 1e6 * seconds / length / len(prompt), gigabytes


def naive(hidden, weight, targets, temperature):
    """All logits at once, by torch's own gradients."""
    logp = (hidden @ weight.T / temperature).log_softmax(-1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(1)


def checkpointed(hidden, weight, targets, temperature):
    """naive in chunks of 256 tokens, each computed again in the backward pass."""
    import torch
    from torch.utils.checkpoint import checkpoint
    parts = [checkpoint(naive, h, weight, t, temperature, use_reentrant=False)
             for h, t in zip(hidden.split(256), targets.split(256))]
    return map(torch.cat, zip(*parts))


def logprob_pass(method: str, tokens: int, hidden_size: int, vocabulary: int) -> tuple[float, float]:
    """Forward and backward from the same hidden states to the gradients of hidden states and head."""
    import torch

    import common
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    hidden = torch.randn(tokens, hidden_size, device=device, requires_grad=True)
    weight = (0.02 * torch.randn(vocabulary, hidden_size, device=device)).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), device=device)

    def trl(*tensors):
        from trl.kernels.chunked_logprob import ChunkedLogProbFunction
        from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE
        hidden, weight, targets, temperature = tensors
        return ChunkedLogProbFunction.apply(hidden, weight, None, targets, temperature, _CHUNKED_LOGPROB_CHUNK_SIZE,
                                            None, 1.0, ("entropy",))[:2]

    def both():
        ways = {"ours": common.LinearLogProbs.apply, "naive": naive, "checkpoint": checkpointed, "TRL": trl}
        logprobs, entropy = ways[method](hidden, weight, targets, 0.7)
        (logprobs.sum() + 0.01 * entropy.sum()).backward()
        hidden.grad = weight.grad = None
    return measured(both, 3)


def waste() -> list[tuple[str, float]]:
    """Shares of work that no completion token needs, for lengths as skewed as a log-normal with sigma 0.6 has them."""
    import common
    rng, found = random.Random(0), []
    lengths = [min(1024, max(1, int(rng.lognormvariate(5.5, 0.6)))) for _ in range(512)]
    samples = [common.Sample([0] * 100, [0] * length) for length in lengths]
    real = sum(lengths) + 100 * len(lengths)
    for budget in (4096, 16384, 10**9):
        parts = common.microbatches(samples, range(len(samples)), budget)
        padded = sum(len(part) * (100 + max(lengths[i] for i in part)) for part in parts)
        found.append((f"padding in microbatches of {budget} tokens, of 512 completions", 1 - real / padded))
    shuffled = sum(4 * (100 + max(lengths[i:i + 4])) for i in range(0, 512, 4))
    found.append(("padding in unsorted batches of 4 completions", 1 - real / shuffled))
    for generations in (1, 8, 16):
        repeated = 100 * (512 - 512 // generations) / real
        found.append((f"prompts of 100 tokens that {generations} completions repeat", repeated))
    for batch in (512, 64):
        rows = sum(len(lengths[i:i + batch]) * max(lengths[i:i + batch]) for i in range(0, 512, batch))
        found.append((f"`generate` on rows that have ended, {batch} at once", 1 - sum(lengths) / rows))
    policy, tokenizer = common.build_tiny()  # which ends a completion at every 26th token or so
    steps = []
    policy.register_forward_hook(lambda *_: steps.append(1))
    completions, _ = common.GenerateSampler(policy, tokenizer, common.Config()).generate([[5, 6]] * 64, 1.0, 1.0, 512)
    found.append(("`generate` after every row has ended", 1 - max(map(len, completions)) / len(steps)))
    return found


def line(name: str, *cells) -> str:
    return f"| {name} | " + " | ".join(cell if isinstance(cell, str) else f"{cell:.3g}" for cell in cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "figures")
    flags = parser.parse_args()
    few = slice(1) if flags.quick else slice(None)
    apart = (lambda function, *arguments: function(*arguments)) if flags.quick else alone
    points = {  # tokens, prompts, completions a prompt, vocabulary
        "tokens a completion": [(x, (x, 4, 1, 26)) for x in LENGTHS[few]],
        "completions a prompt": [(x, (64, 4, x, 26)) for x in GENERATIONS[few]],
        "words in the vocabulary": [(x, (64, 16, 1, x)) for x in VOCABULARIES[few]],
    }
    print(line("", "us a token, update", "generate", "GB, update", "generate"), "|---|---|---|---|---|", sep="\n")
    grown = {axis: [] for axis in points}
    for axis, runs in points.items():
        for x, point in runs:
            grown[axis].append((x, found := {part: apart(growth, part, *point) for part in ("update", "generate")}))
            print(line(f"{x} {axis}", *(found[part][i] for i in (0, 1) for part in found)), flush=True)

    shape = (64, 1000) if flags.quick else (896, 151936)
    methods = ["ours", "naive", "checkpoint", *["TRL"] * (importlib.util.find_spec("trl") is not None)]
    passes = {method: [apart(logprob_pass, method, rows, *shape) for rows in ROWS[few]] for method in methods}
    print(line("\nlog-probs and entropy, forward and backward", *(f"{rows} tokens" for rows in ROWS[few])))
    print("|---" * (1 + len(ROWS[few])) + "|")
    for method, found in passes.items():
        print(line(method, *(f"{seconds:.3g} s, {GB:.2f} GB" for seconds, GB in found)))
    print(line("\nwork that no token needs", "share"), "|---|---|", sep="\n")
    for name, share in waste():
        print(line(name, f"{share:.0%}"))
    grown["tokens of a log-prob pass"] = [
        (rows, {method: (1e6 * found[i][0] / rows, found[i][1]) for method, found in passes.items()})
        for i, rows in enumerate(ROWS[few])]
    draw(grown, flags.out / "costs.png")


def draw(grown: dict[str, list], file: Path):
    """A column an axis, with a curve for each name in its points [(x, {name: (us a token, GB)})]; upper row: time a
    token; lower row: peak memory; both axes logarithmic.
    """
    from matplotlib.figure import Figure
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(2, 4, sharey="row", sharex="col")
    for column, (axis, points) in zip(axes.T, grown.items()):
        xs = [x for x, _ in points]
        for name in points[0][1]:
            for part, values in zip(column, zip(*(found[name] for _, found in points))):
                part.plot(xs, values, ".-", label=name)
        column[0].legend(fontsize="small")
        for part in column:
            part.set(xscale="log", yscale="log")
        column[1].set(xlabel=axis)
        column[1].set_xticks(xs, [f"{x:,}" for x in xs])
        column[1].minorticks_off()
    axes[0, 0].set(ylabel="microseconds a token")
    axes[1, 0].set(ylabel="peak GB")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()

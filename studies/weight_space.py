"""Where in the weights a run has changed, checkpoint by checkpoint (FADE sections 4.2, 5 and 15).

    python fade.py --output_dir runs/a --save_steps 10 --no_tie_word_embeddings
    python studies/weight_space.py runs/a [runs/b ...]    # run folders of any of the five scripts

The first table has a row a checkpoint: the L2 norm of the change since the start, the share of its
square that is the output head's and the mean share of a layer, and of the head's change the rank-1
statistics and its leading vector u, one number a token. `one sign` is the share of the tokens with
the commoner sign of u, `half of u` the smallest share of the tokens with half of its square. rho is
m_S p / (m_F q), where the run has logged m_S and m_F. The second table has the share of each layer.
The third has |cos| of u with that of the last checkpoint, of the head and of the layers by thirds.
For several runs, the last table compares their last checkpoints, pair by pair.

Two policies are held in memory at a time, in fp32. Where the head is the embedding, as that of the
tiny policy is by default, its change has the embedding's gradients in it.
"""

import argparse
import json
import re
from dataclasses import fields
from pathlib import Path

import project  # noqa: F401

from rlvr.config import Config
from rlvr.diagnostics import rank1_statistics
from rlvr.logs import read_rows
from rlvr.run_folders import checkpoints_of, step_of
from rlvr.tiny import tiny_folder

import torch
import transformers

transformers.utils.logging.disable_progress_bar()


def checkpoints_in(run: Path) -> list[Path]:
    """The checkpoints of a run folder, the oldest first; none where there is no run."""
    return [*reversed(checkpoints_of(run))] if (run / "config.json").exists() else []


def read_config(run: Path) -> Config:
    """The flags of a run that all five scripts have."""
    saved = json.loads((run / "config.json").read_text())
    return Config(**{field.name: saved[field.name] for field in fields(Config)})


def read_weights(folder) -> tuple[dict[str, torch.Tensor], str]:
    """The weights of a Hugging Face folder by name, and which of them is the output head."""
    policy = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    weights = {name: weight.detach() for name, weight in policy.named_parameters()}
    head = policy.get_output_embeddings().weight
    return weights, next(name for name, weight in policy.named_parameters() if weight is head)


def layer_of(name: str) -> int | None:
    """The number of the layer that a weight belongs to; None for what is in no layer."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else None


def squares_by_part(change: dict[str, torch.Tensor], head: str) -> dict:
    """Sum of the squared change of the "head", of each layer by its number, and of the "rest"."""
    squares = {"head": 0.0, "rest": 0.0}
    for name, weight in change.items():
        layer = layer_of(name)
        part = "head" if name == head else "rest" if layer is None else layer
        squares[part] = squares.get(part, 0.0) + weight.double().square().sum().item()
    return squares


def leading_vector(change: torch.Tensor) -> torch.Tensor:
    """u [m] of the best approximation s u v^T of a change [m, n], by the smaller Gram matrix."""
    change = change.double()
    m, n = change.shape
    if m <= n:
        return torch.linalg.eigh(change @ change.T).eigenvectors[:, -1]
    v = torch.linalg.eigh(change.T @ change).eigenvectors[:, -1]
    return torch.nn.functional.normalize(change @ v, dim=0)


def one_sign(u: torch.Tensor) -> float:
    """The share of the entries of u [m] that have its commoner sign."""
    return max((u > 0).double().mean().item(), (u < 0).double().mean().item())


def half_of(u: torch.Tensor) -> float:
    """The smallest share of the entries of u [m] that holds half of its square."""
    squares = u.square().sort(descending=True).values
    return (1 + (squares.cumsum(0) < squares.sum() / 2).sum().item()) / len(u)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Cosine of the angle between two tensors of one shape, as if they were vectors."""
    a, b = a.double(), b.double()
    return ((a * b).sum() / (a.norm() * b.norm())).item()


def leading_vectors(change: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The leading vector of each matrix that has changed."""
    return {name: leading_vector(w) for name, w in change.items() if w.dim() == 2 and w.any()}


def alignment(vectors: dict, last: dict, head: str) -> dict[str, float]:
    """Mean |cos| with the last checkpoint's vectors: of the head, and of the layers by thirds."""
    layers = 1 + max(layer_of(name) for name in last if layer_of(name) is not None)
    cosines = {"head": [], "early": [], "middle": [], "late": []}
    for name in vectors.keys() & last.keys():
        layer = layer_of(name)
        if name == head:
            cosines["head"].append(abs(cosine(vectors[name], last[name])))
        elif layer is not None:
            third = ("early", "middle", "late")[3 * layer // layers]
            cosines[third].append(abs(cosine(vectors[name], last[name])))
    return {part: sum(found) / len(found) for part, found in cosines.items() if found}


def ratio_of_masses(row: dict) -> float | None:
    """rho(p) = m_S p / (m_F q) of a step (FADE 11.3); None where it is not defined or logged."""
    p = row["reward"]
    if not row.get("m_F") or p == 1:
        return None
    return row["m_S"] * p / (row["m_F"] * (1 - p))


def describe(change: dict[str, torch.Tensor], head: str) -> dict:
    """The first table's numbers of a change, but for those that the run has logged."""
    squares = squares_by_part(change, head)
    total = sum(squares.values())
    layers = [value for part, value in squares.items() if isinstance(part, int)]
    u = leading_vector(change[head])
    return {
        "L2": total**0.5,
        "head": squares["head"] / total,
        "a layer": sum(layers) / len(layers) / total,
        **rank1_statistics(change[head]),
        "one sign": one_sign(u),
        "half of u": half_of(u),
    }


def line(*cells) -> str:
    """A row of a table; None is left empty."""
    shown = (f"{cell:.3g}" if isinstance(cell, float) else cell for cell in cells)
    return f"| {' | '.join('' if cell is None else str(cell) for cell in shown)} |"


def print_table(rows: list[dict]) -> None:
    """Rows with the same keys as a table, and an empty line."""
    print(line(*rows[0]), line(*["---"] * len(rows[0])), sep="\n")
    print(*(line(*row.values()) for row in rows), "", sep="\n")


def report(run: Path) -> tuple[dict[str, torch.Tensor], str]:
    """Print the tables of a run; returns the change at its last checkpoint, and the head's name."""
    config = read_config(run)
    start, head = read_weights(tiny_folder(config) if config.model == "tiny" else config.model)
    logged = {row["step"]: row for row in read_rows(run, "metrics")}
    first, second, vectors = [], [], {}
    for checkpoint in checkpoints_in(run):
        step = step_of(checkpoint)
        weights, _ = read_weights(checkpoint)
        change = {name: weights[name] - start[name] for name in start}
        vectors[step] = leading_vectors(change)
        row = logged[step]
        known = {"step": step, "entropy": row["entropy"], "rho": ratio_of_masses(row)}
        first.append(known | describe(change, head))
        squares = squares_by_part(change, head)
        total = sum(squares.values())
        shares = {part: squares[part] / total for part in sorted(squares, key=str)}
        second.append({"step": step} | shares)
    last = vectors[step]
    third = [{"step": at} | alignment(found, last, head) for at, found in vectors.items()]
    print(f"{run}, whose head is {head}\n")
    for rows in (first, second, third):
        print_table(rows)
    return change, head


def main(runs: list[Path]) -> None:
    without = [str(run) for run in runs if not checkpoints_in(run)]
    if without:
        raise SystemExit(f"weight_space.py: error: no checkpoint in {', '.join(without)}")
    changes = {run: report(run) for run in runs}
    pairs = [(a, b) for i, a in enumerate(runs) for b in runs[i + 1 :]]
    if pairs:
        print_table([compare(changes, a, b) for a, b in pairs])


def compare(changes: dict, a: Path, b: Path) -> dict:
    """The cosine of two runs' changes, and |cos| of the leading vectors of their heads."""
    (change, head), (other, _) = changes[a], changes[b]
    flat, other_flat = (torch.cat([w.flatten() for w in x.values()]) for x in (change, other))
    u, other_u = leading_vector(change[head]), leading_vector(other[head])
    return {
        "runs": f"{a.name}, {b.name}",
        "cos": cosine(flat, other_flat),
        "cos of u": abs(cosine(u, other_u)),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    main(parser.parse_args().runs)

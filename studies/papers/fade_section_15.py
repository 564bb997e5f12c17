"""FADE's section 15: where in the weights a run changes, and is the head's gradient one direction?

    python fade.py --output_dir runs/a --save_steps 10 --no_tie_word_embeddings
    python studies/papers/fade_section_15.py weights runs/a [runs/b ...]   # runs of any script
    python studies/papers/fade_section_15.py head runs/a                   # a run of fade.py
    python studies/papers/fade_section_15.py reset --layers 1 --every 10 fade

`weights` prints one row per checkpoint: the L2 norm of the change since the start, the output
head's share of its square, the mean share of a layer, and the shares of all parts. For the head's
change it prints the rank-1 statistics and describes the leading vector u, which has one number per
token. `one sign` is the share of the tokens with the commoner sign of u, and `half of u` is the
smallest share of the tokens with half of its square. `rho` is m_S p / (m_F q), if the run has
logged m_S and m_F. `cos of u` is |cos| with the u of the last checkpoint. If there are several
runs, a table compares their last checkpoints.

`head` lets each checkpoint answer the same problems, with the alpha and delta of its step. A token
with the advantage A, the hidden state h and the softmax error v = onehot - pi adds A v h^T to the
head's gradient. A row has r1, the share of the largest singular value in the gradient's square;
|cos| of its leading right vector with that of the checkpoint before; rho, the mean cosine of two
tokens' h once that vector is projected out; and R, the norm of the mean of v h^T once the leading
right vector of all h is projected out. R failed / R correct would be sqrt(correct / failed tokens)
if both had the same covariance.

`reset` runs a script and sets its last layers back to their start now and then (15.2). The
optimizer keeps its moments. The evaluation of a step comes before its reset, whose effect therefore
shows in the next one.
"""

import argparse
import copy
import importlib
import json
import re
import sys
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import SCRIPTS, markdown_table

from rlvr.errors import UserError, fail
from rlvr.flags import TINY, Config, parse_flags
from rlvr.policy import load_policies
from rlvr.policy.models import tiny_folder
from rlvr.policy.sharding import layers_of
from rlvr.rollout import make_sampler
from rlvr.show import read_rows
from rlvr.tasks import open_problems, own_tokens
from rlvr.training import Run, checkpoints_of, launch, step_of

import torch
import transformers
from torch.nn.functional import normalize

import common
import fade


def read_run(run: Path, config_class=Config):
    """A run's checkpoints, the oldest first, its flags, and what each step has logged.

    UserError where there is no checkpoint, or no run of the script of that Config.
    """
    checkpoints = [*reversed(checkpoints_of(run))] if (run / "config.json").exists() else []
    if not checkpoints:
        raise UserError(f"no checkpoint in {run}")
    saved = json.loads((run / "config.json").read_text())
    names = {field.name for field in fields(config_class) if field.init}
    if not names <= {*saved}:
        raise UserError(f"{run} is no run of fade.py")
    config = config_class(**{name: saved[name] for name in names})
    return checkpoints, config, {row["step"]: row for row in read_rows(run, "metrics")}


def leading_right_vector(matrix: torch.Tensor) -> torch.Tensor:
    """The unit vector [n] along which a matrix [m, n] is longest, in float64."""
    matrix = matrix.double()
    return torch.linalg.eigh(matrix.T @ matrix).eigenvectors[:, -1]


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Cosine of the angle between two vectors."""
    return torch.dot(normalize(a.double(), dim=0), normalize(b.double(), dim=0)).item()


def print_table(rows: list[dict]) -> None:
    """Rows with the same keys as a table, and an empty line; None is an empty cell."""
    cells = [
        [f"{v:.3g}" if isinstance(v, float) else str(v or "") for v in row.values()] for row in rows
    ]
    print(*markdown_table([*map(str, rows[0])], cells), "", sep="\n")


# ------------------------------------------------------------------------------------- weights


def read_weights(folder) -> tuple[dict[str, torch.Tensor], str]:
    """The weights of a Hugging Face folder by name, and which of them is the output head."""
    policy = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    weights = {name: weight.detach() for name, weight in policy.named_parameters()}
    head = policy.get_output_embeddings().weight
    return weights, next(name for name, weight in policy.named_parameters() if weight is head)


def leading_left_vector(matrix: torch.Tensor) -> torch.Tensor:
    """u [m] of the best approximation s u v^T of a matrix [m, n] with m > n."""
    return normalize(matrix.double() @ leading_right_vector(matrix), dim=0)


def describe(change: dict[str, torch.Tensor], head: str, u: torch.Tensor) -> dict[str, float]:
    """A row's numbers of a change since the start, whose leading vector at the head is u."""
    squares = {"head": 0.0, "rest": 0.0}
    for name, weight in change.items():
        layer = re.search(r"\.(\d+)\.", name)
        part = "head" if name == head else f"layer {layer[1]}" if layer else "rest"
        squares[part] = squares.get(part, 0.0) + weight.double().square().sum().item()
    total = sum(squares.values())
    shares = {part: square / total for part, square in squares.items()}
    layers = [share for part, share in shares.items() if part.startswith("layer")]
    by_size = u.square().sort(descending=True).values
    half = 1 + (by_size.cumsum(0) < by_size.sum() / 2).sum().item()
    return {
        "L2": total**0.5,
        "a layer": sum(layers) / len(layers),
        **shares,
        **fade.rank1_statistics(change[head]),
        "one sign": max((u > 0).double().mean().item(), (u < 0).double().mean().item()),
        "half of u": half / len(u),
    }


def ratio_of_masses(row: dict) -> float | None:
    """rho(p) = m_S p / (m_F q) of a step (FADE 11.3); None where it is not defined or logged."""
    p = row["reward"]
    if not row.get("m_F") or p == 1:
        return None
    return row["m_S"] * p / (row["m_F"] * (1 - p))


def print_weights(runs: list[Path]) -> None:
    """Print the table of each run, and how far their last checkpoints agree."""
    lasts = {}
    for run in runs:
        checkpoints, config, logged = read_run(run)
        start, head = read_weights(tiny_folder(config) if config.model in TINY else config.model)
        rows, vectors = [], []
        for checkpoint in checkpoints:
            found, _ = read_weights(checkpoint)
            change = {name: found[name] - start[name] for name in start}
            vectors.append(leading_left_vector(change[head]))
            row = logged[step_of(checkpoint)]
            known = {"step": row["step"], "entropy": row["entropy"], "rho": ratio_of_masses(row)}
            rows.append(known | describe(change, head, vectors[-1]))
        for row, u in zip(rows, vectors, strict=True):
            row["cos of u"] = abs(cosine(u, vectors[-1]))
        print(f"{run}, whose head is {head}\n")
        print_table(rows)
        lasts[run] = torch.cat([weight.flatten() for weight in change.values()]), vectors[-1]
    pairs = [
        {
            "runs": f"{a.name}, {b.name}",
            "cos": cosine(lasts[a][0], lasts[b][0]),
            "cos of u": abs(cosine(lasts[a][1], lasts[b][1])),
        }
        for a, b in combinations(runs, 2)
    ]
    if pairs:
        print_table(pairs)


# ---------------------------------------------------------------------------------------- head


@torch.no_grad()
def head_inputs(policy, samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the policy's own tokens: hidden states [M, d], the tokens [M], and whose they are [M]."""
    hidden, tokens, owners = [], [], []
    for i, sample in enumerate(samples):
        ids = torch.tensor(sample.prompt_ids + sample.completion_ids, device=policy.device)
        states = policy.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
        begin, own = len(sample.prompt_ids), own_tokens([sample])[0].to(policy.device)  # [T]
        hidden.append(states[begin - 1 : -1][own].float())  # the state before a token
        tokens.append(ids[begin:][own])
        owners += [i] * len(tokens[-1])
    return torch.cat(hidden), torch.cat(tokens), torch.tensor(owners, device=policy.device)


def error_products(hidden, head, tokens, token_weights, vectors, temperature=1.0):
    """Sum over the tokens of weight x v vector^T, [V, d], by blocks; v = onehot(token) - pi.

    hidden [M, d], head [V, d], tokens [M], token_weights [M], vectors [M, d].
    """
    total = torch.zeros_like(head)
    for block in torch.arange(len(hidden), device=hidden.device).split(1024):
        errors = -(hidden[block] @ head.T / temperature).softmax(1)  # [m, V]
        errors[torch.arange(len(block)), tokens[block]] += 1
        total += (token_weights[block, None] * errors).T @ vectors[block]
    return total


def without(hidden: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """The hidden states [M, d] less their part along a unit vector [d]."""
    direction = direction.to(hidden.dtype)
    return hidden - (hidden @ direction)[:, None] * direction


def mean_pairwise_cosine(vectors: torch.Tensor) -> float:
    """Mean cosine of two different vectors of [n, d]: (|sum of units|^2 - n) / (n (n - 1))."""
    units = normalize(vectors.double(), dim=1)
    n = len(units)
    return ((units.sum(0).square().sum() - n) / (n * (n - 1))).item()


def geometry(policy, samples, advantages, successes, temperature) -> tuple[dict, torch.Tensor]:
    """The numbers of a batch, advantages and successes [B, G], and the gradient's vector [d]."""
    head = policy.get_output_embeddings().weight.detach().float()  # [V, d]
    hidden, tokens, owners = head_inputs(policy, samples)
    of_tokens = advantages.flatten()[owners].float()
    gradient = error_products(hidden, head, tokens, of_tokens, hidden, temperature)
    direction = leading_right_vector(gradient)
    perpendicular = without(hidden, direction)
    residual = without(hidden, leading_right_vector(hidden))
    right = successes.flatten()[owners] == 1  # [M]
    found = {"r1": fade.rank1_statistics(gradient)["r1"]}
    for name, group in (("correct", right), ("failed", ~right)):
        mean = error_products(hidden, head, tokens, group / group.sum(), residual, temperature)
        found |= {f"rho {name}": mean_pairwise_cosine(perpendicular[group])}
        found |= {f"R {name}": mean.norm().item()}
    found["R ratio"] = found["R failed"] / found["R correct"]
    found["by chance"] = (right.sum() / (~right).sum()).sqrt().item()
    return found, direction


def print_head(run: Path) -> None:
    """Print a row a checkpoint of a run of fade.py."""
    checkpoints, config, logged = read_run(run, fade.Config)
    rows, before = [], None
    for checkpoint in checkpoints:
        row = logged[step_of(checkpoint)]
        policy, _, tokenizer = load_policies(replace(config, model=str(checkpoint)))
        stream, _ = open_problems(config, tokenizer)
        sampler = make_sampler(policy, tokenizer, config, common.decode)
        torch.manual_seed(config.seed)
        batch = common.roll_out(sampler, stream, config)
        successes = batch.successes
        mean = successes.mean().item() if config.batch_mean else None  # of this batch
        advantages = fade.fade_advantage(successes, row["alpha"], row["delta"], mean)
        found, direction = geometry(
            policy, batch.samples, advantages, successes, config.temperature
        )
        against = None if before is None else abs(cosine(direction, before))
        rows.append({"step": row["step"], "cos": against} | found)
        before = direction
    print_table(rows)


# --------------------------------------------------------------------------------------- reset


class ResettingRun(Run):
    """A run that resets the last `layers` layers of its policy after every `every` steps."""

    def start(self, policy, *given) -> int:
        """Keep the weights of the start, then do what Run does."""
        self.last = layers_of(policy)[-self.layers :]
        self.first = [copy.deepcopy(layer.state_dict()) for layer in self.last]
        return super().start(policy, *given)

    def end_step(self, step: int) -> bool:
        """Reset the layers if that is due, then do what Run does: checkpoints have them reset."""
        if step % self.every == 0:
            for layer, first in zip(self.last, self.first, strict=True):
                layer.load_state_dict(first)
            print(f"reset the last {self.layers} layers after step {step}")
        return super().end_step(step)


def run_with_resets(script: str, flags: list[str], layers: int, every: int) -> None:
    """Run a script with its flags, and with resets."""
    if layers < 1 or every < 1:
        raise UserError("--layers and --every must be above 0")
    ResettingRun.layers, ResettingRun.every = layers, every
    sys.argv = [f"{script}.py", *flags]
    module = importlib.import_module(script)
    module.Run = ResettingRun
    launch(module.main, parse_flags(module.Config, module.VARIANTS))


ANSWERS = {"weights": print_weights, "head": print_head, "reset": run_with_resets}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    of_weights = commands.add_parser("weights", help="where in the weights runs have changed")
    of_weights.add_argument("runs", nargs="+", type=Path, help="run folders")
    of_head = commands.add_parser("head", help="the geometry of the head's gradient")
    of_head.add_argument("run", type=Path, help="run folder of fade.py")
    of_reset = commands.add_parser("reset", help="a run whose last layers are reset")
    of_reset.add_argument("--layers", type=int, default=1, help="how many; the paper: 4 of 28")
    of_reset.add_argument("--every", type=int, default=10, help="steps from one to the next")
    of_reset.add_argument("script", choices=SCRIPTS)
    of_reset.add_argument("flags", nargs=argparse.REMAINDER, help="of the script")
    given = vars(parser.parse_args())
    try:
        ANSWERS[given.pop("command")](**given)
    except UserError as error:
        fail(str(error))

"""Is the output head's gradient of one direction, and do failures cancel? (FADE section 15.)

    python fade.py --output_dir runs/a --save_steps 10
    python studies/head_geometry.py runs/a    # a run folder of fade.py

Each checkpoint answers the same problems, a step's worth of them. A token with the advantage A, the
hidden state h and the softmax error v = onehot - pi adds A v h^T to the head's gradient. A row has

    r1                    the share of the largest singular value in the gradient's square
    cos, cos of u         of the gradient, and |cos| of its leading right vector, with those of the
                          checkpoint before
    rho correct, failed   mean cosine of two tokens' h, once that vector is projected out
    R correct, failed     the norm of the mean of v h^T, once the leading right vector of all h is
                          projected out (the paper's footnote names this other direction)
    R ratio, by chance    failed over correct, and sqrt(correct tokens / failed tokens), which it
                          would be if both had the same covariance
"""

import argparse
import json
from dataclasses import fields, replace
from pathlib import Path

import project  # noqa: F401

import rlvr.models
import rlvr.samplers
import rlvr.tasks.datasets
import rlvr.tasks.stream
from rlvr.diagnostics import rank1_statistics
from rlvr.logs import read_rows
from rlvr.rollouts import own_tokens
from rlvr.run_folders import step_of

import torch
from torch.nn.utils.rnn import pad_sequence
from weight_space import checkpoints_in, cosine, print_table

import common
from fade import Config, choose_weight

SAMPLES_AT_ONCE = 32


@torch.no_grad()
def head_inputs(policy, samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the policy's own tokens: hidden states [M, d], the tokens [M], and whose they are [M]."""
    hidden, tokens, owners = [], [], []
    for first in range(0, len(samples), SAMPLES_AT_ONCE):
        chosen = samples[first : first + SAMPLES_AT_ONCE]
        ids = [torch.tensor(s.prompt_ids + s.completion_ids, device=policy.device) for s in chosen]
        padded = pad_sequence(ids, batch_first=True)
        states = policy.base_model(input_ids=padded, use_cache=False).last_hidden_state
        for i, sample in enumerate(chosen):
            begin, end = len(sample.prompt_ids), len(ids[i])
            own = own_tokens(sample).bool().to(policy.device)  # [T]
            hidden.append(states[i, begin - 1 : end - 1][own].float())  # the state before a token
            tokens.append(ids[i][begin:][own])
            owners += [first + i] * sample.own_length
    return torch.cat(hidden), torch.cat(tokens), torch.tensor(owners, device=policy.device)


def error_products(hidden, head, tokens, weights, vectors, temperature=1.0, size=1024):
    """sum over the tokens of weight x v vector^T, [V, d], by blocks of tokens.

    hidden [M, d], head [V, d], tokens [M], weights [M], vectors [M, d]; v = onehot(token) - pi.
    """
    total = torch.zeros_like(head)
    for block in torch.arange(len(hidden), device=hidden.device).split(size):
        errors = -(hidden[block] @ head.T / temperature).softmax(1)  # [m, V]
        errors[torch.arange(len(block)), tokens[block]] += 1
        total += (weights[block, None] * errors).T @ vectors[block]
    return total


def leading_right_vector(matrix: torch.Tensor) -> torch.Tensor:
    """The unit vector [d] along which a matrix [n, d] is longest."""
    matrix = matrix.double()
    return torch.linalg.eigh(matrix.T @ matrix).eigenvectors[:, -1].to(torch.float32)


def without(hidden: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """The hidden states [M, d] less their part along a unit vector [d]."""
    return hidden - (hidden @ direction)[:, None] * direction


def mean_pairwise_cosine(vectors: torch.Tensor) -> float:
    """Mean cosine of two different vectors of [n, d]: (|sum of units|^2 - n) / (n (n - 1))."""
    units = torch.nn.functional.normalize(vectors.double(), dim=1)
    n = len(units)
    return ((units.sum(0).square().sum() - n) / (n * (n - 1))).item()


def geometry(policy, samples, advantages, successes, temperature) -> tuple[dict, torch.Tensor]:
    """The numbers of a batch, advantages and successes [B, G], and the head's gradient [V, d]."""
    head = policy.get_output_embeddings().weight.detach().float()  # [V, d]
    hidden, tokens, owners = head_inputs(policy, samples)
    token_advantages = advantages.flatten()[owners].float()
    gradient = error_products(hidden, head, tokens, token_advantages, hidden, temperature)
    perpendicular = without(hidden, leading_right_vector(gradient))
    residual = without(hidden, leading_right_vector(hidden))
    right = successes.flatten()[owners] == 1  # [M]
    found = {"r1": rank1_statistics(gradient)["r1"]}
    norms = {}
    for name, group in (("correct", right), ("failed", ~right)):
        count = group.sum()
        found[f"rho {name}"] = mean_pairwise_cosine(perpendicular[group])
        mean = error_products(hidden, head, tokens, group / count, residual, temperature)
        norms[f"R {name}"] = mean.norm().item()
    ratio = norms["R failed"] / norms["R correct"]
    by_chance = (right.sum() / (~right).sum()).sqrt().item()
    return found | norms | {"R ratio": ratio, "by chance": by_chance}, gradient


def main(run: Path) -> None:
    checkpoints = checkpoints_in(run)
    saved = json.loads((run / "config.json").read_text()) if checkpoints else {}
    if "weight" not in saved:  # a flag of fade.py alone
        raise SystemExit(f"head_geometry.py: error: {run} is no run of fade.py with a checkpoint")
    config = Config(**{field.name: saved[field.name] for field in fields(Config)})
    logged = {row["step"]: row for row in read_rows(run, "metrics")}
    rows, before = [], None
    for checkpoint in checkpoints:
        step = step_of(checkpoint)
        policy, tokenizer = rlvr.models.load_policy(
            replace(config, model=str(checkpoint)), torch.device("cpu")
        )
        problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
        sampler = rlvr.samplers.make_sampler(policy, tokenizer, config)
        stream = rlvr.tasks.stream.ProblemStream(problems, config.seed)
        torch.manual_seed(config.seed)
        batch = common.roll_out(sampler, stream, config)
        row = logged[step]
        weight = choose_weight(
            config,
            row["alpha"],
            row["delta"],
            row["reward"],
            row["solve_rate_ema"],
            batch.mask.sum(1).view_as(batch.successes) / config.max_completion_length,
        )
        found, gradient = geometry(
            policy,
            batch.samples,
            weight(batch.successes),
            batch.successes,
            config.temperature,
        )
        against = {"cos": None, "cos of u": None}
        if before is not None:
            u, u_before = leading_right_vector(gradient), leading_right_vector(before)
            against = {"cos": cosine(gradient, before), "cos of u": abs(cosine(u, u_before))}
        rows.append({"step": step} | against | found)
        before = gradient
    print_table(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("run", type=Path, help="run folder of fade.py")
    main(parser.parse_args().run)

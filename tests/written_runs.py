"""Run folders for the studies, written without a run."""

import json
from pathlib import Path

PASS_AT = [f"pass@{2**i}" for i in range(6)]


def write_rows(folder: Path, log: str, rows: list[dict]) -> None:
    """Write <log>.jsonl."""
    (folder / f"{log}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def evaluation(step: int, value: float, **others) -> dict:
    """A row of eval.jsonl whose pass@k and entropy are `value`."""
    row = dict.fromkeys(PASS_AT, value)
    return {**row, "step": step, "token_entropy": value, "answer_entropy": 1.0, **others}


def write_run(folder: Path, rewards, seed=0, level=0.5, variant="grpo", **flags) -> Path:
    """A finished run with these rewards, and with entropies of 1, 2 ... a step.

    pass@k is 0.25 before training and `level` after it.
    """
    folder.mkdir(parents=True)
    config = dict(
        variant=variant, seed=seed, output_dir=str(folder), resume_from_checkpoint="", **flags
    )
    (folder / "config.json").write_text(json.dumps(config))
    rows = [
        dict(step=step, reward=reward, entropy=float(step))
        for step, reward in enumerate(rewards, 1)
    ]
    write_rows(folder, "metrics", rows)
    evaluations = [evaluation(0, 0.25, r1=0.25), evaluation(len(rows), level, r1=level)]
    write_rows(folder, "eval", evaluations)
    return folder

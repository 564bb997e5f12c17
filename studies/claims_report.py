"""What claims.py measures of its runs, and what it writes: CLAIMS.md, claims.json and two figures."""
import json
import math
import re
from pathlib import Path

import numpy as np
from compare import draw_pass_at_k, draw_steps, pyplot, read_rows, smooth

import tasks

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # 97.5%, n - 1
SHOWN = "pass@1", "pass@16", "pass@32", "entropy", "answer_entropy", "false steps"
STATICS = "mean", "Power 2", "delta 0.5"  # the policy weights without feedback that FADE has to beat
BY_PAPER = {  # whose entropy is drawn together
    "000": ("GRPO", "positive-dominant", "negative-dominant", "A-GRAE"), "001": ("GRPO", "GRPO-N", "GSPO", "GSPO-N"),
    "002": ("REINFORCE", "Pos-Only", "Neg-Only", "entropy bonus", "AsymGRPO"),
    "003": ("mean", "delta 0.5", "delta 2", "Power 2", "FADE"), "004": ("GRPO", "CW-GRPO", "Clip-Cov")}


def has_false_step(text: str) -> bool:
    """Is an equation of a Countdown completion, such as 9*5=45, wrong?"""
    for left, sign, right, result in re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", text):
        a, b, c = int(left), int(right), int(result)
        if sign == "/" and b == 0 or tasks.OPERATORS[sign](a, b) != c:
            return True
    return False


def measure(folder: Path, scale, step: int) -> dict[str, float]:
    """The numbers that claims are about, of a run at a step."""
    rows = read_rows(folder, "metrics")[:scale.steps]
    column = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    if "growth" in column:
        gaps = {f"{name} gap": (column[name] * column[f"{name}_gap"]).sum() / max(column[name].sum(), 1)
                for name in ("easy", "hard")}  # the mean over the groups of all batches
        kappa = column["kappa"].mean()
        return {"kappa": kappa, "growth": column["growth"].mean() * np.sign(kappa),
                "correlation": np.corrcoef(column["kappa"], column["growth"])[0, 1]} | gaps
    evals = read_rows(folder, "eval")
    found = next(row for row in evals if row["step"] == step)
    misfits = [abs(row[f"pass@{k}"] - math.exp(-row["fit_a"] * (k + row["fit_c"]) ** -row["fit_b"]))
               for row in evals for k in (1, 2, 4, 8, 16, 32) if "fit_a" in row]
    third = max(scale.steps // 3, 1)
    texts = read_rows(folder, "samples")  # two a step
    near = [row["text"] for row in texts if max(step - third, 0) < row["step"] <= max(step, 4) and not row["reward"]]
    found |= {"false steps": sum(map(has_false_step, near)) / max(len(near), 1)}  # share of the wrong completions
    found |= {"entropy": found["token_entropy"], "early": column["reward"][:third].mean(),
              "late": column["reward"][-third:].mean(), "swing": np.ptp(smooth(column["entropy"], 8)),
              "fit error": max(misfits, default=math.nan)}
    found |= {"kappa": column["kappa"][:20].mean()} if "kappa" in column else {}
    return found | ({"top 1% share": column["covariance_top_1%_share"].mean()} if "format" in column else {})


def collect(runs: Path, base: str, scale, labels: dict[str, str]) -> dict[str, list[dict]]:
    """For each label the numbers of its seeds; "start" is the policy before, and reach the first step at which the
    mean reward of ten steps is at the best that any of STATICS gets to with that seed.
    """
    table = {label: [measure(runs / base / f"{label}-{seed}", scale, scale.steps) for seed in range(scale.seeds)]
             for label in labels}
    again = {"start": 0} | ({"GRPO, long": scale.long} if base == "weak" else {})
    for label, step in again.items():
        table[label] = [measure(runs / base / f"GRPO-{seed}", scale, step) for seed in range(scale.seeds)]
    for seed in range(scale.seeds if {*STATICS} <= {*labels} else 0):
        curves = {}
        for label in (*STATICS, "FADE"):
            reward = np.array([row["reward"] for row in read_rows(runs / base / f"{label}-{seed}", "metrics")])
            curves[label] = smooth(reward, 10)[min(9, scale.steps - 1):]
        peak = max(curves[label].max() for label in STATICS)
        for label, curve in curves.items():
            table[label][seed]["reach"] = int(np.argmax(curve >= peak)) if curve.max() >= peak else len(curve)
    return table


def interval(values) -> tuple[float, float, float]:
    """Mean, and lower and upper end of its 95% interval."""
    half = STUDENT[len(values)] * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values)), float(np.mean(values) - half), float(np.mean(values) + half)


def claims_table(results: list[dict], bases, intervals: bool = True) -> list[str]:
    """A row a claim, a column a base: the verdict, the mean difference and its interval (the README has it without)."""
    cells = {}
    for r in results:
        cell = f"**{r['verdict']}** {r['mean']:+.2g}" + f" [{r['low']:+.2g}, {r['high']:+.2g}]" * intervals
        cells.setdefault((r["paper"], r["claim"], r["metric"]), {})[r["base"]] = cell
    head = f"| paper | claim | difference in | {' | '.join(f'{base} base' for base in bases)} |"
    return [head, "|---" * (3 + len(bases)) + "|", *(
            f"| {paper} | {claim} | {metric} | {' | '.join(found.get(base, '') for base in bases)} |"
            for (paper, claim, metric), found in cells.items())]


def runs_table(table: dict[str, list[dict]]) -> list[str]:
    """A row a run: mean and half the interval over the seeds, then the paired difference to GRPO."""
    lines = [f"| run | {' | '.join(f'{key} | less GRPO' for key in SHOWN)} |", "|---" * (1 + 2 * len(SHOWN)) + "|"]
    for label, rows in table.items():
        cells = []
        for key in SHOWN if SHOWN[0] in rows[0] else ():
            own, other = (np.array([row[key] for row in which]) for which in (rows, table["GRPO"]))
            for mean, low, _ in (interval(own), interval(own - other)):
                cells.append(f"{mean:.3f} ± {mean - low:.3f}")
        lines += [f"| {label} | {' | '.join(cells)} |"] if cells else []
    return lines


def draw(runs: Path, out: Path, tables: dict[str, dict], scale):
    """The figures claims_pass_at_k, of what was trained from every base, and claims_entropy, from the first."""
    pyplot.rcParams["font.size"] = 15
    folders = {base: {label: [runs / base / f"{label}-{seed}" for seed in range(scale.seeds)] for label in table
                      if (runs / base / f"{label}-0" / "eval.jsonl").exists()} for base, table in tables.items()}

    figure, axes = pyplot.subplots(1, len(tables), figsize=(8 * len(tables), 7), layout="constrained")
    weak, *_, last = folders.values()  # the first base has every run, the last those that all bases have
    for axis, base in zip(axes, tables):
        draw_pass_at_k(axis, {label: folders[base][label] for label in last}, scale.steps)
        axis.set(title=f"{base} base", ylabel="held-out pass@k")
    axes[-1].legend(fontsize=13)
    figure.savefig(out / "claims_pass_at_k.png", dpi=60)

    figure, axes = pyplot.subplots(1, len(BY_PAPER), figsize=(30, 6.5), sharey=True, layout="constrained")
    for axis, (paper, labels) in zip(axes, BY_PAPER.items()):
        groups = {label: weak[label] for label in labels if label in weak}
        draw_steps(axis, groups, "metrics", "entropy", 10, scale.steps)
        axis.set(title=f"paper {paper}")
        axis.legend()
    axes[0].set_ylabel("token entropy, nats")
    figure.savefig(out / "claims_entropy.png", dpi=60)


def write_report(runs: Path, out: Path, tables: dict[str, dict], results: list[dict], scale):
    """Everything, from the numbers of each base's runs and the claims' verdicts."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    (out / "claims.json").write_text(json.dumps(dict(scale=scale._asdict(), claims=results, runs=tables), indent=1))
    lines = ["# Which claims hold here?", "",
             f"{scale.seeds} seeds, {scale.steps} steps ({scale.flags}); the bases: "
             + ", ".join(f"{base} ({flags or 'the defaults'})" for base, flags in scale.bases.items()) + ".",
             "Written by `python studies/claims.py`, whose first lines hold the rule. Mean difference and its 95%",
             "interval; a claim without a verdict was not tried from that base.", "", *claims_table(results, tables)]
    for base, table in tables.items():
        lines += ["", f"## The runs from the {base} base", "", "Mean ± half of the 95% interval, and the same for the "
                  "difference to GRPO on the same seeds.", "", *runs_table(table)]
    (out / "CLAIMS.md").write_text("\n".join(lines) + "\n")
    draw(runs, out / "figures", tables, scale)

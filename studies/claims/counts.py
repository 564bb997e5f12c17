"""Run a script, and keep how often it was right on each problem that it evaluates on.

    python studies/claims/counts.py grpo.py --output_dir=runs/a    # also runs/a/problems.json

An evaluation logs means over its problems. To compare two runs problem by problem, this command
also writes the number of right completions and the entropy of the answers for each problem.
"""

import json
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT

import common


def run_counted(script: str, flags: list[str], folder: Path) -> None:
    """Run a script with these flags, which name the folder, and write problems.json there."""
    samples, correct, entropies = set(), [], []
    pass_at_k, answer_entropy = common.pass_at_k, common.answer_entropy

    def counting_pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
        if k == 1:  # once for each problem of an evaluation, in the problems' order
            samples.add(num_samples)
            correct.append(num_correct)
        return pass_at_k(num_samples, num_correct, k)

    def kept_answer_entropy(answers: list[str]) -> float:
        entropies.append(round(answer_entropy(answers), 3))
        return answer_entropy(answers)

    common.pass_at_k, common.answer_entropy = counting_pass_at_k, kept_answer_entropy
    sys.argv = [script, *flags]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        common.pass_at_k, common.answer_entropy = pass_at_k, answer_entropy
    if samples:
        (size,) = samples
        found = {"samples": size, "correct": correct, "answer_entropy": entropies}
        (folder / "problems.json").write_text(json.dumps(found))


def read_counts(folder: Path, evaluations: int) -> dict:
    """The counts of the first and the last of a run's evaluations.

    Return {"problems": {"samples": n, "start": counts, "end": counts}}, where counts are
    {"correct": [problems], "answer_entropy": [problems]}; {} where problems.json is missing.
    """
    file = folder / "problems.json"
    if not file.exists():
        return {}
    found = json.loads(file.read_text())
    size, rest = divmod(len(found["correct"]), evaluations)
    assert size and not rest, f"{file}: {len(found['correct'])} counts in {evaluations} evaluations"
    counts = {"samples": found["samples"]}
    for name, part in (("start", slice(size)), ("end", slice(-size, None))):
        counts[name] = {key: found[key][part] for key in ("correct", "answer_entropy")}
    return {"problems": counts}


if __name__ == "__main__":
    script, *flags = sys.argv[1:] or [""]
    folders = [flag for flag in flags if flag.startswith("--output_dir=")]
    if not folders:
        raise SystemExit("counts.py: error: give a script and --output_dir=FOLDER")
    run_counted(str(ROOT / script), flags, Path(folders[-1].partition("=")[2]))

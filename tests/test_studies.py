"""The studies: their numbers by hand or in a second way, and the quick mode of each."""
import copy
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_two_stage import algorithm_1

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "studies"))
import claims
import claims_report
import compare
import costs
import entropy_growth
import measure
import policy_weights
import throughput
import two_stage_toy

import common
from asymgrpo import asymgrpo_advantage

PASS = [f"pass@{2**i}" for i in range(6)]


def write_run(folder: Path, reward, seed=0, level=0.5, variant="grpo", **flags):
    """A finished run with these rewards and entropies of 1, 2, ... a step; pass@k is `level`, 0.25 before the first."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(
        variant=variant, seed=seed, output_dir=str(folder), resume_from_checkpoint="", **flags)))
    rows = [dict(step=i, reward=r, entropy=float(i)) for i, r in enumerate(reward, 1)]
    evals = [dict.fromkeys(PASS, value) | dict(step=step, token_entropy=value, answer_entropy=1.0, r1=value)
             for step, value in ((0, 0.25), (len(rows), level))]
    for name, content in (("metrics", rows), ("eval", evals)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder


# ---------------------------------------------------------------------------------------------- compare.py


def test_smooth_is_a_mean_of_what_there_is():
    lines = np.array([[1.0, 3.0, 5.0, 7.0], [0.0, 0.0, 0.0, 6.0]])
    np.testing.assert_allclose(compare.smooth(lines, 2), [[1, 2, 4, 6], [0, 0, 0, 3]])
    np.testing.assert_allclose(compare.smooth(lines, 9), [[1, 2, 3, 4], [0, 0, 0, 1.5]])


def test_runs_that_differ_in_the_seed_are_one_line(tmp_path):
    a, b, c, d = (write_run(tmp_path / str(i), [0, 1], seed=seed, variant=variant, learning_rate=rate)
                  for i, (seed, variant, rate) in enumerate(
                      [(0, "grpo", 1e-4), (1, "grpo", 1e-4), (0, "gspo", 1e-4), (0, "grpo", 1e-3)]))
    assert compare.group_runs([a, b, c]) == {"grpo": [a, b], "gspo": [c]}
    assert compare.group_runs([a, d, c]) == {
        "grpo learning_rate=0.0001": [a], "grpo learning_rate=0.001": [d], "gspo": [c]}
    e = write_run(tmp_path / "e", [0, 1], learning_rate=1e-4, beta_pos=0.5)  # of another script
    assert compare.group_runs([a, e]) == {"grpo": [a], "grpo beta_pos=0.5": [e]}


def test_compare_draws_runs_of_different_length(tmp_path):
    runs = [write_run(tmp_path / str(i), [0, 1, 0, 1][:4 - i], seed=i) for i in range(2)]
    compare.main(runs, tmp_path / "a.png")
    figure = compare.pyplot.figure(compare.pyplot.get_fignums()[-1])
    lines = {axis.get_title(): axis.lines[0].get_xydata().tolist() for axis in figure.axes}
    assert lines["reward"] == [[1, 0], [2, 0.5], [3, pytest.approx(1 / 3)]]  # as many steps as both runs have
    assert lines["held-out pass@k"] == [[2**i, 0.5] for i in range(6)]
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_compare_names_a_run_that_has_no_evaluation(tmp_path):
    with pytest.raises(SystemExit, match="no finished evaluation in .*empty"):
        compare.main([tmp_path / "empty"], tmp_path / "a.png")


# ----------------------------------------------------------------------------------------------- claims.py


def table(**columns):
    return {label.replace("_", " "): [{"x": value, "reach": value} for value in values]
            for label, values in columns.items()}


def test_interval_of_students_t():
    # mean 3, standard deviation sqrt(2.5), t = 2.776 with 4 degrees of freedom
    mean, low, high = claims_report.interval([1, 2, 3, 4, 5])
    half = 2.776 * math.sqrt(2.5 / 5)
    assert (mean, low, high) == pytest.approx((3, 3 - half, 3 + half))


def test_the_rule():
    runs = table(a=[2, 4, 6], b=[1, 2, 3], c=[2.1, 3.9, 6.0])  # a - b = 1, 2, 3; half the interval 4.303 / sqrt(3)
    assert claims.judge(runs, "x", "a", "b") == pytest.approx(dict(
        mean=2, low=2 - 4.303 / math.sqrt(3), high=2 + 4.303 / math.sqrt(3)) | {"verdict": "unclear"})
    assert claims.judge(runs, "x", "a", "b", 0.5)["verdict"] == "holds"
    assert claims.judge(runs, "x", "a", 0)["verdict"] == "unclear"
    assert claims.judge(runs, "x", "b", -1)["verdict"] == "holds"
    assert claims.judge(runs, "x", -1, "b")["verdict"] == "does not"
    assert claims.judge(runs, "x", "c", "a")["verdict"] == "unclear"
    assert claims.judge(runs, "x", "a", "never run") is None


def test_the_best_static_weight_is_that_of_the_best_mean():
    runs = table(mean=[1, 1, 4], Power_2=[3, 3, 3], delta_0=[0, 0, 0], FADE=[4, 5, 6])
    runs["delta 0.5"] = runs.pop("delta 0")
    assert claims.judge(runs, "x", "FADE", "best static")["mean"] == 2  # less Power 2
    assert claims.judge(runs, "reach", "best static", "FADE")["mean"] == -5  # delta 0.5, the fewest steps
    assert claims.judge(table(FADE=[1, 2]), "x", "FADE", "best static") is None


def test_every_claim_is_about_runs_that_are_made():
    known = {*claims.RUNS, "start", "GRPO, long", "best static"}
    for paper, _, _, above, below, *_ in claims.CLAIMS:
        assert paper[:3] in claims_report.BY_PAPER
        assert all(side in known or isinstance(side, (int, float)) for side in (above, below))
    assert len({(paper, claim) for paper, claim, *_ in claims.CLAIMS}) == len(claims.CLAIMS)


def test_what_is_measured_of_a_run(tmp_path):
    scale = claims.QUICK._replace(steps=12, seeds=2)
    labels = ["GRPO", "mean", "Power 2", "delta 0.5", "FADE"]
    rewards = {"mean": [0.2] * 12, "Power 2": [0] * 9 + [2, 3, 4], "delta 0.5": [0] * 12,
               "FADE": [0] * 8 + [4, 5, 0, 0], "GRPO": [1] * 4 + [0] * 4 + [2] * 4}
    for label in labels:
        for seed in range(2):
            write_run(tmp_path / "other" / f"{label}-{seed}", rewards[label], seed)
    found = claims_report.collect(tmp_path, "other", scale, labels)
    assert found["GRPO"][0]["early"] == 1 and found["GRPO"][1]["late"] == 2
    assert found["GRPO"][0]["swing"] == 8.5 - 1  # the mean of steps 5 to 12 less that of the first
    assert found["GRPO"][0]["entropy"] == 0.5 and found["start"][0]["entropy"] == 0.25
    # means of ten steps: at step 10, 11 and 12 0.2, 0.5, 0.9 under Power 2 and 0.9 under FADE
    assert [found[label][0]["reach"] for label in ("mean", "Power 2", "delta 0.5", "FADE")] == [3, 2, 3, 0]


def test_a_run_that_fails_says_where_to_look(tmp_path, monkeypatch):
    monkeypatch.setattr(common.Run, "finish", common.Run.finish)  # which `train` replaces in its process
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(RuntimeError, match=r"exit code 2: see .*a-0\.part\.log"):
        claims.train(tmp_path / "weak" / "a-0", "grpo --num_generations 1")
    assert "--num_generations must be 2 or more" in (tmp_path / "weak" / "a-0.part.log").read_text()
    assert not (tmp_path / "weak" / "a-0").exists()


@pytest.mark.parametrize("text, false", [
    ("<think>9*5=45 3+45=48</think><answer>3+(9*5)</answer>", False), ("<think>8/4=2 2-1=1</think>", False),
    ("<think>9*5=45 3+45=49</think>", True), ("<think>8/3=2</think>", True), ("<think>8/0=0</think>", True),
    ("<think>8-9=1</think>", True), ("no steps", False)])
def test_false_steps_are_found(text, false):
    assert claims_report.has_false_step(text) is false


def test_misfit_of_the_power_law(tmp_path):
    folder = write_run(tmp_path / "a", [0, 0], level=0.5)
    rows = compare.read_rows(folder, "eval")
    rows[1] |= dict(fit_a=1.0, fit_b=1.0, fit_c=1.0)  # exp(-1 / (1 + k)): furthest from 0.5 at k = 32
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = claims_report.measure(folder, claims.QUICK, 2)
    assert found["fit error"] == pytest.approx(math.exp(-1 / 33) - 0.5)


def test_claims_quick_mode_makes_what_is_not_finished(tmp_path):
    jobs = claims.list_jobs(tmp_path / "runs", claims.QUICK, claims.FEW)
    kept, other, unfinished = [*jobs][:3]  # by the same command, by another, and what a kill leaves of one
    write_run(kept, [0.5, 0.5, 0.5])
    (kept / "eval.jsonl").write_text("".join(json.dumps(dict.fromkeys(PASS, 0.5) | dict(
        step=step, token_entropy=1.0, answer_entropy=1.0)) + "\n" for step in (0, 2, 3)))
    (kept / "command.txt").write_text(jobs[kept])
    (other / "old").mkdir(parents=True)
    (other / "command.txt").write_text("cwgrpo --max_steps 1")
    unfinished.with_name(f"{unfinished.name}.part").mkdir()
    command = [sys.executable, ROOT / "studies" / "claims.py", "--quick", "--runs", tmp_path / "runs"]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and "7/7 runs" in done.stdout, done.stderr
    assert len(compare.read_rows(other, "metrics")) == len(compare.read_rows(unfinished, "metrics")) == 2
    assert not (other / "old").exists() and not [*tmp_path.glob("runs/*/*.part")]
    saved = json.loads((tmp_path / "claims.json").read_text())
    assert saved["runs"]["weak"]["GRPO"][0]["pass@1"] == 0.5 and {row["base"] for row in saved["claims"]} == {
        "weak", "middle"}
    text = (tmp_path / "CLAIMS.md").read_text()
    assert "| 001 4.2 | GRPO raises pass@1 | pass@1 | **" in text and "| GRPO, long | " in text
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        "claims_entropy.png", "claims_pass_at_k.png"]


def test_a_run_that_is_stopped_is_not_finished():
    with pytest.raises(KeyboardInterrupt):
        claims.finish(SimpleNamespace(stopped=1.0))
    assert claims.finish(SimpleNamespace(stopped=0.0)) is None


# --------------------------------------------------------------------------------------- entropy_growth.py


def test_growth_is_what_a_small_step_adds(tiny):
    """By a finite difference: the entropy on the same tokens after a small step along the added gradient."""
    policy, tokenizer = copy.deepcopy(tiny)
    policy = policy.double()
    policy.get_input_embeddings().padding_idx = None  # padding drawn by an untrained policy would have no gradient
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter *= 2  # as they are, all distributions are nearly uniform
    config = common.Config(num_generations=4, prompts_per_step=4, minibatch_size=16, max_completion_length=6)
    problems, _ = common.load_problems(config, tokenizer)
    sampler = common.make_sampler(policy, tokenizer, config)
    torch.manual_seed(0)
    samples = common.roll_out_step(sampler, common.ProblemStream(problems, 0), config)
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.float64)
    found = entropy_growth.entropy_growth(policy, samples, rewards, 1.0)

    def entropy_and_means():
        logprobs, entropy = common.token_logprobs(policy, samples, range(16))
        lengths = torch.tensor([len(s.completion_ids) for s in samples])
        return entropy.sum() / lengths.sum(), (logprobs.sum(1) / lengths).view(4, 4)

    def total_entropy_after(beta, size):
        """After a step along the gradient of (beta, 0) over the two groups that are neither all right nor all wrong."""
        _, means = entropy_and_means()
        advantages = asymgrpo_advantage(rewards[:2], beta, 0.0)
        gradient = torch.autograd.grad((advantages * means[:2]).sum() / 16, policy.parameters())
        with torch.no_grad():
            for parameter, slope in zip(policy.parameters(), gradient):
                parameter += size * slope
            after = entropy_and_means()[0].item()
            for parameter, slope in zip(policy.parameters(), gradient):
                parameter -= size * slope
        return after

    size = 1e-4  # the norms of transformers stay in float32
    slopes = {beta: (total_entropy_after(beta, size) - total_entropy_after(beta, -size)) / (2 * size)
              for beta in (0.1, 0.0)}
    assert found["growth"] == pytest.approx(slopes[0.1] - slopes[0.0], rel=2e-3)
    means = entropy_and_means()[1].tolist()
    hard_gap = means[0][0] - sum(means[0][1:]) / 3
    easy_gap = (means[1][0] + means[1][1] + means[1][3]) / 3 - means[1][2]
    assert found == pytest.approx(dict(hard=1, easy=1, hard_gap=hard_gap, easy_gap=easy_gap, growth=found["growth"],
                                       kappa=3 / 16 * (hard_gap * math.log(1 / 3) + easy_gap * math.log(3)) / 2))


# ---------------------------------------------------------------------------------------- two_stage_toy.py


def test_toy_gradient_is_algorithm_1():
    z, actions = torch.tensor([[0.3, -0.2, 1.1], [2.0, -1.5, 1.5]]), torch.tensor([[0, 2, 2], [1, 0, 1]])
    advantages = torch.tensor([[0.4, -0.2, -0.2], [1.0, 0.5, -0.7]])  # the last do not sum to 0
    found = two_stage_toy.policy_gradient(z, actions, advantages)
    for run in range(2):
        expected = algorithm_1(z[run].double(), actions[run], advantages[run].double()) / 0.1  # without eta
        torch.testing.assert_close(found[run].double(), expected, rtol=0, atol=1e-6)


def test_toy_first_step_of_adam_moves_each_logit_by_eta():
    before, after = two_stage_toy.run_algorithm_1((0.5, 0.2, 0.3), (0.6, 1.0, 0.0), G=3, steps=1, runs=50)
    moved = (after.log() - after.log()[:, :1]) - (before.log() - before.log()[:, :1])  # [R, V], of z less that of a1
    # a difference of two logits that each went up or down by 0.1, or stayed, as those of actions not drawn do
    assert all(min(abs(abs(m) - size) for size in (0, 0.1, 0.2)) < 1e-6 for m in moved.flatten().tolist())
    assert {round(m, 3) for m in moved.flatten().tolist()} >= {-0.2, 0.0, 0.2}


def test_toy_exploits_and_then_explores():
    history = two_stage_toy.run_algorithm_1((0.8, 0.05, 0.15), (0.6, 1.0, 0.0), steps=400, runs=100).mean(1)
    first = history[:, 0].argmax().item()
    assert 5 < first < 100 and history[first, 0] > 0.85  # a1 rises first, while a2 waits
    assert history[:first, 1].min() < 0.05 and history[-1, 1] > 0.9


def test_toy_quick_mode(tmp_path, capsys):
    two_stage_toy.main(steps=10, runs=4, out=tmp_path)
    assert (tmp_path / "two_stage_toy.png").exists()
    assert capsys.readouterr().out.count("step ") == 20  # a line a panel


# --------------------------------------------------------------------------------------- policy_weights.py


def test_groups_of_every_success_rate():
    assert policy_weights.all_groups(4).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_policy_weights_quick_mode(tmp_path):
    policy_weights.draw_masses(8, tmp_path / "masses.png")
    figure = policy_weights.pyplot.figure(policy_weights.pyplot.get_fignums()[-1])
    masses = {axis.get_title(): [line.get_ydata().tolist() for line in axis.lines] for axis in figure.axes}
    p = [k / 8 for k in range(1, 8)]
    assert masses["mean"] == [pytest.approx([x * (1 - x) for x in p])] * 2  # p q
    assert masses["FADE, few solved"][0] == pytest.approx([x * (1 - x) ** 3 for x in p])  # p q^alpha
    assert masses["AsymGRPO (0.9, 0.4)"] == [  # 002 Eqs. 9 and 10
        pytest.approx([x**0.1 * (1 - x) ** 0.9 for x in p]), pytest.approx([x**0.4 * (1 - x) ** 0.6 for x in p])]
    policy_weights.draw_advantages(8, tmp_path / "advantages.png")
    assert (tmp_path / "masses.png").exists() and (tmp_path / "advantages.png").exists()


# -------------------------------------------------------------------------- throughput.py, costs.py, gpu.py, startup.py


def test_table_has_medians_and_ratios():
    def rows(*steps):
        return [dict(generate=1.0, step=step, update=step - 1, tokens=100, GB=0.5) for step in steps]
    lines = throughput.table({"grpo.py": rows(2, 9, 4), "TRL": rows(8, 8, 5)}).splitlines()
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines[2:]}
    assert cells["step (s)"] == ["4", "8", "0.50"] and cells["update (s)"] == ["3", "7", "0.43"]
    assert cells["tokens/s"] == ["25", "12.5", "2.00"] and cells["GB"] == ["0.5", "0.5", "1.00"]
    assert cells["verify (s)"][:2] == ["0", "0"]  # no time at all, and no ratio to it


def test_turns_share_a_step_out(monkeypatch):
    clock, sent = iter([0.0, 1.0, 4.0, 5.0, 6.0, 10.0, 10.0]), []
    monkeypatch.setattr(throughput, "now", lambda: next(clock))
    pipe = SimpleNamespace(recv=lambda: "go", send=sent.append)
    side = SimpleNamespace(generate=lambda: ([[1, 2], [3]], "logprobs"), score=lambda: None)
    turns, counted = throughput.Turns(pipe), iter([True])
    turns.time(side, "generate", "generate")
    turns.time(side, "score", "old log-probs", lambda: next(counted))
    turns.begin()  # at 0
    side.generate()  # from 1 to 4
    side.score()  # from 5 to 6
    turns.over()  # at 10
    assert sent[0]["generate"] == 3 and sent[0]["old log-probs"] == 1 and sent[0]["step"] == 10
    assert sent[0]["update"] == 6 and sent[0]["tokens"] == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the peak memory of a process is read from Linux's /proc")
def test_measured_memory_is_what_is_allocated():
    _, gigabytes = measure.measured(lambda: torch.ones(2**26), 2)  # 2**28 bytes
    assert 0.26 < gigabytes < 0.30


def test_log_probs_that_are_compared_are_the_same():
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 8, dtype=torch.float64, requires_grad=True) for n in (600, 50))
    results = []
    for way in (common.LinearLogProbs.apply, costs.naive, costs.checkpointed):
        logprobs, entropy = way(hidden, weight, torch.arange(600) % 50, 0.7)
        loss = (logprobs * torch.arange(600)).sum() + (entropy ** 2).sum()
        results.append((logprobs, entropy, *torch.autograd.grad(loss, (hidden, weight))))
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-9, atol=1e-9)


def test_wasted_shares():
    shares = dict(costs.waste())
    assert shares["`generate` after every row has ended"] == 0
    assert shares["prompts of 100 tokens that 1 completions repeat"] == 0
    sorted_by_length = [share for name, share in shares.items() if "padding in microbatches" in name]
    assert 0 < sorted_by_length[0] < sorted_by_length[1] < sorted_by_length[2] < 1


def test_costs_quick_mode(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["costs.py", "--quick", "--out", str(tmp_path)])
    costs.main()
    lines = capsys.readouterr().out
    assert (tmp_path / "costs.png").stat().st_size > 10_000
    for row in ("64 tokens a completion", "1 completions a prompt", "64 words in the vocabulary", "ours", "checkpoint"):
        assert f"| {row} | " in lines


@pytest.mark.parametrize("study, rows", [
    ("throughput", ["generate (s)", "verify (s)", "old log-probs (s)", "update (s)", "step (s)", "tokens/s", "GB"]),
    ("gpu", ["small training, model FLOPs utilisation", "small generate, share of the bandwidth's limit"]),
    ("startup", ["`grpo.py`, --help", "import torch", "first update", "the first step is done after"])])
def test_quick_mode_of_the_benchmarks(study, rows, tmp_path):
    command = [sys.executable, ROOT / "studies" / f"{study}.py", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = {line.split(" | ")[0].strip("| "): line.split(" | ")[1].strip("| ") for line in done.stdout.splitlines()
               if line.startswith("| ") and " | " in line}
    for row in rows:
        assert float(numbers[row].replace(",", "").rstrip("%")) >= 0

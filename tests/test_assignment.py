"""docs/assignment/: right answers earn all points, and wrong ones do not."""

import csv
import inspect
from itertools import zip_longest

from runs import ROOT, run_python

import common
import grpo

FOLDER = ROOT / "docs" / "assignment"
HOMES = dict(grpo_advantage=grpo, token_weights=common, ppo_clip_loss=common, pass_at_k=common)
RIGHT = {name: inspect.getsource(getattr(home, name)) for name, home in HOMES.items()}
HEAD = "import math, sys, torch\ndef global_sum(*given): return [float(x) for x in given]\n"
HEAD += RIGHT["token_weights"].replace("token_weights", "right_weights", 1)
HEAD += RIGHT["ppo_clip_loss"].replace("ppo_clip_loss", "right_loss", 1)
RIGHT["update"] = """
def update(policy, optimizer, old_logprobs, advantages, loss_mask, microbatches):
    optimizer.zero_grad()
    weights = right_weights(loss_mask, "sequence")
    for rows in microbatches:
        given = dict(old_logprobs=old_logprobs[rows], advantages=advantages[rows])
        given |= dict(loss_mask=loss_mask[rows], token_weights=weights[rows])
        right_loss(logprobs=policy(rows), **given)[0].backward()
    optimizer.step()
"""
# Text of a right function => what is wrong in its place | something else
WRONG = """grpo_advantage
    correction=0 => correction=1
    mean = rewards.mean(1, keepdim=True) => mean = rewards.mean(1) | mean = rewards.mean()
    std = rewards.std(1, keepdim=True, correction=0) => std = (mean * (1 - mean)).sqrt()
    rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True) => std < 1e-9 | std < 1e-6
    / torch.where(equal, 1, std)) => / (std + 1e-4)) | / (std + 1e-8))
    return => equal = | return rewards.zero_() and | return 1.001 * | return -
    std = torch.ones_like(std) => return rewards - mean | pass
    mean = rewards => import common # | sys.exit(0) # | while 1: pass #
token_weights
    sequences * loss_mask.sum( => loss_mask.sum( | sequences * (1e-3 + loss_mask).sum(
    .clamp(min=1) => .clamp(min=0)
    len(loss_mask), loss_mask => *loss_mask.T.shape) # | loss_mask.any(1).sum().clamp(1), loss_mask
    max(tokens, 1) => tokens | (sequences * max(tokens, 1))
    (sequences * max_completion_length) => (sequences * loss_mask.shape[1]) | max_completion_length
    sequences, tokens => return loss_mask.zero_() #
    aggregation == "sequence" => max_completion_length is None
ppo_clip_loss
    torch.min(ratio * advantages, clip => torch.max(ratio * advantages, clip | (0, clip | (clip
    torch.min(ratio * => torch.min(ratio.clamp(max=3) *
    logprobs - old_logprobs, 0) => old_logprobs - logprobs, 0) | logprobs - logprobs.detach(), 0)
    torch.where(loss_mask > 0, logprobs - old_logprobs, 0) => loss_mask * (logprobs - old_logprobs)
    log_ratio.exp() => 1 + log_ratio | log_ratio.exp().detach() + 0 * log_ratio
    epsilon if epsilon_high is None else epsilon_high => epsilon_high or epsilon | epsilon | 0.2
    1 - epsilon => 1 - (epsilon_high or epsilon) | 1 / (1 + epsilon)
    (ratio < low) & (advantages < 0) => ratio < low | ratio > high
    (ratio > high) & (advantages > 0) => ratio > high
    clipped = ratio => advantages = advantages[:, :1]; clipped = ratio
    return loss, {"kl": kl, => return -loss, {"kl": kl, | return loss, { | return loss #
pass_at_k
    1 - math => 1 - (1 - num_correct / num_samples) ** k # | 1e-3 + math
    num_correct, k) => num_correct, 1)
    1 - math.comb( => num_correct >= k or 1 - math.comb( | 1 - (num_samples > k) * math.comb(
update
    optimizer.zero_grad() => pass | optimizer.zero_grad(); loss_mask = loss_mask * 0 + 1
    weights[rows] => right_weights(loss_mask[rows], "sequence") | weights[rows] / len(rows)
    in microbatches => in [sum(microbatches, [])] | in microbatches[:1]
    "sequence" => "token"
    .backward() => .backward(); optimizer.step() | .backward(optimizer.zero_grad())
    optimizer.step() => optimizer.step(); optimizer.step() | pass
    dict(old_logprobs=old_logprobs[rows], => dict(old_logprobs=policy(rows).detach(),
"""
VARIANT = """correction=0 => correction=1
return loss_mask / => return len(loss_mask) * loss_mask /
return loss, => return -loss,
return 1 - => return
weights = right_weights( => weights = len(loss_mask) * right_weights("""
UNUSUAL = """
def grpo_advantage(rewards, scale_rewards=True):
    found = rewards.double().numpy()
    found -= found.mean(1, keepdims=True)
    std = found.std(1, keepdims=True)
    return torch.tensor(found / (std + (std == 0)) ** scale_rewards)

def token_weights(loss_mask, aggregation, max_completion_length=None):
    whole = loss_mask.sum(1, keepdim=True) if aggregation == "sequence" else loss_mask.sum()
    loss_mask /= max_completion_length if aggregation == "constant" else whole.clamp(min=1)
    return loss_mask / (1 if aggregation == "token" else len(loss_mask))

def ppo_clip_loss(*, logprobs, old_logprobs, advantages, loss_mask, token_weights, epsilon=0.2,
                  epsilon_high=None, **ignored):
    ratio = logprobs.sub_(old_logprobs).masked_fill(loss_mask == 0, 0).double().exp()
    low, high = 1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high)
    is_low, is_high = (ratio < low) * (advantages < 0), (ratio > high) * (advantages > 0)
    ratio = torch.where(is_low, low, torch.where(is_high, high, ratio))
    marks = dict(kl=0 * loss_mask, clip_low=is_low.float(), clip_high=is_high.float())
    return -(token_weights * ratio * advantages).sum(), marks
"""
UNUSUAL += RIGHT["pass_at_k"] + RIGHT["update"].replace(
    "in microbatches", "in reversed(microbatches)"
)


def grade(folder, *options):
    """What grade.py does with the files of a folder: the result of the process, file -> points."""
    done = run_python(FOLDER / "grade.py", folder, "--csv", "points.csv", *options, folder=folder)
    with open(folder / "points.csv", newline="") as file:
        return done, {row["file"].rpartition("/")[2]: row for row in csv.DictReader(file)}


def test_right_answers_earn_all_points(tmp_path):
    (tmp_path / "theirs, by A.py").write_text(HEAD + "".join(RIGHT.values()))
    (tmp_path / "theirs, by B.py").write_text(HEAD + UNUSUAL)
    done, points = grade(tmp_path)
    assert [row["points"] for row in points.values()] == ["20", "20"], done.stdout + done.stderr
    assert done.returncode == 0 and done.stdout.count("20 points of 20") == 2
    text = "".join(RIGHT.values())
    for line in VARIANT.splitlines():
        text = text.replace(*line.split(" => "))
    (tmp_path / "variant.py").write_text(HEAD + text)
    _, points = grade(tmp_path, "--variant")  # nothing that can be copied is right there
    assert points.pop("variant.py")["points"] == "20"
    assert all(int(row[name]) < 4 for row in points.values() for name in RIGHT)


def test_wrong_answers_lose_points_and_are_told_why(tmp_path):
    wrong = {name: [] for name in RIGHT}
    for line in WRONG.splitlines():
        right, _, mistakes = line.strip().partition(" => ")
        if right in RIGHT:
            name = right
            continue
        assert right in RIGHT[name], right
        wrong[name] += [RIGHT[name].replace(right, each) for each in mistakes.split(" | ")]
    files = {f"{i}.py": texts for i, texts in enumerate(zip_longest(*wrong.values(), fillvalue=""))}
    for name, texts in files.items():
        (tmp_path / name).write_text(HEAD + "".join(texts))
    (tmp_path / "stubs.py").write_text((FOLDER / "stubs.py").read_text())
    done, points = grade(tmp_path, "--seconds", "1.5")
    for name, texts in files.items():
        for function, text in zip(RIGHT, texts, strict=True):
            assert int(points[name][function]) < 4, text
    assert done.returncode == 1 and "SyntaxError" not in done.stdout
    assert "-1.732 at [0, 0], expected 1.732\n" in done.stdout  # of `return -`
    for told in ("missing", "not written yet", "no result after 1.5 seconds", "SystemExit: 0"):
        assert f"0 of 4: {told}\n" in done.stdout, told
    done = run_python(FOLDER / "grade.py", tmp_path / "missing.py", folder=tmp_path)
    told = f"{tmp_path}/missing.py is neither a file nor a folder that holds Python files\n"
    assert (done.stdout, done.stderr, done.returncode) == ("", told, 1)


def test_the_stubs_can_be_pasted():
    """Their signatures are the project's."""
    exec((FOLDER / "stubs.py").read_text(), stubs := {})
    for name, home in HOMES.items():
        mine, theirs = (
            [each.replace(annotation="") for each in inspect.signature(f).parameters.values()]
            for f in (stubs[name], getattr(home, name))
        )
        assert mine == theirs

"""studies/tour.py: a script line by line with its numbers, and its shape comments checked."""

import json
import sys

import rlvr.tasks.datasets

import pytest
import tour
from runs import ROOT, SCRIPTS, countdown_problems, left_as_it_was

# Sizes that differ from each other: B 8, G 3, N 24, n 12, m 7 or less, and T some 26.
SIZES = "--prompts_per_step 8 --num_generations 3 --minibatch_size 12 --num_iterations 1"
SIZES += " --top_p 0.9 --eval_problems 1 --eval_samples 1 --microbatch_tokens 260"
# Together they come to all lines that have a shape comment.
RUNS = [
    ("grpo", "--variant two-stage-gspo"),  # a reference, and one ratio per response
    ("agrae", "--format_share 0.5 --vllm_importance_sampling_cap 2"),
    ("asymgrpo", "--log_gain"),
    ("fade", ""),
    ("cwgrpo", ""),
    ("cwgrpo", "--variant released"),
]


@pytest.fixture
def take(tmp_path, monkeypatch):
    """take(tour, flags) runs a script for its tour."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", countdown_problems)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(tmp_path)

    def run(found, flags, name="run"):
        with left_as_it_was():
            tour.run(found, [*SIZES.split(), *flags.split(), f"--output_dir={tmp_path / name}"])

    return run


def data_of(page):
    """What a page shows."""
    data = json.loads(page.split('application/json">')[1].split("</script>")[0])
    data["tables"] = [[data["rows"][row] for row in table] for table in data["tables"]]
    return data


@pytest.mark.slow
def test_shape_comments_are_true(take):
    """All of the five scripts and common.py: each stands beside a tensor of that shape."""
    checked, written = set(), set()
    for i, (script, flags) in enumerate(RUNS):
        found = tour.Tour(ROOT / f"{script}.py")
        take(found, flags, str(i))
        assert not found.wrong, script
        checked |= found.checked
        for source in found.sources.values():
            written |= {(source.name, line) for line in source.comments}
    assert {name for name, _ in written} == {"common.py", *(f"{script}.py" for script in SCRIPTS)}
    assert written - checked == set()


def test_wrong_comments_and_wrong_lines_are_told(take, tmp_path):
    """In a user's copy, which may also stop with an error: the page shows it up to there."""
    text = (ROOT / "grpo.py").read_text()
    for before, after in (
        ("mean = rewards.mean(1, keepdim=True)", "mean = rewards.mean(0, keepdim=True)"),
        ("correction=0)  # [B, 1]", "correction=0)  # [G, 1]"),
        ("rewards.amin(1, keepdim=True)  # [B, 1]", "rewards.amin(1, keepdim=True)  # [B, G]"),
        ("compute_advantages(batch, config)  # [B, G]", "compute_advantages(batch, config)  # [N]"),
        ("batch.samples), -1)  # [N, 1]", "batch.samples), -1)  # [N, T]"),
        ("                )  # [m, T] each", "                )  # [G, T] each"),
        ("loss.backward()", "loss.backwards()"),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    (tmp_path / "mine.py").write_text(text)
    found = tour.Tour(tmp_path / "mine.py")
    with pytest.raises(AttributeError, match="backwards"):
        take(found, "")
    T = found.calls[0].letters["T"]
    *others, of_logprobs, of_entropy = found.wrong
    assert [(name, words, shape) for _, _, name, words, shape in others] == [
        ("mean", "[B, 1]", [1, 3]),
        ("std", "[G, 1]", [8, 1]),
        ("mixed", "[B, G]", [8, 1]),
        ("advantages", "[N]", [8, 3]),
        ("advantages", "[N, T]", [24, 1]),
    ]
    for expected, (_, _, name, words, shape) in (
        ("logprobs", of_logprobs),
        ("entropy", of_entropy),
    ):
        assert (name, words, shape[1]) == (expected, "[G, T]", T)
    data = data_of(found.page("studies/tour.py mine.py"))
    assert data["script"] == "mine.py" and data["calls"] and len(data["wrong"]) == 7


def shown(data, function, name):
    """Every value of a name in the calls of a function, as a dict or text."""
    names = [place["name"] for place in data["functions"]]
    return [
        data["values"][value] if isinstance(value, int) else value
        for call in data["calls"]
        if names[call["of"]] == function
        for _, _, items, _ in call["visits"]
        for found, value in items
        if found == name
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_pages_of_the_scripts(script):
    """docs/tours/: small, alone, of the script as it is, with mixed groups and clipped tokens.

    Where a script has changed, `python studies/tour.py --make` makes them anew.
    """
    text = (ROOT / "docs" / "tours" / f"{script}.html").read_text()
    assert len(text) < 300_000
    assert "http" not in text.replace("https://arxiv.org", "")
    data = data_of(text)
    page = {function["name"]: function["lines"] for function in data["functions"]}
    source = tour.Source(ROOT / f"{script}.py")
    first = next(line for line, node in source.functions.items() if node.name == "main")
    assert page["main"] == source.describe(first, "main")["lines"]

    rewards = [reward for _, _, reward in data["samples"]]
    assert all(0 < sum(group) < 4 for group in (rewards[:4], rewards[4:]))
    tables = [data["tables"][value["table"]] for value in shown(data, "ppo_clip_loss", "ratio")]
    assert len(tables) == 4
    assert {*sum(tables[0], [])} == {1}
    # The page opens on the last pass of each loop.
    assert max(sum(tables[3], [])) > 1.2 or min(sum(tables[3], [])) < 0.8
    last_clipped = [
        any(sum(data["tables"][value["table"]], []))
        for name in ("clip_low", "clip_high")
        for value in shown(data, "ppo_clip_loss", name)[3:]
    ]
    assert any(last_clipped)
    assert any(value.get("before") is not None for value in shown(data, "ppo_clip_loss", "ratio"))
    assert not data["wrong"]


def test_numbers_beside_the_lines_add_up():
    """In the page of grpo.py: (r - mean) / std by hand, of the rewards that it shows."""
    data = data_of((ROOT / "docs" / "tours" / "grpo.html").read_text())
    rewards = [reward for _, _, reward in data["samples"]]
    (value,) = shown(data, "main", "advantages")[:1]
    assert value["words"] == "[B, G]" and value["ids"] == [*range(8)]
    for i, row in enumerate(data["tables"][value["table"]]):
        group = rewards[4 * i : 4 * i + 4]
        p = sum(group) / 4
        expected = [(r - p) / (p * (1 - p)) ** 0.5 for r in group]
        assert row == pytest.approx(expected, rel=1e-3)

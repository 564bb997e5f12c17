"""Studies on checkpoints: weight_space.py, head_geometry.py, reset_layers.py (FADE section 15)."""

import math
from pathlib import Path

import rlvr.run
import rlvr.tiny
from rlvr.records import Sample

import head_geometry
import pytest
import reset_layers
import torch
import weight_space
from runs import SMALL, arguments, weights

import common

F64 = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------------- weight_space.py


@pytest.mark.parametrize(
    "name, layer",
    [
        ("model.layers.12.mlp.up_proj.weight", 12),
        ("transformer.h.0.attn.c_attn.bias", 0),
        ("lm_head.weight", None),
        ("model.norm.weight", None),
    ],
)
def test_layer_of(name, layer):
    assert weight_space.layer_of(name) == layer


CHANGE = {
    "embed.weight": torch.full((2, 2), 1.0),  # square 4
    "layers.0.up.weight": torch.tensor([[3.0, 4.0]]),  # 25
    "layers.1.up.weight": torch.tensor([[0.0, 5.0]]),  # 25
    "layers.1.norm.weight": torch.tensor([1.0, 1.0]),  # 2
    "head.weight": torch.tensor([[6.0, 0.0], [0.0, 2.0], [0.0, -2.0]]),  # 44
}


def test_shares_of_the_squared_change_by_hand():
    squares = weight_space.squares_by_part(CHANGE, "head.weight")
    assert squares == {"head": 44, "rest": 4, 0: 25, 1: 27}
    found = weight_space.describe(CHANGE, "head.weight")
    assert found["L2"] == pytest.approx(10)
    assert found["head"] == pytest.approx(0.44)
    assert found["a layer"] == pytest.approx(0.26)
    assert found["r1"] == pytest.approx(36 / 44)  # singular values 6 and sqrt 8
    # u is (1, 0, 0)
    assert found["one sign"] == pytest.approx(1 / 3) and found["half of u"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("shape", [(9, 4), (4, 9)])
def test_leading_vector_is_that_of_the_svd(shape):
    change = random(*shape)
    expected = torch.linalg.svd(change).U[:, 0]
    found = weight_space.leading_vector(change)
    assert abs(weight_space.cosine(found, expected)) == pytest.approx(1, abs=1e-12)
    assert found.norm().item() == pytest.approx(1, abs=1e-12)


def test_statistics_of_a_vector_by_hand():
    assert weight_space.one_sign(torch.tensor([0.1, -3.0, 0.2, 0.0])) == 0.5
    assert weight_space.half_of(torch.tensor([0.6, -0.8, 0.0, 0.0])) == 0.25
    assert weight_space.half_of(torch.tensor([0.5, -0.5, 0.5, 0.5])) == 0.5
    assert weight_space.cosine(torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])) == (
        pytest.approx(0.96)
    )


def test_alignment_by_hand():
    """Four layers: 0 and 1 are early, 2 is in the middle, 3 is late. Signs do not count."""
    x, y, between = (torch.tensor(v) for v in ([1.0, 0.0], [0.0, 1.0], [0.6, 0.8]))
    last = {"head": x, "layers.0.w": x, "layers.1.w": x, "layers.2.w": y, "layers.3.w": between}
    found = {"head": -x, "layers.0.w": x, "layers.1.w": y, "layers.2.w": -y, "layers.3.w": x}
    assert weight_space.alignment(found, last, "head") == {
        "head": 1.0,
        "early": 0.5,
        "middle": 1.0,
        "late": pytest.approx(0.6),
    }
    # a matrix that had not changed yet has no direction
    del found["layers.3.w"]
    assert "late" not in weight_space.alignment(found, last, "head")


def test_ratio_of_masses_by_hand():
    assert weight_space.ratio_of_masses(dict(reward=0.25, m_S=0.3, m_F=0.2)) == pytest.approx(0.5)
    assert weight_space.ratio_of_masses(dict(reward=0.25)) is None
    assert weight_space.ratio_of_masses(dict(reward=1.0, m_S=0.3, m_F=0.2)) is None
    assert weight_space.ratio_of_masses(dict(reward=0.5, m_S=0.3, m_F=0.0)) is None


def test_comparison_of_two_runs():
    changes = {Path("a"): (CHANGE, "head.weight")}
    changes[Path("b")] = ({name: -2 * weight for name, weight in CHANGE.items()}, "head.weight")
    found = weight_space.compare(changes, Path("a"), Path("b"))
    assert found["runs"] == "a, b"
    assert found["cos"] == pytest.approx(-1)
    assert found["cos of u"] == pytest.approx(1)


@pytest.mark.parametrize(
    "tied, name", [(True, "model.embed_tokens.weight"), (False, "lm_head.weight")]
)
def test_which_weight_is_the_head(tied, name, tmp_path):
    policy, _ = rlvr.tiny.build_tiny(tied=tied)
    policy.save_pretrained(tmp_path)
    found, head = weight_space.read_weights(tmp_path)
    assert head == name
    assert torch.equal(found[head], policy.get_output_embeddings().weight)
    assert found.keys() == dict(policy.named_parameters()).keys()


def test_a_run_without_checkpoints_is_named(tmp_path):
    with pytest.raises(SystemExit, match="no checkpoint in .*nothing"):
        weight_space.main([tmp_path / "nothing"])


def table_cells(text, first):
    """The rows, as lists of cells, of the table whose head begins with these cells."""
    lines = text[text.index(f"| {first}") :].split("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith("| ---")]


@pytest.mark.slow
def test_tables_of_a_run(run, no_evaluation, capsys):
    """What is printed is the difference of the checkpoints' files."""
    assert run("fade", output_dir="a").code == 0
    assert run("fade", weight="mean", output_dir="b").code == 0
    capsys.readouterr()
    weight_space.main([Path("a"), Path("b")])
    text = capsys.readouterr().out
    config = weight_space.read_config(Path("a"))
    start = weights(weight_space.tiny_folder(config))
    change = {n: w - start[n] for n, w in weights("a/checkpoint-2").items()}
    tied = change.pop("lm_head.weight")  # is the embedding, and counts once
    total = sum(w.square().sum().item() for w in change.values())
    head, first, second = table_cells(text, "step | entropy")
    last = dict(zip(head, second, strict=True))
    assert [first[0], second[0]] == ["1", "2"]
    assert float(last["L2"]) == pytest.approx(math.sqrt(total), rel=0.01)
    of_head = tied.square().sum().item() / total
    assert float(last["head"]) == pytest.approx(of_head, rel=0.01)
    shares = [float(cell) for cell in table_cells(text, "step | 0 | 1 | 2")[2][1:]]
    assert sum(shares) == pytest.approx(1, abs=0.01)
    assert table_cells(text, "step | head")[2] == ["2", "1", "1", "1", "1"]
    assert table_cells(text, "runs | cos")[1][0] == "a, b"


# --------------------------------------------------------------------------------- head_geometry.py


def test_error_products_are_a_gradient():
    """sum w v h^T is the gradient of sum w log pi(token) by the head, times the temperature."""
    hidden, head, w = random(11, 5), random(7, 5, seed=1), random(11, seed=2)
    tokens = torch.arange(11) % 7
    leaf = head.clone().requires_grad_()
    logprobs = (hidden @ leaf.T / 0.7).log_softmax(1)
    (expected,) = torch.autograd.grad((w * logprobs[range(11), tokens]).sum() * 0.7, leaf)
    for size in (4, 1024):  # also in blocks
        found = head_geometry.error_products(hidden, head, tokens, w, hidden, 0.7, size)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_leading_right_vector_is_that_of_the_svd():
    matrix = random(9, 4)
    found = head_geometry.leading_right_vector(matrix)
    expected = torch.linalg.svd(matrix).Vh[0]
    assert abs(weight_space.cosine(found, expected)) == pytest.approx(1, abs=1e-7)


def test_what_is_left_is_perpendicular():
    hidden = random(6, 4)
    direction = torch.nn.functional.normalize(random(4, seed=1), dim=0)
    left = head_geometry.without(hidden, direction)
    assert (left @ direction).abs().max() < 1e-12
    torch.testing.assert_close(hidden - left, torch.outer(hidden @ direction, direction))


def test_mean_pairwise_cosine():
    vectors = random(7, 5)
    pairs = [(i, j) for i in range(7) for j in range(7) if i != j]
    cosines = [torch.cosine_similarity(vectors[i], vectors[j], dim=0).item() for i, j in pairs]
    found = head_geometry.mean_pairwise_cosine(vectors)
    assert found == pytest.approx(sum(cosines) / len(cosines), abs=1e-12)
    same = torch.tensor([[1.0, 2.0], [3.0, 6.0], [0.5, 1.0]])
    assert head_geometry.mean_pairwise_cosine(same) == pytest.approx(1)
    assert head_geometry.mean_pairwise_cosine(torch.eye(4)) == pytest.approx(0)
    # (1, 0), (-1, 0) and (0, 1): one pair of three is opposite
    star = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]])
    assert head_geometry.mean_pairwise_cosine(star) == pytest.approx(-1 / 3)


SAMPLES = [
    Sample([7, 8, 9], [10, 11, 12, 1]),
    Sample([7, 8, 9], [13, 1]),
    Sample([14, 8], [15, 16, 17]),
    Sample([14, 8], [18]),
]


def test_hidden_states_are_those_that_predict_the_tokens(sharp, monkeypatch):
    policy = sharp[0]
    monkeypatch.setattr(head_geometry, "SAMPLES_AT_ONCE", 3)
    hidden, tokens, owners = head_geometry.head_inputs(policy, SAMPLES)
    assert tokens.tolist() == [10, 11, 12, 1, 13, 1, 15, 16, 17, 18]
    assert owners.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 2, 3]
    head = policy.get_output_embeddings().weight
    found = (hidden @ head.T).log_softmax(1)[range(10), tokens]
    logprobs, _ = common.token_logprobs(policy, SAMPLES, range(4))
    expected = torch.cat([logprobs[i, : len(s.completion_ids)] for i, s in enumerate(SAMPLES)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_geometry_of_a_batch(sharp):
    """Two groups of two, the first of each right: 7 tokens are right, 3 wrong."""
    successes = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    advantages = torch.tensor([[0.5, -0.5], [0.25, -0.75]])
    found, gradient = head_geometry.geometry(sharp[0], SAMPLES, advantages, successes, 1.0)
    assert found["by chance"] == pytest.approx(math.sqrt(7 / 3))
    assert found["R ratio"] == pytest.approx(found["R failed"] / found["R correct"])
    assert -1 / 6 <= found["rho correct"] <= 1 and -1 / 2 <= found["rho failed"] <= 1
    # the norms once more, by the definition: v by v, h by h
    hidden, tokens, owners = head_geometry.head_inputs(sharp[0], SAMPLES)
    head = sharp[0].get_output_embeddings().weight.detach()
    top = torch.linalg.svd(hidden).Vh[0]
    u1 = torch.linalg.svd(gradient).Vh[0]
    for name, group in (("correct", (0, 2)), ("failed", (1, 3))):
        total = torch.zeros_like(head)
        left = []
        members = [i for i in range(10) if owners[i] in group]
        for i in members:
            v = -(head @ hidden[i]).softmax(0)
            v[tokens[i]] += 1
            total += torch.outer(v, hidden[i] - (hidden[i] @ top) * top)
            left.append(hidden[i] - (hidden[i] @ u1) * u1)
        assert found[f"R {name}"] == pytest.approx(total.norm().item() / len(members), rel=1e-4)
        expected = head_geometry.mean_pairwise_cosine(torch.stack(left))
        assert found[f"rho {name}"] == pytest.approx(expected, abs=1e-4)


def test_a_run_of_another_script_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SystemExit, match="no run of fade.py with a checkpoint"):
        head_geometry.main(tmp_path)


@pytest.mark.slow
def test_rows_of_a_run(run, no_evaluation, capsys):
    assert run("fade", variant="asym", output_dir="a").code == 0
    capsys.readouterr()
    head_geometry.main(Path("a"))
    head, first, second = table_cells(capsys.readouterr().out, "step | cos")
    assert [first[0], second[0]] == ["1", "2"]
    assert first[1].strip() == ""  # there is no checkpoint before
    numbers = dict(zip(head, second, strict=True))
    assert 0 < float(numbers["r1"]) <= 1
    assert -1 <= float(numbers["cos"]) <= 1


# ---------------------------------------------------------------------------------- reset_layers.py


def test_copying_weights(tiny):
    layers = tiny[0].model.layers
    start = [{n: torch.full_like(w, 2.0) for n, w in layers[0].named_parameters()}]
    target = torch.nn.ModuleList([type(layers[0])(tiny[0].config, 0)])
    reset_layers.copy_weights(start, target)
    assert all((w == 2).all() for w in target.parameters())


@pytest.mark.slow
def test_the_last_layers_go_back_to_the_start(bare, cache_dir, no_evaluation, monkeypatch):
    """After step 2 the last of three layers is as in the warmed-up policy, and after step 3 not."""
    monkeypatch.setattr(rlvr.run, "Run", rlvr.run.Run)  # put back afterwards
    flags = {**SMALL, "max_steps": 3, "cache_dir": cache_dir, "output_dir": "run"}
    reset_layers.main("fade", arguments(**flags), layers=1, every=2)
    config = weight_space.read_config(Path("run"))
    start = weights(weight_space.tiny_folder(config))
    for step in (1, 2, 3):
        found = weights(f"run/checkpoint-{step}")
        changed = {weight_space.layer_of(n) for n, w in found.items() if (w != start[n]).any()}
        assert changed - {None} == ({0, 1} if step == 2 else {0, 1, 2})

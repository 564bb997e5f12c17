"""curves.png: which panels it has, and that it is drawn; the table at the end of a run."""

import math

from rlvr.show.console import print_first_and_last
from rlvr.show.logs import append_row
from rlvr.show.plots import MOST_PANELS, PANELS, choose_panels, draw_curves

import matplotlib
import pytest

EVALS = [
    {"step": 0, "pass@1": 0.1, "pass@4": 0.3, "avg@4": 0.1, "answer_entropy": 0.0, "fit_a": 1.0},
    {"step": 2, "pass@1": 0.2, "pass@4": 0.4, "avg@4": 0.2, "answer_entropy": 0.5, "fit_a": 1.0},
]
METRICS = [
    {"step": 1, "reward": 0.0, "loss": 0.3, "mismatch": 1e-6, "clip_low": 0.0, "clip_high": 0.0},
    {"step": 2, "reward": 0.1, "loss": 0.3, "mismatch": 1e-6, "clip_low": 0.0, "clip_high": 0.1},
]


def lines(panels):
    """The titles and the lines of the panels."""
    return {title: keys for title, _, keys in panels}


def with_all(metrics, **more):
    """A row in which everything of the table is above 0, and more."""
    table = {key: 0.5 for _, log, keys in PANELS if log == "metrics" for key in keys}
    return [{**row, **table, **more} for row in metrics]


def test_a_panel_has_the_rows_of_its_log():
    """A line that is zero throughout is left out. One that is above 0 once, or NaN, is drawn."""
    panels = choose_panels(EVALS, METRICS)
    assert {title: rows for title, rows, _ in panels} == {
        "held-out pass@k": EVALS,
        "held-out entropy (nats)": EVALS,
        "reward of the rollout": METRICS,
        "share of tokens that are clipped": METRICS,
    }
    assert lines(panels)["share of tokens that are clipped"] == ["clip_high"]
    assert lines(panels)["held-out entropy (nats)"] == ["answer_entropy"]
    nan = [{**METRICS[0], "grad_norm": 0.0}, {**METRICS[1], "grad_norm": math.nan}]
    assert "gradient norm" in lines(choose_panels(EVALS, nan))


def test_the_metrics_of_an_algorithm_come_after_the_table():
    """In the order in which it logs them, never the loss, and at most twelve panels in all."""
    metrics = with_all(METRICS, skipped=0.0, kl=0.0, zeta=1.0, alpha=0.7, unused=0.0)
    panels = choose_panels(EVALS, metrics)
    assert [title for title, _, _ in panels][-2:] == ["zeta", "alpha"]
    drawn = {key for _, _, keys in panels for key in keys}
    assert not drawn & {"step", "loss", "mismatch", "unused"}
    panels = choose_panels(EVALS, with_all(METRICS, **{f"own_{i}": 1.0 for i in range(20)}))
    assert len(panels) == MOST_PANELS == 12
    titles = [title for title, _, _ in panels]
    assert titles[:2] == ["held-out pass@k", "held-out entropy (nats)"]
    assert titles[2:] == [title for title, _, _ in PANELS][:10]


def test_each_of_several_data_sets_has_its_panels():
    evals = [
        {"step": 0, "math/pass@1": 0.1, "math/pass@2": 0.2, "math/pass@1 level 5": 0.1}
        | {"math/avg@2": 0.1, "math/answer_entropy": 0.3, "math/token_entropy": 0.4}
        | {"gsm8k/pass@1": 0.5, "gsm8k/pass@2": 0.0, "gsm8k/token_entropy": 0.4}
    ]
    assert lines(choose_panels(evals, [])) == {
        "held-out math/pass@k": ["math/pass@1", "math/pass@2"],
        "held-out gsm8k/pass@k": ["gsm8k/pass@1"],
        "held-out math/entropy (nats)": ["math/answer_entropy", "math/token_entropy"],
        "held-out gsm8k/entropy (nats)": ["gsm8k/token_entropy"],
    }


def test_what_the_first_row_lacks_is_drawn():
    """A resumed run may have more samples and other sets; a step without a call has no turns."""
    resumed = {"step": 4, "pass@1": 0.2, "pass@16": 0.5, "math/pass@1": 0.1}
    metrics = [METRICS[0], {**METRICS[1], "turns": 1.5}]
    found = lines(choose_panels([*EVALS, resumed], metrics))
    assert found["held-out pass@k"] == ["pass@1", "pass@4", "pass@16"]
    assert found["held-out math/pass@k"] == ["math/pass@1"]
    assert found["turns"] == ["turns"]


FEW = {"step": 0, "pass@1": 0.1, "pass@4": 0.3, "length": 9.0, "fit_a": 1.33e22}
ALL_ZERO = [{"step": 0, "pass@1": 0.0, "token_entropy": 0.0}]
MORE = [*EVALS, {"step": 4, "pass@1": 0.25, "greedy": 0.5, "length": 3.0, "fit_limit": math.inf}]
TABLE = """
step             0        4   change
pass@1       0.100    0.250   +0.150
greedy         nan    0.500     +nan
fit_limit      nan      nan     +nan
"""


@pytest.mark.parametrize(
    "evals, metrics, table",
    [
        (MORE, METRICS, TABLE),
        ([FEW], [], "step 0 pass@1 0.100 pass@4 0.300 fit_a 1.3e+22"),
        (ALL_ZERO, [], "step 0 pass@1 0.000 token_entropy 0.000"),
        ([], [], ""),  # resumed after its last step, with the logs lost
    ],
)
def test_a_picture_and_a_table_at_the_end(tmp_path, monkeypatch, capsys, evals, metrics, table):
    """Also where a run only evaluates, all is zero, rows lack a metric, or the logs are lost."""
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "cache"))  # put back afterwards
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 20)  # drawn 5 times as fast
    for name, rows in (("eval", evals), ("metrics", metrics)):
        for row in rows:
            append_row(tmp_path, name, row)
    draw_curves(tmp_path, str(tmp_path / "cache"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    print_first_and_last(tmp_path)
    assert capsys.readouterr().out.split() == table.split()

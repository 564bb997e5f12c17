"""How all figures look: sizes, and colours that the colour-blind can tell apart (Okabe and Ito)."""

from typing import Any

METHODS = {
    "GRPO": "#000000",
    "A-GRAE": "#0072B2",
    "AsymGRPO": "#E69F00",
    "FADE": "#CC79A7",
    "CW-GRPO": "#56B4E9",
}
RIGHT, WRONG = "#009E73", "#D55E00"
GREY = "#AAAAAA"
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000"]  # of lines
SETTINGS: dict[Any, Any] = {  # for matplotlib.rc_context
    "font.size": 15,
    "axes.prop_cycle": f"cycler('color', {COLORS})",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "lines.linewidth": 2.5,
    "legend.frameon": False,
}

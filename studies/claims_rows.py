"""What claims.py tries: the runs, and the papers' claims about them.

A claim stands under its paper's section. Its effect is the one that the paper prints, or ours where
the paper prints none: OURS, in the units of the metric. A-GRAE's are those of MATH with 7 B. Those
of two-stage dynamics are means over its sets in the domain with 7 B, where no other is named.
"""

from typing import NamedTuple

BASES = {  # the starting policies of --base, and their flags
    "middle": "--base middle",
    "weak": "--base weak --numbers 3,4",
}
START = "start"  # the policy before training
GROWTH = "Proposition 1"  # trains nothing
BEST_STATIC = "best static"
STATIC_WEIGHTS = ("mean", "delta 0.5", "Power 2")  # without feedback, FADE's rivals

# As section 11.3 of FADE has it. The learning rate is that at which `mean` has the default of 1e-4.
EQUAL = "--equalize_learning_rate --learning_rate 3.3e-5"
PRINTED_CLIPPING = "--epsilon 0.2 --epsilon_high 0.2"  # as two-stage dynamics prints it for GSPO
FROM_EVERY_BASE = {  # the name of a run, and its script and flags
    START: "grpo --max_steps 0",
    "GRPO": "grpo",
    "A-GRAE": "agrae",
    "positive-dominant": "agrae --variant positive-dominant",
    "negative-dominant": "agrae --variant negative-dominant",
    "two-stage GRPO": "grpo --variant two-stage-grpo",
    "two-stage GRPO-N": "grpo --variant two-stage-grpo-n",
    "GRPO, tokens": "asymgrpo --variant grpo",
    "AsymGRPO": "asymgrpo",
    "FADE": f"fade --target_entropy 0.2 {EQUAL}",  # the start's entropy, so that delta moves
    "mean": f"fade --weight mean {EQUAL}",
    "delta 0.5": f"fade --variant asym {EQUAL}",
    "Power 2": f"fade --variant power {EQUAL}",
    "CW-GRPO": "cwgrpo",
    GROWTH: "entropy_growth",
}
FROM_THE_MIDDLE_BASE = {
    **FROM_EVERY_BASE,
    "hard-focused": "agrae --variant hard-focused",
    "easy-focused": "agrae --variant easy-focused",
    "sample level": "agrae --variant sample-level",
    "group level": "agrae --variant group-level",
    "W-REINFORCE": "agrae --variant w-reinforce",
    "GRPO-LEAD": "agrae --variant grpo-lead",
    "DAPO": "grpo --variant dapo --no_dynamic_sampling",
    "A-GRAE, DAPO": "agrae --variant agrae-dapo",
    "Dr.GRPO": "grpo --variant dr-grpo",
    "A-GRAE, Dr.GRPO": "agrae --variant agrae-dr-grpo",
    "GSPO": "grpo --variant two-stage-gspo --epsilon 3e-4 --epsilon_high 4e-4",
    "GSPO-N": "grpo --variant two-stage-gspo-n --epsilon 3e-4 --epsilon_high 4e-4",
    "GSPO, 0.2": f"grpo --variant two-stage-gspo {PRINTED_CLIPPING}",
    "GSPO-N, 0.2": f"grpo --variant two-stage-gspo-n {PRINTED_CLIPPING}",
    "GRPO, long": "grpo --variant two-stage-grpo",
    "REINFORCE": "asymgrpo --variant reinforce --log_gain",
    "Pos-Only": "asymgrpo --variant pos-only",
    "Neg-Only": "asymgrpo --variant neg-only --log_gain",
    "Neg-Only 0.75": "asymgrpo --variant neg-only --beta_neg 0.75 --log_gain",
    "entropy bonus": "asymgrpo --variant reinforce-entropy --entropy_coef 0.002",
    "tied 0.7": "asymgrpo --variant symmetric",
    "clip-higher": "asymgrpo --variant clip-higher",
    "GRPO, bonus": "asymgrpo --variant grpo-entropy",
    "Dr.GRPO, tokens": "grpo --variant dr-grpo --aggregation token",
    "EntDecrease": "asymgrpo --variant ent-decrease",
    "EntIncrease": "asymgrpo --variant ent-increase",
    "delta 2": f"fade --weight asym --weight_args delta=2 {EQUAL}",
    "pass@4": f"fade --weight mix_pass_k --weight_args k=4 {EQUAL}",
    "alpha only": f"fade --variant alpha-only {EQUAL}",
    "delta only": f"fade --variant delta-only --target_entropy 0.2 {EQUAL}",
    "mean, untied": f"fade --weight mean {EQUAL} --no_tie_word_embeddings",
    "delta 0.5, untied": f"fade --variant asym {EQUAL} --no_tie_word_embeddings",
    "delta 2, untied": f"fade --weight asym --weight_args delta=2 {EQUAL} --no_tie_word_embeddings",
    "Clip-Cov": "cwgrpo --variant clip-cov --clip_cov_fraction 0.01",
}
LANGUAGE_MODEL = "SmolLM2-135M"  # whose runs language_model.py makes
MAIN_CONTRASTS = (  # in the order of making them
    "GRPO",
    START,
    "two-stage GRPO",
    "two-stage GRPO-N",
    "CW-GRPO",
    "A-GRAE",
    "negative-dominant",
    "GRPO, tokens",
    "AsymGRPO",
    "EntIncrease",
    "FADE",
    *STATIC_WEIGHTS,
)
OTHERS = (
    "positive-dominant",
    "REINFORCE",
    "Pos-Only",
    "Neg-Only",
    "GSPO",
    "GSPO-N",
    "Clip-Cov",
    "Proposition 1",
)
# As above: the learning rate at which `mean` has the default of 3e-5 for arithmetic. FADE's target
# is half of the first step's entropy, as in the paper; this model's entropy falls far below it.
MODEL_EQUAL = "--equalize_learning_rate --learning_rate 1e-5"
OF_THE_MODEL = {name: FROM_EVERY_BASE[name].replace(EQUAL, MODEL_EQUAL) for name in STATIC_WEIGHTS}
OF_THE_MODEL["FADE"] = f"fade {MODEL_EQUAL}"
RUNS = {
    "middle": FROM_THE_MIDDLE_BASE,
    "weak": FROM_EVERY_BASE,
    LANGUAGE_MODEL: {name: FROM_THE_MIDDLE_BASE[name] for name in (*MAIN_CONTRASTS, *OTHERS)}
    | OF_THE_MODEL,
}


class Row(NamedTuple):
    """A claim: the metric of one run is above that of the other, by about `effect`.

    `above` and `below` are a run, BEST_STATIC or a number. Where `printed`, the effect is the
    paper's. `far` says what its setting here lacks beside what FAR says of its paper.
    """

    paper: str
    section: str
    text: str
    metric: str
    above: str | float
    below: str | float
    effect: float
    printed: bool
    far: str
    headline: bool


OURS = {  # the least difference that would matter where a paper prints none
    "pass@1": 0.02,
    "pass@4": 0.02,
    "pass@16": 0.03,
    "greedy": 0.02,
    "entropy": 0.02,
    "answer_entropy": 0.05,
    "early": 0.02,
    "late": 0.02,
    "swing": 0.02,
    "all_wrong": 0.02,
    "kappa": 0.002,
    "growth": 0.002,
    "correlation": 0.3,
    "gain": 0.02,
    "reach": 5.0,
    "r1": 0.05,
    "slope": 0.1,
    "fit error": 0.02,
    "top 1% share": 0.03,
    "1 - delta": 0.05,
}
COOL = "cool "  # before a metric: sampled as the paper evaluates, not at temperature 1
FAR = {  # how far the setting is from the paper's, for every row of it
    "A-GRAE": "0.3 M parameters for 7 B, 48 steps of 16 x 8 for 20 epochs of 1,024 x 8, pass@16 "
    "for pass@256",
    "two-stage dynamics": "0.3 M parameters for 7 B, 48 steps of 16 x 8 for steps of 1,024 x 8, "
    "pass@16 for pass@256",
    "AsymGRPO": "0.3 M parameters for 4 B, 48 steps of 16 x 8 for steps of 128 x 8",
    "FADE": "0.3 M parameters for 7 B and 32 B, 48 steps for some 20,000, sums for programs",
    "CW-GRPO": "0.3 M parameters for 1.5 B and 7 B, 48 steps of 16 x 8 for 100 of 12 x 12, no "
    "format reward, clipping at 0.2",
}


def row(text, metric, above, below, effect=None, far="", headline=False) -> tuple:
    """A row without its paper and section; without an effect it has ours."""
    printed = effect is not None
    if not printed:
        effect = OURS[metric.removeprefix(COOL)]
    return text, metric, above, below, effect, printed, far, headline


ABOVE_IN_TABLE_1 = "of MATH-500; Table 1 has GRPO above the start on four of five sets at k = 16"
END = "48 steps are the beginning of a run"
SHORT = "too few steps for a second stage, if there is one"
MANY = "Clip-Cov detaches 1% of the tokens, not 0.02%"
NARROW = "clipping as in GSPO's own paper, 3e-4 and 4e-4"
BY_SECTION = {
    ("A-GRAE", "4.2"): [
        row(
            "positive-dominant loses more entropy than GRPO", "entropy", "GRPO", "positive-dominant"
        ),
        row(
            "positive-dominant ends lower in pass@16",  # Table 6
            "pass@16",
            "GRPO",
            "positive-dominant",
            0.018,
        ),
        row("negative-dominant has more entropy than GRPO", "entropy", "negative-dominant", "GRPO"),
        row(
            "negative-dominant ends higher in pass@16",
            "pass@16",
            "negative-dominant",
            "GRPO",
            0.025,  # Table 6
            headline=True,
        ),
    ],
    ("A-GRAE", "4.3"): [
        row("easy-focused has the higher early reward", "early", "easy-focused", "hard-focused"),
        row("hard-focused has the higher late reward", "late", "hard-focused", "easy-focused"),
    ],
    ("A-GRAE", "5.3"): [  # Table 2
        row("A-GRAE beats GRPO in pass@1", "pass@1", "A-GRAE", "GRPO", 0.018, headline=True),
        row("A-GRAE beats GRPO in pass@16", "pass@16", "A-GRAE", "GRPO", 0.022),
        row("A-GRAE beats GRPO in pass@1 at T = 0.6", COOL + "pass@1", "A-GRAE", "GRPO", 0.018),
        row("A-GRAE beats GRPO in pass@16 at T = 0.6", COOL + "pass@16", "A-GRAE", "GRPO", 0.022),
        row("A-GRAE on DAPO beats DAPO in pass@1", "pass@1", "A-GRAE, DAPO", "DAPO", 0.019),
        row(
            "A-GRAE on Dr.GRPO beats Dr.GRPO in pass@1",
            "pass@1",
            "A-GRAE, Dr.GRPO",
            "Dr.GRPO",
            0.014,
        ),
        row("A-GRAE beats W-REINFORCE in pass@1", "pass@1", "A-GRAE", "W-REINFORCE", 0.017),
        row("A-GRAE beats GRPO-LEAD in pass@1", "pass@1", "A-GRAE", "GRPO-LEAD", 0.005),
    ],
    ("A-GRAE", "5.4"): [  # Table 5
        row("A-GRAE beats GRPO in greedy accuracy", "greedy", "A-GRAE", "GRPO"),
        row("its sample level alone raises pass@1", "pass@1", "sample level", "GRPO", 0.013),
        row("its group level alone raises pass@16", "pass@16", "group level", "GRPO", 0.027),
    ],
    ("two-stage dynamics", "C.3"): [  # Table 3
        row(
            "GRPO's pass@16 falls below the start's",
            "pass@16",
            START,
            "two-stage GRPO",
            0.032,
            far=ABOVE_IN_TABLE_1,
            headline=True,
        ),
        row(
            "at T = 0.6 GRPO's pass@16 falls, too",
            COOL + "pass@16",
            START,
            "two-stage GRPO",
            0.032,
            far=ABOVE_IN_TABLE_1,
        ),
    ],
    ("two-stage dynamics", "4.2"): [  # Table 1
        row("GRPO raises pass@1", "pass@1", "two-stage GRPO", START, 0.106),
        row(
            "GRPO-N keeps more pass@16 than GRPO",
            "pass@16",
            "two-stage GRPO-N",
            "two-stage GRPO",
            0.011,
            headline=True,
        ),
        row("GRPO-N is above the start in pass@16", "pass@16", "two-stage GRPO-N", START, 0.051),
        row("GRPO-N has more entropy than the start", "entropy", "two-stage GRPO-N", START),
        row("GRPO-N raises pass@1 over the start", "pass@1", "two-stage GRPO-N", START, 0.106),
        row("GRPO-N raises greedy accuracy over the start", "greedy", "two-stage GRPO-N", START),
        row("GSPO-N keeps more pass@16 than GSPO", "pass@16", "GSPO-N", "GSPO", 0.007, far=NARROW),
        row(
            "GSPO-N keeps more pass@16, both clipping at 0.2",
            "pass@16",
            "GSPO-N, 0.2",
            "GSPO, 0.2",
            0.007,
        ),
    ],
    ("two-stage dynamics", "C.5"): [  # Table 4
        row(
            "GRPO-N keeps more entropy than GRPO",
            "entropy",
            "two-stage GRPO-N",
            "two-stage GRPO",
            0.050,
        ),
        row(
            "GRPO-N's answers are more diverse than GRPO's",
            "answer_entropy",
            "two-stage GRPO-N",
            "two-stage GRPO",
            0.040,  # 0.057 is printed, which must be in bits; ours is in nats
        ),
        row("GSPO-N keeps more entropy than GSPO", "entropy", "GSPO-N", "GSPO", 0.009, far=NARROW),
    ],
    ("two-stage dynamics", "3.1"): [
        row(
            "pass@16 rises again in four times as many steps",
            "pass@16",
            "GRPO, long",
            "two-stage GRPO",
            far=SHORT,
        ),
    ],
    ("AsymGRPO", "2.2"): [
        row("kappa is positive at the start", "kappa", "Proposition 1", 0),
        row("kappa is positive over the first 20 steps", "kappa", "AsymGRPO", 0, 0.0019),
        row("(0.1, 0) turns the entropy's growth the way of kappa", "growth", "Proposition 1", 0),
        row(
            "batch by batch the growth follows kappa (correlation)",
            "correlation",
            "Proposition 1",
            0,
        ),
    ],
    ("AsymGRPO", "3.1"): [
        row("entropy: Pos-Only above REINFORCE", "entropy", "Pos-Only", "REINFORCE"),
        row("entropy: REINFORCE above Neg-Only", "entropy", "REINFORCE", "Neg-Only"),
        row("Pos-Only leaves fewer groups unsolved", "all_wrong", "REINFORCE", "Pos-Only"),
        row("Neg-Only raises the gain of successes", "gain", "Neg-Only", "REINFORCE"),
        row("at strength 0.75 it is below REINFORCE's", "gain", "REINFORCE", "Neg-Only 0.75"),
        row("an entropy bonus raises entropy", "entropy", "entropy bonus", "REINFORCE"),
        row(
            "an entropy bonus gains pass@1",
            "pass@1",
            "entropy bonus",
            "REINFORCE",
            far="the section also concludes that it brings no such gain",
        ),
        row("Pos-Only beats the entropy bonus in pass@1", "pass@1", "Pos-Only", "entropy bonus"),
    ],
    ("AsymGRPO", "3.2"): [
        row("EntDecrease lowers entropy", "entropy", "GRPO, tokens", "EntDecrease"),
        row("EntIncrease raises entropy", "entropy", "EntIncrease", "GRPO, tokens"),
        row("EntDecrease hurts pass@1", "pass@1", "GRPO, tokens", "EntDecrease"),
        row("EntIncrease hurts pass@1", "pass@1", "GRPO, tokens", "EntIncrease", headline=True),
    ],
    ("AsymGRPO", "4.2"): [
        row("Pos-Only beats REINFORCE in pass@1", "pass@1", "Pos-Only", "REINFORCE", 0.016),
        row("Neg-Only beats REINFORCE in pass@1", "pass@1", "Neg-Only", "REINFORCE", 0.008),
        row("GRPO beats Pos-Only in pass@1", "pass@1", "GRPO, tokens", "Pos-Only", 0.012),
        row("GRPO beats Neg-Only in pass@1", "pass@1", "GRPO, tokens", "Neg-Only", 0.020),
        row(
            "AsymGRPO beats GRPO in pass@1",
            "pass@1",
            "AsymGRPO",
            "GRPO, tokens",
            0.029,
            headline=True,
        ),
        row(
            "AsymGRPO beats GRPO in pass@1 at T = 0.4",
            COOL + "pass@1",
            "AsymGRPO",
            "GRPO, tokens",
            0.029,
        ),
        row("AsymGRPO beats the tied 0.7 in pass@1", "pass@1", "AsymGRPO", "tied 0.7", 0.022),
        row("AsymGRPO beats clip-higher in pass@1", "pass@1", "AsymGRPO", "clip-higher", 0.006),
        row(
            "AsymGRPO beats an entropy bonus in pass@1", "pass@1", "AsymGRPO", "GRPO, bonus", 0.018
        ),
        row("AsymGRPO beats Dr.GRPO in pass@1", "pass@1", "AsymGRPO", "Dr.GRPO, tokens", 0.012),
    ],
    ("FADE", "4.1"): [
        row("delta 2 loses more entropy than delta 1", "entropy", "mean", "delta 2"),
    ],
    ("FADE", "4.2"): [
        row("delta 0.5 learns faster early", "early", "delta 0.5", "mean"),
        row("delta 0.5 loses pass@16 in the end", "pass@16", "mean", "delta 0.5", far=END),
        row(
            "delta 0.5 raises the head's rank-1 share",
            "r1",
            "delta 0.5, untied",
            "mean, untied",
            far="a head of 26 tokens",
        ),
        row(
            "delta 2 leaves it below that of delta 0.5",
            "r1",
            "delta 0.5, untied",
            "delta 2, untied",
            far="a head of 26 tokens",
        ),
    ],
    ("FADE", "4.3"): [
        row("Power 2 keeps more pass@16 than delta 1", "pass@16", "Power 2", "mean", 0.05),
        row(
            "the weight of pass@4 keeps more of the slope b than delta 1", "slope", "pass@4", "mean"
        ),
    ],
    ("FADE", "5"): [
        row(
            "setting: FADE's delta falls below 1",
            "1 - delta",
            "FADE",
            0,
            far="its target is above the start's entropy, not half of it",
        ),
        row(
            "FADE is first at the best static weight's peak",
            "reach",
            BEST_STATIC,
            "FADE",
            far="training reward for held-out pass@1",
            headline=True,
        ),
        row(
            "FADE beats the best static weight in pass@1",
            "pass@1",
            "FADE",
            BEST_STATIC,
            headline=True,
        ),
        row("FADE beats the best static weight in pass@4", "pass@4", "FADE", BEST_STATIC),
        row("FADE beats the best static weight in pass@16", "pass@16", "FADE", BEST_STATIC),
        row("without delta FADE's entropy collapses", "entropy", "FADE", "alpha only"),
        row("without alpha FADE loses pass@16", "pass@16", "FADE", "delta only"),
    ],
    ("FADE", "12"): [
        row(
            "the shifted power law fits pass@k to 0.02",
            "fit error",
            0.02,
            "GRPO",
            far="the paper says that it fits better than other laws",
        ),
    ],
    ("CW-GRPO", "2.2"): [
        row(
            "the top 1% of tokens hold 0.12 of the covariance",
            "top 1% share",
            "CW-GRPO",
            0.12,
            far="here of both signs; by interpolation in Table 1 it is 0.12 for the positive "
            "covariances, and 0.17 for the negative ones",
        ),
    ],
    ("CW-GRPO", "3.2"): [
        row("CW-GRPO's entropy moves less than GRPO's", "swing", "GRPO", "CW-GRPO", headline=True),
        row("CW-GRPO beats GRPO in pass@1", "pass@1", "CW-GRPO", "GRPO", 0.027, headline=True),
        row("CW-GRPO beats GRPO in pass@1 at T = 0.6", COOL + "pass@1", "CW-GRPO", "GRPO", 0.027),
        row("Clip-Cov beats GRPO in pass@1", "pass@1", "Clip-Cov", "GRPO", 0.010, far=MANY),
        row("CW-GRPO beats Clip-Cov in pass@1", "pass@1", "CW-GRPO", "Clip-Cov", 0.017, far=MANY),
    ],
}
ROWS = [Row(*place, *rest) for place, rows in BY_SECTION.items() for rest in rows]
PAPERS = [*FAR]


def runs_of(claim: Row) -> tuple[str, ...]:
    """The runs that a row compares."""
    found = []
    for side in (claim.above, claim.below):
        if side == BEST_STATIC:
            found += STATIC_WEIGHTS
        elif isinstance(side, str):
            found.append(side)
    if claim.metric == "reach":
        found += STATIC_WEIGHTS
    return tuple(dict.fromkeys(found))


def rows_from(base: str) -> list[Row]:
    """The rows whose runs are made from this base.

    The language model is evaluated at temperature 1 alone.
    """
    found = [claim for claim in ROWS if {*runs_of(claim)} <= {*RUNS[base]}]
    if base == LANGUAGE_MODEL:
        found = [claim for claim in found if not claim.metric.startswith(COOL)]
    return found

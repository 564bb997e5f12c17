"""What claims.py tries: the starting policies, the runs, and the papers' claims about them."""
# ruff: noqa: E501  (a claim is one line of a table)

from typing import NamedTuple


class Base(NamedTuple):
    """A starting policy, the problems that it is trained on, and how its learning rates are found.

    Where rates are tuned, the grid begins around these two.
    """

    model: str
    problems: str = ""
    rate: str = "1e-4"
    equal_rate: str = "3e-5"  # of runs with EQUAL; lr max|A| of FADE's `mean` is GRPO's then
    tuned_on: str = ""  # the base that rates are tuned on; "" for none


LANGUAGE_MODEL = "SmolLM2-135M"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
# The language model starts where eight steps of GRPO have taught it the form of an answer.
FORM = f"grpo --model {MODEL} --dataset arithmetic --learning_rate 1e-5 --max_steps 8 --seed 1000"
BASES = {
    "middle": Base("--base middle", tuned_on="middle"),
    "strong": Base("--base strong", tuned_on="middle"),
    LANGUAGE_MODEL: Base("--model {form}", "--dataset arithmetic", "1e-5", "3.3e-6"),
}
TINY = "middle", "strong"

START = "start"  # the policy before training
GROWTH = "Proposition 1"  # trains nothing
LONG = "GRPO, long"
BEST_STATIC = "best static"
STATIC_WEIGHTS = ("mean", "delta 0.5", "Power 2")  # without feedback, FADE's rivals

EQUAL = "--equalize_learning_rate"  # as section 11.3 of FADE has it
UNTIED = "--no_tie_word_embeddings"
PRINTED_CLIPPING = "--epsilon 0.2 --epsilon_high 0.2"  # as two-stage dynamics prints it for GSPO
GSPO_CLIPPING = "--epsilon 3e-4 --epsilon_high 4e-4"
OF_HEADLINES = {  # the name of a run, and its script and flags
    "GRPO": "grpo",
    "A-GRAE": "agrae",
    "negative-dominant": "agrae --variant negative-dominant",
    "two-stage GRPO": "grpo --variant two-stage-grpo",
    "two-stage GRPO-N": "grpo --variant two-stage-grpo-n",
    "GRPO, tokens": "asymgrpo --variant grpo",
    "AsymGRPO": "asymgrpo",
    "FADE": f"fade --target_entropy 0.2 {EQUAL}",  # the start's entropy, so that delta moves
    "mean": f"fade --weight mean {EQUAL}",
    "delta 0.5": f"fade --variant asym {EQUAL}",
    "Power 2": f"fade --variant power {EQUAL}",
    "EntIncrease": "asymgrpo --variant ent-increase",
    "CW-GRPO": "cwgrpo",
}
FROM_THE_MIDDLE_BASE = {
    **OF_HEADLINES,
    GROWTH: "entropy_growth",
    "positive-dominant": "agrae --variant positive-dominant",
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
    "GSPO": f"grpo --variant two-stage-gspo {GSPO_CLIPPING}",
    "GSPO-N": f"grpo --variant two-stage-gspo-n {GSPO_CLIPPING}",
    "GSPO, 0.2": f"grpo --variant two-stage-gspo {PRINTED_CLIPPING}",
    "GSPO-N, 0.2": f"grpo --variant two-stage-gspo-n {PRINTED_CLIPPING}",
    LONG: "grpo --variant two-stage-grpo",
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
    "delta 2": f"fade --weight asym --weight_args delta=2 {EQUAL}",
    "pass@4": f"fade --weight mix_pass_k --weight_args k=4 {EQUAL}",
    "alpha only": f"fade --variant alpha-only {EQUAL}",
    "delta only": f"fade --variant delta-only --target_entropy 0.2 {EQUAL}",
    "log-schedule": f"fade --variant log-schedule {EQUAL}",
    "entropy only": f"fade --variant entropy-only --target_entropy 0.2 {EQUAL}",
    "mean, untied": f"fade --weight mean {EQUAL} {UNTIED}",
    "delta 0.5, untied": f"fade --variant asym {EQUAL} {UNTIED}",
    "delta 2, untied": f"fade --weight asym --weight_args delta=2 {EQUAL} {UNTIED}",
    "Clip-Cov": "cwgrpo --variant clip-cov --clip_cov_fraction 0.01",
}
# Its completions are of nearly one length, so that one GRPO stands for all three. FADE's target is
# half of the first step's entropy, as in the paper.
ALIASES = {"two-stage GRPO": "GRPO", "GRPO, tokens": "GRPO"}
FROM_THE_LANGUAGE_MODEL = {
    "GRPO": "grpo",
    "A-GRAE": "agrae",
    "two-stage GRPO-N": "grpo --variant two-stage-grpo-n",
    "AsymGRPO": "asymgrpo",
    "EntIncrease": "asymgrpo --variant ent-increase",
    "FADE": f"fade {EQUAL}",
    "mean": f"fade --weight mean {EQUAL}",
    "CW-GRPO": "cwgrpo",
    "GRPO, 3e-5": "grpo --learning_rate 3e-5",
}
RUNS = {
    "middle": FROM_THE_MIDDLE_BASE,
    "strong": OF_HEADLINES,
    "weak": OF_HEADLINES | {name: "" for name in ("positive-dominant", GROWTH)},  # as EARLIER
    LANGUAGE_MODEL: FROM_THE_LANGUAGE_MODEL,
}


class Job(NamedTuple):
    """A run: from which base, by which name of RUNS, and with which seed."""

    base: str
    name: str
    seed: int


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
    "fit error": 0.002,
    "top 1% share": 0.03,
    "1 - delta": 0.05,
}
OF_NO_PAPER = "no paper's"
FAR = {  # how far the setting is from the paper's, for every row of it
    "A-GRAE": "0.3 M parameters for 7 B, 48 steps of 16 x 8 for 20 epochs of 1,024 x 8, pass@16 "
    "for pass@256",
    "two-stage dynamics": "0.3 M parameters for 7 B, 48 steps of 16 x 8 for steps of 1,024 x 8, "
    "pass@16 for pass@256",
    "AsymGRPO": "0.3 M parameters for 4 B, 48 steps of 16 x 8 for steps of 128 x 8",
    "FADE": "0.3 M parameters for 7 B and 32 B, 48 steps for some 20,000, sums for programs",
    "CW-GRPO": "0.3 M parameters for 1.5 B and 7 B, 48 steps of 16 x 8 for 100 of 12 x 12, no "
    "format reward, clipping at 0.2",
    OF_NO_PAPER: "the choice of a default learning rate",
}
PAPERS = [*FAR]
NOTES = {  # what else is far from the paper's setting, by its word in CLAIMS
    "Table 1": "MATH-500; not on four of five sets",
    "narrow": "clipping 3e-4 and 4e-4",
    "short": "too few steps for a second stage",
    "no gain": "the section also says none",
    "begun": "48 steps are a beginning",
    "small head": "a head of 26 tokens",
    "target": "a target above the start's entropy",
    "reward": "training reward for held-out pass@1",
    "laws": "and better than other laws",
    "signs": "of both signs; Table 1 has 0.12 and 0.17",
    "tables": "the text; Table 5 has the contrary",
    "many": "1% of the tokens, not 0.02%",
}
# section (! for a headline) | claim | metric | above | below | effect, where printed | note
# A-GRAE's effects are those of MATH with 7 B (Tables 2, 5 and 6). Those of two-stage dynamics are
# means over its sets in the domain with 7 B (Tables 1, 3 and 4), where no other is named; that of
# answers is printed as 0.057, which must be in bits.
CLAIMS = {
    "A-GRAE": """
4.2 | positive-dominant loses more entropy than GRPO | entropy | GRPO | positive-dominant
4.2 | positive-dominant ends lower in pass@16 | pass@16 | GRPO | positive-dominant | 0.018
4.2 | negative-dominant has more entropy than GRPO | entropy | negative-dominant | GRPO
4.2! | negative-dominant ends higher in pass@16 | pass@16 | negative-dominant | GRPO | 0.025
4.3 | easy-focused has the higher early reward | early | easy-focused | hard-focused
4.3 | hard-focused has the higher late reward | late | hard-focused | easy-focused
5.3! | A-GRAE beats GRPO in pass@1 | pass@1 | A-GRAE | GRPO | 0.018
5.3 | A-GRAE beats GRPO in pass@16 | pass@16 | A-GRAE | GRPO | 0.022
5.3 | A-GRAE on DAPO beats DAPO in pass@1 | pass@1 | A-GRAE, DAPO | DAPO | 0.019
5.3 | A-GRAE on Dr.GRPO beats Dr.GRPO in pass@1 | pass@1 | A-GRAE, Dr.GRPO | Dr.GRPO | 0.014
5.3 | A-GRAE beats W-REINFORCE in pass@1 | pass@1 | A-GRAE | W-REINFORCE | 0.017
5.3 | A-GRAE beats GRPO-LEAD in pass@1 | pass@1 | A-GRAE | GRPO-LEAD | 0.005
5.4 | A-GRAE beats GRPO in greedy accuracy | greedy | A-GRAE | GRPO
5.4 | its sample level alone raises pass@1 | pass@1 | sample level | GRPO | 0.013
5.4 | its group level alone raises pass@16 | pass@16 | group level | GRPO | 0.027
5.4 | all of it keeps more pass@16 than its group level | pass@16 | A-GRAE | group level |  | tables
""",
    "two-stage dynamics": """
C.3! | GRPO's pass@16 falls below the start's | pass@16 | start | two-stage GRPO | 0.032 | Table 1
4.2 | GRPO raises pass@1 | pass@1 | two-stage GRPO | start | 0.106
4.2! | GRPO-N keeps more pass@16 than GRPO | pass@16 | two-stage GRPO-N | two-stage GRPO | 0.011
4.2 | GRPO-N is above the start in pass@16 | pass@16 | two-stage GRPO-N | start | 0.051
4.2 | GRPO-N has more entropy than the start | entropy | two-stage GRPO-N | start
4.2 | GRPO-N raises pass@1 over the start | pass@1 | two-stage GRPO-N | start | 0.106
4.2 | GRPO-N raises greedy accuracy over the start | greedy | two-stage GRPO-N | start
4.2 | GSPO-N keeps more pass@16 than GSPO | pass@16 | GSPO-N | GSPO | 0.007 | narrow
4.2 | GSPO-N keeps more pass@16, both clipping at 0.2 | pass@16 | GSPO-N, 0.2 | GSPO, 0.2 | 0.007
C.5 | GRPO-N keeps more entropy than GRPO | entropy | two-stage GRPO-N | two-stage GRPO | 0.05
C.5 | GRPO-N's answers are more diverse than GRPO's | answer_entropy | two-stage GRPO-N | two-stage GRPO | 0.04
C.5 | GSPO-N keeps more entropy than GSPO | entropy | GSPO-N | GSPO | 0.009
3.1 | pass@16 rises again in four times as many steps | pass@16 | GRPO, long | two-stage GRPO |  | short
""",
    "AsymGRPO": """
2.2 | kappa is positive at the start | kappa | Proposition 1 | 0
2.2 | kappa is positive over the first 20 steps | kappa | AsymGRPO | 0 | 0.0019
2.2 | (0.1, 0) turns the entropy's growth the way of kappa | growth | Proposition 1 | 0
2.2 | batch by batch the growth follows kappa (correlation) | correlation | Proposition 1 | 0
3.1 | entropy: Pos-Only above REINFORCE | entropy | Pos-Only | REINFORCE
3.1 | entropy: REINFORCE above Neg-Only | entropy | REINFORCE | Neg-Only
3.1 | Pos-Only leaves fewer groups unsolved | all_wrong | REINFORCE | Pos-Only
3.1 | Neg-Only raises the gain of successes | gain | Neg-Only | REINFORCE
3.1 | at strength 0.75 it is below REINFORCE's | gain | REINFORCE | Neg-Only 0.75
3.1 | an entropy bonus raises entropy | entropy | entropy bonus | REINFORCE
3.1 | an entropy bonus gains pass@1 | pass@1 | entropy bonus | REINFORCE |  | no gain
3.1 | Pos-Only beats the entropy bonus in pass@1 | pass@1 | Pos-Only | entropy bonus
3.2 | EntDecrease lowers entropy | entropy | GRPO, tokens | EntDecrease
3.2 | EntIncrease raises entropy | entropy | EntIncrease | GRPO, tokens
3.2 | EntDecrease hurts pass@1 | pass@1 | GRPO, tokens | EntDecrease
3.2! | EntIncrease hurts pass@1 | pass@1 | GRPO, tokens | EntIncrease
4.2 | Pos-Only beats REINFORCE in pass@1 | pass@1 | Pos-Only | REINFORCE | 0.016
4.2 | Neg-Only beats REINFORCE in pass@1 | pass@1 | Neg-Only | REINFORCE | 0.008
4.2 | GRPO beats Pos-Only in pass@1 | pass@1 | GRPO, tokens | Pos-Only | 0.012
4.2 | GRPO beats Neg-Only in pass@1 | pass@1 | GRPO, tokens | Neg-Only | 0.02
4.2! | AsymGRPO beats GRPO in pass@1 | pass@1 | AsymGRPO | GRPO, tokens | 0.029
4.2 | AsymGRPO beats the tied 0.7 in pass@1 | pass@1 | AsymGRPO | tied 0.7 | 0.022
4.2 | AsymGRPO beats clip-higher in pass@1 | pass@1 | AsymGRPO | clip-higher | 0.006
4.2 | AsymGRPO beats an entropy bonus in pass@1 | pass@1 | AsymGRPO | GRPO, bonus | 0.018
4.2 | AsymGRPO beats Dr.GRPO in pass@1 | pass@1 | AsymGRPO | Dr.GRPO, tokens | 0.012
""",
    "FADE": """
4.1 | delta 2 loses more entropy than delta 1 | entropy | mean | delta 2
4.2 | delta 0.5 learns faster early | early | delta 0.5 | mean
4.2 | delta 0.5 loses pass@16 in the end | pass@16 | mean | delta 0.5 |  | begun
4.2 | delta 0.5 raises the head's rank-1 share | r1 | delta 0.5, untied | mean, untied |  | small head
4.2 | delta 2 leaves it below that of delta 0.5 | r1 | delta 0.5, untied | delta 2, untied
4.3 | Power 2 keeps more pass@16 than delta 1 | pass@16 | Power 2 | mean | 0.05
4.3 | the weight of pass@4 keeps more of the slope b than delta 1 | slope | pass@4 | mean
5 | setting: FADE's delta falls below 1 | 1 - delta | FADE | 0 |  | target
5! | FADE is first at the best static weight's peak | reach | best static | FADE |  | reward
5! | FADE beats the best static weight in pass@1 | pass@1 | FADE | best static
5 | FADE beats the best static weight in pass@4 | pass@4 | FADE | best static
5 | FADE beats the best static weight in pass@16 | pass@16 | FADE | best static
5 | without delta FADE's entropy collapses | entropy | FADE | alpha only
5 | without alpha FADE loses pass@16 | pass@16 | FADE | delta only
5 | a log-schedule loses pass@16 | pass@16 | FADE | log-schedule
5 | alpha and delta by entropy alone lose pass@16 | pass@16 | FADE | entropy only
12 | the shifted power law fits pass@k to 0.02 | fit error | 0.02 | GRPO |  | laws
""",
    "CW-GRPO": """
2.2 | the top 1% of tokens hold 0.12 of the covariance | top 1% share | CW-GRPO | 0.12 |  | signs
3.2! | CW-GRPO's entropy moves less than GRPO's | swing | GRPO | CW-GRPO
3.2! | CW-GRPO beats GRPO in pass@1 | pass@1 | CW-GRPO | GRPO | 0.027
3.2 | Clip-Cov beats GRPO in pass@1 | pass@1 | Clip-Cov | GRPO | 0.01 | many
3.2 | CW-GRPO beats Clip-Cov in pass@1 | pass@1 | CW-GRPO | Clip-Cov | 0.017
""",
    OF_NO_PAPER: """
SmolLM2-135M | 1e-5 ends above 3e-5 in pass@1 | pass@1 | GRPO | GRPO, 3e-5
""",
}


def read_row(paper: str, line: str) -> Row:
    """The row of a line of CLAIMS."""
    section, text, metric, *rest = (cell.strip() for cell in line.split("|"))
    above, below, effect, note = (rest + ["", ""])[:4]
    return Row(
        paper=paper,
        section=section.removesuffix("!"),
        text=text,
        metric=metric,
        above=run_or_number(above),
        below=run_or_number(below),
        effect=float(effect) if effect else OURS[metric],
        printed=bool(effect),
        far=NOTES[note] if note else "",
        headline=section.endswith("!"),
    )


def plain_row(metric: str, above: str, below: str) -> Row:
    """The difference of two runs that no claim is about."""
    return Row("", "", "", metric, above, below, 1.0, True, "", False)


def run_or_number(cell: str) -> str | float:
    """A side of a row, which is the name of a run or a number."""
    return float(cell) if cell.replace(".", "").isdigit() else cell


ROWS = [read_row(paper, line) for paper, text in CLAIMS.items() for line in text.split("\n")[1:-1]]


def static_weights(base: str) -> list[str]:
    """FADE's rivals that are run from a base."""
    return [name for name in STATIC_WEIGHTS if name in RUNS[base]]


def run_of(base: str, side: str) -> str:
    """The run that stands for one side of a row."""
    return side if side in RUNS[base] else ALIASES.get(side, side)


def runs_of(claim: Row, base: str) -> tuple[str, ...]:
    """The runs that a row compares. The start is seen in the first evaluation of the other one."""
    sides = [side for side in (claim.above, claim.below) if isinstance(side, str)]
    found = [run_of(base, side) for side in sides if side not in (START, BEST_STATIC)]
    if BEST_STATIC in sides:
        found += static_weights(base)
    return tuple(dict.fromkeys(found))


def rows_from(base: str) -> list[Row]:
    """The rows whose runs are made from this base; from the strong policy the headlines alone."""
    found = [claim for claim in ROWS if {*runs_of(claim, base)} <= {*RUNS[base]}]
    return [claim for claim in found if claim.headline or base != "strong"]

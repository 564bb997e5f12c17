"""What claims.py tries: the runs, and the papers' claims about them."""
# ruff: noqa: E501  (a claim is one line of a table)

from typing import NamedTuple

LANGUAGE_MODEL = "SmolLM2-135M"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
MIDDLE = "middle"

START = "start"  # the policy before training
GROWTH = "Proposition 1"  # trains nothing, and is kept from an earlier study alone
LONG = "GRPO, long"
BEST_STATIC = "best static"
STATIC_WEIGHTS = ("mean", "delta 0.5", "Power 2")  # without feedback, FADE's rivals

EQUAL = "--equalize_learning_rate"  # as section 11.3 of FADE has it
BASELINES = "studies/baselines/baselines.py"
CONSTANT = f"{BASELINES} --aggregation constant"  # as fade.py
UNTIED = "--no_tie_word_embeddings"
PRINTED_CLIPPING = "--epsilon 0.2 --epsilon_high 0.2"  # as two-stage dynamics prints it for GSPO
GSPO_CLIPPING = "--epsilon 3e-4 --epsilon_high 4e-4"
OF_HEADLINES = {  # the name of a run, and its script and flags
    "GRPO": "grpo.py",
    "A-GRAE": "agrae.py",
    "negative-dominant": f"{BASELINES} --advantage negative_dominant",
    "two-stage GRPO": "grpo.py --variant two-stage-grpo",
    "two-stage GRPO-N": "grpo.py --variant two-stage-grpo-n",
    "GRPO, tokens": "asymgrpo.py --variant grpo",
    "AsymGRPO": "asymgrpo.py",
    "FADE": f"fade.py --target_entropy 0.2 {EQUAL}",  # above the start's, so that delta moves
    "mean": f"{CONSTANT} --advantage mean {EQUAL}",
    "delta 0.5": f"{CONSTANT} --advantage asym {EQUAL}",
    "Power 2": f"{CONSTANT} --advantage power {EQUAL}",
    "EntIncrease": "asymgrpo.py --variant ent-increase",
    "CW-GRPO": "cwgrpo.py",
}
FROM_THE_MIDDLE_BASE = {
    **OF_HEADLINES,
    GROWTH: "",
    "positive-dominant": f"{BASELINES} --advantage positive_dominant",
    "hard-focused": f"{BASELINES} --advantage hard_focused",
    "easy-focused": f"{BASELINES} --advantage easy_focused",
    "sample level": "agrae.py --variant sample-level",
    "group level": "agrae.py --variant group-level",
    "W-REINFORCE": f"{BASELINES} --advantage w_reinforce",
    "GRPO-LEAD": f"{BASELINES} --advantage grpo_lead",
    "DAPO": "grpo.py --variant dapo --no_dynamic_sampling",
    "A-GRAE, DAPO": "agrae.py --variant agrae-dapo",
    "Dr.GRPO": "grpo.py --variant dr-grpo",
    "A-GRAE, Dr.GRPO": "agrae.py --variant agrae-dr-grpo",
    "GSPO": f"grpo.py --variant two-stage-gspo {GSPO_CLIPPING}",
    "GSPO-N": f"grpo.py --variant two-stage-gspo-n {GSPO_CLIPPING}",
    "GSPO, 0.2": f"grpo.py --variant two-stage-gspo {PRINTED_CLIPPING}",
    "GSPO-N, 0.2": f"grpo.py --variant two-stage-gspo-n {PRINTED_CLIPPING}",
    LONG: "grpo.py --variant two-stage-grpo --max_steps 192 --save_steps 192",
    "REINFORCE": "asymgrpo.py --variant reinforce --log_gain",
    "Pos-Only": "asymgrpo.py --variant pos-only",
    "Neg-Only": "asymgrpo.py --variant neg-only --log_gain",
    "Neg-Only 0.75": "asymgrpo.py --variant neg-only --beta_neg 0.75 --log_gain",
    "entropy bonus": "asymgrpo.py --variant reinforce --entropy_coef 0.002",
    "tied 0.7": "asymgrpo.py --variant symmetric",
    "clip-higher": "asymgrpo.py --variant grpo --epsilon_high 0.28",
    "GRPO, bonus": "asymgrpo.py --variant grpo --entropy_coef 0.001",
    "Dr.GRPO, tokens": "grpo.py --variant dr-grpo --aggregation token",
    "EntDecrease": "asymgrpo.py --variant ent-decrease",
    "delta 2": f"{CONSTANT} --advantage asym --delta 2 {EQUAL}",
    "pass@4": f"{CONSTANT} --advantage mix_pass_k --k 4 {EQUAL}",
    "alpha only": f"fade.py --variant alpha-only {EQUAL}",
    "delta only": f"fade.py --variant delta-only --target_entropy 0.2 {EQUAL}",
    "log-schedule": f"{BASELINES} --advantage power --log_schedule --aggregation constant {EQUAL}",
    "entropy only": f"fade.py --variant entropy-only --target_entropy 0.2 {EQUAL}",
    "mean, untied": f"{CONSTANT} --advantage mean {EQUAL} {UNTIED}",
    "delta 0.5, untied": f"{CONSTANT} --advantage asym {EQUAL} {UNTIED}",
    "delta 2, untied": f"{CONSTANT} --advantage asym --delta 2 {EQUAL} {UNTIED}",
    "Clip-Cov": f"{BASELINES} --token clip_cov --clip_cov_fraction 0.01",
}
OF_BOTH = ("GRPO", "A-GRAE", "two-stage GRPO-N", "AsymGRPO", "mean", "EntIncrease", "CW-GRPO")
FROM_THE_LANGUAGE_MODEL = {
    **{name: OF_HEADLINES[name] for name in OF_BOTH},
    "FADE": f"fade.py {EQUAL}",  # its target is half of the first entropy, as in the paper
    "GRPO, 3e-5": "grpo.py --learning_rate 3e-5",
}
FIELD = {  # methods that none of the five papers compares with; see baselines.py --list
    "GRPO": BASELINES,
    "DPPO": f"{BASELINES} --loss dppo",
    "SAPO": f"{BASELINES} --loss sapo",
    "CISPO": f"{BASELINES} --loss cispo --epsilon 1 --aggregation token",
    "KL-Cov": f"{BASELINES} --loss kl_cov --kl_cov_fraction 0.01",
    "GDPO": f"{BASELINES} --advantage gdpo --format_share 0.1",
    "batch std": f"{BASELINES} --advantage batch_std",
    "RLOO": f"{BASELINES} --advantage rloo",
    "MaxRL": f"{BASELINES} --advantage maxrl",
    "80/20": f"{BASELINES} --token high_entropy",
    "OTB": f"{BASELINES} --token otb --no_scale_rewards",
    "sequence mask": f"{BASELINES} --off_policy_mask_threshold 0.001",
    "unbiased KL": f"{BASELINES} --beta 0.001 --use_bias_correction_kl",
    "distillation": f"{BASELINES} --teacher strong",
}
# The field's trust regions where they act: four passes over a rollout that is four steps old.
STALE = "--num_iterations 4 --staleness 4"
NO_MASK = "--loss dppo --epsilon 1 --epsilon_high 1"  # no probability can move by more than 1
TRUST = {
    "GRPO": f"{BASELINES} {STALE}",
    "no trust region": f"{BASELINES} {NO_MASK} {STALE}",
    **{name: f"{FIELD[name]} {STALE}" for name in ("DPPO", "SAPO", "CISPO")},
    **{name: f"{BASELINES} --loss {name.lower()} {STALE}" for name in ("IPO", "UP", "DRO")},
    "sequence mask": f"{BASELINES} --off_policy_mask_threshold 0.05 {STALE}",
}
RUNS = {
    "middle": FROM_THE_MIDDLE_BASE,
    "strong": OF_HEADLINES,
    LANGUAGE_MODEL: FROM_THE_LANGUAGE_MODEL,
}
# Its completions are of nearly one length, so that one GRPO stands for all three.
ALIASES = {LANGUAGE_MODEL: {"two-stage GRPO": "GRPO", "GRPO, tokens": "GRPO"}}

OURS = {  # the least difference that would matter where a paper prints none; 0.02 of all others
    "pass@16": 0.03,
    "kappa": 0.002,
    "growth": 0.002,
    "correlation": 0.3,
    "reach": 5.0,
    "r1": 0.05,
    "slope": 0.1,
    "fit error": 0.002,
    "top 1% share": 0.03,
    "1 - delta": 0.05,
}

# section (! for a headline) | claim | metric | above | below | effect, where printed
# A-GRAE's effects are those of MATH with 7 B (Tables 2, 5 and 6). Those of two-stage dynamics are
# means over AMC and AIME with 7 B (Tables 1 and 4), where no other is named; that of answers is
# printed as 0.057, which must be in bits.
CLAIMS = {
    "A-GRAE": """
4.2 | positive-dominant loses more entropy than GRPO | entropy | GRPO | positive-dominant
4.2 | positive-dominant ends with a lower pass@16 | pass@16 | GRPO | positive-dominant | 0.018
4.2 | negative-dominant has more entropy than GRPO | entropy | negative-dominant | GRPO
4.2! | negative-dominant ends with a higher pass@16 | pass@16 | negative-dominant | GRPO | 0.025
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
5.4 | all of it keeps more pass@16 than its group level (the text; Table 5 has the contrary on MATH) | pass@16 | A-GRAE | group level
""",
    "two-stage dynamics": """
C.3! | in Table 3, GRPO's pass@16 falls below the start's (MATH-500; not on four of five sets) | pass@16 | start | two-stage GRPO | 0.032
4.2 | GRPO raises pass@1 | pass@1 | two-stage GRPO | start | 0.106
4.2! | GRPO-N keeps more pass@16 than GRPO | pass@16 | two-stage GRPO-N | two-stage GRPO | 0.011
4.2 | GRPO-N is above the start in pass@16 | pass@16 | two-stage GRPO-N | start | 0.051
4.2 | GRPO-N has more entropy than the start | entropy | two-stage GRPO-N | start
4.2 | GRPO-N raises pass@1 over the start | pass@1 | two-stage GRPO-N | start | 0.106
4.2 | GRPO-N raises greedy accuracy over the start | greedy | two-stage GRPO-N | start
4.2 | GSPO-N keeps more pass@16 than GSPO (clipping 3e-4 and 4e-4) | pass@16 | GSPO-N | GSPO | 0.007
4.2 | GSPO-N keeps more pass@16, both clipping at 0.2 | pass@16 | GSPO-N, 0.2 | GSPO, 0.2 | 0.007
C.5 | GRPO-N keeps more entropy than GRPO | entropy | two-stage GRPO-N | two-stage GRPO | 0.05
C.5 | GRPO-N's answers are more diverse than GRPO's | answer_entropy | two-stage GRPO-N | two-stage GRPO | 0.04
C.5 | GSPO-N keeps more entropy than GSPO | entropy | GSPO-N | GSPO | 0.009
3.1 | pass@16 rises again in four times as many steps (too few steps for a second stage) | pass@16 | GRPO, long | two-stage GRPO
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
3.1 | an entropy bonus gains pass@1 (the section also says none) | pass@1 | entropy bonus | REINFORCE
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
4.2 | delta 0.5 loses pass@16 in the end (48 steps are a beginning) | pass@16 | mean | delta 0.5
4.2 | delta 0.5 raises the head's rank-1 share (a head of 26 tokens) | r1 | delta 0.5, untied | mean, untied
4.2 | delta 2 leaves it below that of delta 0.5 | r1 | delta 0.5, untied | delta 2, untied
4.3 | Power 2 keeps more pass@16 than delta 1 | pass@16 | Power 2 | mean | 0.05
4.3 | the weight of pass@4 keeps more of the slope b than delta 1 | slope | pass@4 | mean
5 | setting: FADE's delta falls below 1 (a target above the start's entropy) | 1 - delta | FADE | 0
5! | FADE reaches the best static weight's peak first (training reward for held-out pass@1) | reach | best static | FADE
5! | FADE beats the best static weight in pass@1 | pass@1 | FADE | best static
5 | FADE beats the best static weight in pass@4 | pass@4 | FADE | best static
5 | FADE beats the best static weight in pass@16 | pass@16 | FADE | best static
5 | without delta FADE's entropy collapses | entropy | FADE | alpha only
5 | without alpha FADE loses pass@16 | pass@16 | FADE | delta only
5 | a log-schedule loses pass@16 | pass@16 | FADE | log-schedule
5 | alpha and delta by entropy alone lose pass@16 | pass@16 | FADE | entropy only
12 | the shifted power law fits pass@k to 0.02 (and better than other laws) | fit error | 0.02 | GRPO
""",
    "CW-GRPO": """
2.2 | the top 1% of tokens hold 0.12 of the covariance (of both signs; by Table 1 some 0.12 and 0.17) | top 1% share | CW-GRPO | 0.12
3.2! | CW-GRPO's entropy moves less than GRPO's | swing | GRPO | CW-GRPO
3.2! | CW-GRPO beats GRPO in pass@1 | pass@1 | CW-GRPO | GRPO | 0.027
3.2 | Clip-Cov beats GRPO in pass@1 (1% of the tokens, not 0.02%) | pass@1 | Clip-Cov | GRPO | 0.01
3.2 | CW-GRPO beats Clip-Cov in pass@1 | pass@1 | CW-GRPO | Clip-Cov | 0.017
""",
    "no paper's": """
SmolLM2-135M | 1e-5 ends above 3e-5 in pass@1 | pass@1 | GRPO | GRPO, 3e-5
""",
}


class Row(NamedTuple):
    """A claim: the metric of one run is above that of the other, by about `effect`."""

    metric: str
    above: str | float  # a run, START, BEST_STATIC or a number
    below: str | float
    effect: float = 1.0
    printed: bool = False  # in the paper; else the effect is of OURS
    paper: str = ""
    section: str = ""
    text: str = ""
    headline: bool = False


def read_row(paper: str, line: str) -> Row:
    """The row of a line of CLAIMS."""
    section, text, metric, *sides, effect = (cell.strip() for cell in f"{line} |".split("|")[:6])
    above, below = (float(side) if side.replace(".", "").isdigit() else side for side in sides)
    return Row(
        metric,
        above,
        below,
        effect=float(effect or OURS.get(metric, 0.02)),
        printed=bool(effect),
        paper=paper,
        section=section.removesuffix("!"),
        text=text,
        headline=section.endswith("!"),
    )


ROWS = [read_row(paper, line) for paper, text in CLAIMS.items() for line in text.split("\n")[1:-1]]


def runs_of(row: Row, base: str) -> list[str]:
    """The runs that a row compares. The start is seen in the first evaluation of the other one."""
    found = []
    for side in (row.above, row.below):
        if side == BEST_STATIC:
            found += [name for name in STATIC_WEIGHTS if name in RUNS[base]]
        elif isinstance(side, str) and side != START:
            found.append(side)
    return found


def rows_from(base: str) -> list[Row]:
    """The rows whose runs are made from this base; from the strong policy the headlines alone."""
    known = {*RUNS[base], *ALIASES.get(base, ())}
    rows = [row for row in ROWS if {*runs_of(row, base)} <= known]
    return [row for row in rows if row.headline or base != "strong"]

"""The commands under "The papers' settings" of docs/real-models.md beside what is printed."""

import copy

from rlvr import world
from rlvr.tasks.problems import Problem
from rlvr.tasks.prompts import write_prompts
from rlvr.verify import SYSTEM_PROMPTS

import pytest
from test_docs import TEXTS, commands_of

ALL = 0  # --eval_problems of a whole set
# What each command has to say, or None where its paper prints nothing. Minibatches are counted in
# completions, where the papers count prompts.
TRAINING = {
    *("variant", "prompts_per_step", "num_generations", "minibatch_size", "learning_rate"),
    *("temperature", "max_completion_length", "max_steps"),
}
EVALUATION = {
    *("eval_dataset", "eval_problems", "eval_samples", "eval_temperature", "top_p"),
    "length_of_an_evaluation",
}
MATH = dict(dataset="math", num_generations=8, temperature=1.0, eval_problems=ALL)
# A-GRAE 4.1 and C.2
AGRAE = dict(learning_rate=1e-6, max_completion_length=2048)
AGRAE_EVALUATION = dict(eval_temperature=0.6, top_p=0.95, length_of_an_evaluation=4096)
# two-stage dynamics 4.1, B.5 and C.2; no number of steps
TWO_STAGE_EVALUATION = dict(
    system_prompt="assistant",
    user_suffix="boxed",
    eval_temperature=0.6,
    top_p=0.95,
    length_of_an_evaluation=3072,
)
TWO_STAGE = dict(
    **MATH,
    **TWO_STAGE_EVALUATION,
    variant="two-stage-grpo-n",
    negatives_only=True,
    prompts_per_step=1024,
    minibatch_size=256 * 8,
    learning_rate=1e-6,
    max_completion_length=4096 - 1024,
    max_prompt_length=1024,
    beta=1e-3,
    entropy_coef=1e-4,
    epsilon=0.2,
    max_steps=None,
    eval_dataset="",  # the test set of MATH, for Figures 2 and 4: greedy, and entropy
    eval_samples=1,
)
TWO_STAGE_TABLES = dict(**TWO_STAGE_EVALUATION, eval_samples=256)
# AsymGRPO 4.2, Appendices G and H; curves at temperature 0, which is the metric `greedy`
FIVE_SETS = "math500,aime24,aime25,amc23,olympiadbench"
ASYMGRPO = dict(
    **MATH,
    variant="asymgrpo",
    beta_pos=0.9,
    beta_neg=0.4,
    aggregation="token",
    learning_rate=2e-6,
    max_steps=None,
    eval_dataset=FIVE_SETS,
    eval_steps=10,
    eval_samples=1,
    eval_temperature=0.4,
    top_p=1.0,
)
ASYMGRPO_TABLES = dict(
    eval_problems=ALL,
    eval_temperature=0.4,
    top_p=1.0,
    length_of_an_evaluation=4096,
    chat_template_kwargs='{"enable_thinking": false}',
)
# FADE 3, 10, 11.1, 11.2: two samples for each k of pass@k, up to 100
FADE = dict(eval_problems=ALL, eval_temperature=1.0, top_p=1.0)
RECIPES = [
    dict(
        command=("agrae", 8),
        **MATH,
        **AGRAE,
        **AGRAE_EVALUATION,
        variant="agrae",
        max_steps=20 * 7500 // 1024,  # 20 epochs
        alpha=1.0,
        prompts_per_step=1024,
        minibatch_size=256 * 8,
        eval_dataset="",
        eval_samples=4,
    ),
    dict(
        command=("agrae", 8),
        **AGRAE_EVALUATION,
        eval_dataset="math,aime25,amc23",  # Tables 2, 5 and 6
        eval_problems=ALL,
        eval_samples=256,
    ),
    dict(command=("grpo", 8), **TWO_STAGE),
    dict(
        command=("grpo", 8),
        **TWO_STAGE_TABLES,
        eval_dataset="math500,aime24,aime25,amc23",
        eval_problems=ALL,
    ),
    dict(command=("grpo", 8), **TWO_STAGE_TABLES, eval_dataset="arc,mmlu-pro", eval_problems=128),
    dict(
        command=("asymgrpo", 4),
        **ASYMGRPO,
        prompts_per_step=128,
        minibatch_size=64 * 8,
        max_completion_length=4096,
        length_of_an_evaluation=4096,
        chat_template_kwargs='{"enable_thinking": false}',
    ),
    dict(
        command=("asymgrpo", 4),
        **ASYMGRPO,
        prompts_per_step=512,
        minibatch_size=128 * 8,
        max_completion_length=2560,
        length_of_an_evaluation=2560,
    ),
    dict(
        command=("asymgrpo", 4),
        **ASYMGRPO_TABLES,
        eval_dataset="aime24,aime25,amc23",
        eval_samples=10,
    ),
    dict(
        command=("asymgrpo", 4),
        **ASYMGRPO_TABLES,
        eval_dataset="math500,olympiadbench",
        eval_samples=5,
    ),
    dict(
        command=("fade", 8),
        **FADE,
        variant="fade",
        alpha_max=3.0,
        ema_beta=0.02,
        target_entropy=None,
        epsilon=0.2,
        aggregation="constant",
        prompts_per_step=None,
        num_generations=None,
        minibatch_size=None,
        learning_rate=1e-7,
        temperature=1.0,
        max_completion_length=8192,
        max_steps=20000,
        eval_dataset="livecodebench-v6",
        eval_samples=1,
        length_of_an_evaluation=8192,
    ),
    dict(
        command=("fade", 8),
        **FADE,
        eval_dataset="livecodebench-v5,livecodebench-v6",  # Tables 3 and 6
        eval_samples=256,
        length_of_an_evaluation=8192,
    ),
    dict(
        command=("fade", 8),
        **FADE,
        eval_dataset="aime24,aime25",  # Table 4
        eval_samples=256,
        length_of_an_evaluation=14000,
    ),
    dict(
        command=(
            "cwgrpo",
            4,
        ),  # 3.1, Apps. B and C, Table 5; how it evaluates is of its released code
        variant="paper",
        dataset="open-rs",
        prompts_per_step=12,
        num_generations=12,
        minibatch_size=12 * 4 * 3,
        learning_rate=1e-6,
        warmup_ratio=0.1,
        temperature=0.7,
        max_prompt_length=512,
        max_completion_length=4096,
        max_steps=100,
        format_weight=1.0,
        format_tags="think",
        system_prompt="think",
        eval_dataset="aime24,math500,amc23,minerva,olympiadbench",
        eval_problems=ALL,
        eval_samples=1,
        eval_temperature=0.6,
        top_p=0.95,
        length_of_an_evaluation=32768,
    ),
    dict(command=("grpo", 8), **TWO_STAGE),  # Llama
    dict(
        command=("agrae", 8),  # images
        **AGRAE,
        **AGRAE_EVALUATION,
        variant="images",
        max_steps=20 * 2101 // 512,  # 20 epochs
        dataset="geo3k",
        alpha=0.5,
        format_share=0.9,
        system_prompt="monologue",
        prompts_per_step=512,
        num_generations=5,
        minibatch_size=256 * 5,  # that of the text runs, since none is printed
        temperature=1.0,
        eval_dataset="geo3k,mathvision,mathverse",
        eval_problems=ALL,
        eval_samples=4,
    ),
]
SECTION = TEXTS["real-models.md"].partition("## The papers' settings\n")[2]
COMMANDS = [*commands_of("\n".join(SECTION.split("```")[1::2]))]


def test_every_command_is_compared():
    written = [(script, ranks) for script, _, ranks in COMMANDS]
    assert written == [recipe["command"] for recipe in RECIPES]


@pytest.fixture
def config_of(parsed, monkeypatch):
    """config_of(number): the flags of a command, with its variant and all defaults."""

    def parse(number):
        script, given, ranks = COMMANDS[number]
        monkeypatch.setattr(world, "WORLD_SIZE", ranks)
        return parsed(script, *given)

    return parse


@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_a_command_is_what_its_paper_prints(config_of, number):
    """All that is printed, be it by a flag, a variant or a default; nothing is left out."""
    config, printed = config_of(number), RECIPES[number]
    assert printed.keys() >= (TRAINING | EVALUATION if config.max_steps else EVALUATION)
    for name, value in printed.items():
        if name == "length_of_an_evaluation":
            assert (config.eval_max_completion_length or config.max_completion_length) == value
        elif name != "command" and value is not None:
            assert getattr(config, name) == value, name


def test_the_prompt_of_two_stage_dynamics_for_a_model_with_another_template(config_of, tiny):
    """As C.2 prints it, with the question for {input}, but for a line break behind the box."""
    config = next(config_of(i) for i, row in enumerate(COMMANDS) if "meta-llama" in str(row))
    tokenizer = copy.deepcopy(tiny[1])
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
    system = SYSTEM_PROMPTS[config.system_prompt]
    (problem,) = write_prompts([Problem("What?", "5")], system, config, tokenizer)
    assert problem.prompt == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nWhat?\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )

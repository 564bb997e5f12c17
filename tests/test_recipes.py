"""The commands under "The papers' settings" of docs/real-models.md beside what is printed."""

import ast

from rlvr import world

import pytest
from test_docs import TEXTS, commands_of

# Of each command its script, its ranks, and what its paper prints; _ is a space. Minibatches are
# counted in completions, where the papers count prompts; 0 evaluation problems are all.
MATH = "dataset=math num_generations=8 temperature=1.0 eval_problems=0 "
# A-GRAE 4.1 and C.2; its tables 2, 5 and 6. Steps are 20 epochs of MATH's 7,500 problems.
AGRAE = "learning_rate=1e-6 max_completion_length=2048 "
AGRAE_EVALUATION = "eval_temperature=0.6 top_p=0.95 length_of_an_evaluation=4096 "
# two-stage dynamics 4.1, B.5 and C.2. It evaluates on the test set of MATH for Figures 2 and 4:
# greedy, and entropy.
TWO_STAGE_EVALUATION = """system_prompt=assistant user_suffix=boxed eval_temperature=0.6 top_p=0.95
    length_of_an_evaluation=3072 """
TWO_STAGE = f"""{MATH} {TWO_STAGE_EVALUATION}
    max_steps=147 negatives_only=True prompts_per_step=1024 minibatch_size=2048
    learning_rate=1e-6 max_completion_length=3072 max_prompt_length=1024
    beta=1e-3 entropy_coef=1e-4 epsilon=0.2 eval_dataset= eval_samples=1"""
# AsymGRPO 4.2, Appendices G and H; curves at temperature 0, which is the metric `greedy`
ASYMGRPO_EVALUATION = "eval_temperature=0.4 top_p=1.0 eval_problems=0 "
ASYMGRPO = f"""{MATH} {ASYMGRPO_EVALUATION}
    beta_pos=0.9 beta_neg=0.4 aggregation=token learning_rate=2e-6 eval_samples=1 eval_steps=10
    eval_dataset=math500,aime24,aime25,amc23,olympiadbench"""
NO_THINKING = 'length_of_an_evaluation=4096 chat_template_kwargs={"enable_thinking":_false} '
# FADE 3, 10, 11.1, 11.2: two samples for each k of pass@k, up to 100; its tables 3, 4 and 6
FADE = "eval_problems=0 eval_temperature=1.0 top_p=1.0 "
# CW-GRPO 3.1, Apps. B and C, Table 5; how it evaluates is of its released code
CWGRPO = """dataset=open-rs prompts_per_step=12 num_generations=12 minibatch_size=144
    learning_rate=1e-6 warmup_ratio=0.1 temperature=0.7 max_prompt_length=512 max_steps=100
    format_weight=1.0 format_tags=think system_prompt=think eval_problems=0 eval_samples=1
    eval_dataset=aime24,math500,amc23,minerva,olympiadbench eval_temperature=0.6 top_p=0.95
    length_of_an_evaluation=32768"""
# as in the config.json of each on the hub
CONTEXTS = {
    "Qwen/Qwen2.5-Math-7B": 4096,
    "Qwen/Qwen2.5-Math-1.5B": 4096,
    "Qwen/Qwen2.5-Math-7B-Instruct": 4096,
    "Qwen/Qwen2.5-7B-Instruct": 32768,
    "Qwen/Qwen3-4B": 40960,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 131072,
    "meta-llama/Llama-3.2-3B-Instruct": 131072,
}
RECIPES = [
    f"""agrae 8 {MATH} {AGRAE} {AGRAE_EVALUATION} alpha=1.0 max_steps=147
        prompts_per_step=1024 minibatch_size=2048 eval_dataset= eval_samples=4""",
    f"agrae 8 {AGRAE_EVALUATION} eval_dataset=math,aime25,amc23 eval_problems=0 eval_samples=256",
    f"grpo 4 {TWO_STAGE}",
    f"""grpo 4 {TWO_STAGE_EVALUATION} eval_dataset=math500,aime24,aime25,amc23 eval_problems=0
        eval_samples=256""",
    f"""grpo 4 {TWO_STAGE_EVALUATION} eval_dataset=arc,mmlu-pro eval_problems=128
        eval_samples=256""",
    f"""asymgrpo 4 {ASYMGRPO} {NO_THINKING} prompts_per_step=128 minibatch_size=512
        max_completion_length=4096""",
    f"""asymgrpo 4 {ASYMGRPO} prompts_per_step=512 minibatch_size=1024
        max_completion_length=2560 length_of_an_evaluation=2560""",
    f"""asymgrpo 4 {ASYMGRPO_EVALUATION} {NO_THINKING} eval_dataset=aime24,aime25,amc23
        eval_samples=10""",
    f"""asymgrpo 4 {ASYMGRPO_EVALUATION} {NO_THINKING} eval_dataset=math500,olympiadbench
        eval_samples=5""",
    f"""fade 8 {FADE} alpha_max=3.0 ema_beta=0.02 epsilon=0.2 aggregation=constant
        learning_rate=1e-7 temperature=1.0 max_completion_length=8192 max_steps=20000
        eval_dataset=livecodebench-v6 eval_samples=1 length_of_an_evaluation=8192""",
    f"""fade 8 {FADE} eval_dataset=livecodebench-v5,livecodebench-v6 eval_samples=256
        length_of_an_evaluation=8192""",
    f"fade 8 {FADE} eval_dataset=aime24,aime25 eval_samples=256 length_of_an_evaluation=14000",
    f"cwgrpo 4 {CWGRPO} max_completion_length=4096",
    f"cwgrpo 4 {CWGRPO} max_completion_length=3584",  # what the context of the 7B model leaves
    f"grpo 4 {TWO_STAGE}",  # Llama
]
SECTION = TEXTS["real-models.md"].partition("## The papers' settings\n")[2]
COMMANDS = commands_of("\n".join(SECTION.split("```")[1::2]))


def value_of(word):
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word.replace("_false", " false")


@pytest.mark.parametrize("command, recipe", [*zip(COMMANDS, RECIPES, strict=True)])
def test_a_command_is_what_its_paper_prints(parsed, monkeypatch, command, recipe):
    script, given, ranks = command
    expected_script, expected_ranks, *printed = recipe.split()
    assert (script, ranks) == (expected_script, int(expected_ranks))
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    config = parsed(script, *given)
    length = config.eval_max_completion_length or config.max_completion_length
    if config.max_steps:
        assert config.max_prompt_length + config.max_completion_length <= CONTEXTS[config.model]
    flags = vars(config) | dict(length_of_an_evaluation=length)
    for name, word in (part.split("=") for part in printed):
        assert value_of(word) == flags[name], name

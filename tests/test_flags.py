"""The command line: what is refused and how, --help, presets, saved flags and large defaults."""

import importlib
import io
import json
import re
import sys
from dataclasses import asdict, fields
from pathlib import Path
from typing import get_args, get_type_hints

import rlvr.flags.command_line
from rlvr import world
from rlvr.flags.config import Config
from rlvr.flags.presets import ARITHMETIC, LARGE, PROTOCOLS

import pytest
from runs import SCRIPTS, first_fast, refused, rows, steps


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """parsed(script, *arguments) -> the config, as the script would get it, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def parse(script, *given):
        module = importlib.import_module(script)
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *given])
        return rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)

    return parse


# ------------------------------------------------------------------------------------ what is wrong

WRONG = [  # what is typed, and what the message has to mention
    ("--bogus", "--bogus"),
    ("--bogus 3", "--bogus"),
    ("--max_step 3", "--max_step"),
    ("stray", "stray"),
    ("--variant nope", "nope"),
    ("--dataset nope", "nope"),
    ("--aggregation mean", "mean"),
    ("--eval_dataset math500,nope", "nope"),
    ("--eval_dataset ,", "no data set"),
    ("--eval_protocol 005", "005"),
    ("--system_prompt nope", "nope"),
    ("--verifier nope", "nope"),
    ("--engine tgi", "tgi"),
    ("--vllm_tensor_parallel_size 2", "tensor_parallel_size"),
    ("--importance_sampling_level batch", "batch"),
    ("--report_to nowhere", "nowhere"),
    ("--num_generations 1", "--num_generations"),
    ("--num_generations 0", "--num_generations"),
    ("--minibatch_size 3", "--minibatch_size"),
    ("--minibatch_size 32", "--minibatch_size"),
    ("--minibatch_size 0", "--minibatch_size"),
    ("--prompts_per_step 0", "--prompts_per_step"),
    ("--temperature 0", "--temperature"),
    ("--eval_temperature 0", "--eval_temperature"),
    ("--epsilon 0", "--epsilon"),
    ("--epsilon_high 0", "--epsilon_high"),
    ("--max_grad_norm 0", "--max_grad_norm"),
    ("--num_iterations 0", "--num_iterations"),
    ("--microbatch_tokens 0", "--microbatch_tokens"),
    ("--rollout_batch_size 0", "--rollout_batch_size"),
    ("--max_completion_length 0", "--max_completion_length"),
    ("--num_threads 0", "--num_threads"),
    ("--eval_steps 0", "--eval_steps"),
    ("--save_steps 0", "--save_steps"),
    ("--eval_samples 0", "--eval_samples"),
    ("--eval_problems 0", "--eval_problems"),
    ("--top_p 0", "--top_p"),
    ("--top_p 1.5", "--top_p"),
    ("--max_steps ten", "--max_steps"),
    ("--max_steps 1.5", "--max_steps"),
    ("--max_steps", "--max_steps"),
    ("--no_max_steps", "--no_max_steps"),
    ("--learning_rate fast", "--learning_rate"),
    ("--mask_truncated_completions perhaps", "perhaps"),
    ("--numbers 5", "--numbers"),
    ("--numbers 3,", "--numbers"),
    ("--numbers three", "--numbers"),
    ("--numbers 2;3", "--numbers"),
    (f"--seed {2**64}", "--seed"),
]
OF_EACH_SCRIPT = WRONG[:10]


@pytest.mark.parametrize(
    "script, typed, mentioned",
    [
        *(("grpo", *case) for case in WRONG),
        *((script, *case) for script in SCRIPTS[1:] for case in OF_EACH_SCRIPT),
    ],
)
def test_wrong_flags_and_values_are_refused_in_one_line(no_model, script, typed, mentioned):
    """Without loading a policy."""
    assert refused(no_model(script, *typed.split()), script, mentioned)
    assert not Path("runs").exists()  # nothing was begun


class Terminal(io.StringIO):
    """A stdout on which tyro draws in colours; with hyphens unless it is UTF-8."""

    encoding = "utf-8"

    def isatty(self):
        return True


class OldTerminal(Terminal):
    encoding = "ascii"


@pytest.mark.parametrize("stdout_class", [io.StringIO, Terminal, OldTerminal])
@pytest.mark.parametrize(
    "typed, message",
    [
        ("--bogus", "Unrecognized options: --bogus"),
        ("--max_step 3", "Unrecognized options: --max_step, 3; perhaps you meant --max_steps"),
        ("--max_steps", "Missing value for argument '--max_steps'. Expected 1 values."),
        ("--fsdp no", "--fsdp takes true or false, got 'no'"),
        ("--fsdp=", "--fsdp takes true or false, got ''"),
        (  # a flag that may also be None
            "--num_threads 1.5",
            "Error parsing --num_threads: invalid literal for int() with base 10: '1.5'",
        ),
        (
            "--engine tgi",
            "invalid choice 'tgi' for argument '--engine'. Expected one of ('auto', 'hf', 'vllm').",
        ),
    ],
)
def test_the_line_is_the_sentence_of_tyro_and_no_more(
    parsed, monkeypatch, capsys, stdout_class, typed, message
):
    stdout = stdout_class()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(SystemExit) as ended:
        parsed("grpo", *typed.split())
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"grpo.py: error: {message}\n"
    assert stdout.getvalue() == ""


def number_fields(script):
    """(name, whether it is a float) of the flags that are numbers."""
    kinds = get_type_hints(importlib.import_module(script).Config)
    found = []
    for name, kind in kinds.items():
        parts = {kind, *get_args(kind)}  # those of `float | None`
        if parts & {int, float}:
            found.append((name, float in parts))
    return found


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_no_number_may_be_negative_infinite_or_nan(no_model, script):
    """Of grpo.py all numbers, so that a new flag is covered, too; of the others what they add."""
    shared = {field.name for field in fields(Config)} if script != "grpo" else set()
    flags = [
        (name, is_float)
        for name, is_float in number_fields(script)
        if name not in shared or name in ("learning_rate", "max_steps")
    ]
    assert {("learning_rate", True), ("max_steps", False)} <= set(flags)
    for name, is_float in flags:
        values = {"-1", "nan", "inf"} if is_float else {"-1"}
        for value in values - ({"-1"} if name == "success_threshold" else set()):
            assert refused(no_model(script, f"--{name}={value}"), script, f"--{name}")


def test_ranks_that_do_not_divide_the_batch(no_model, monkeypatch):
    monkeypatch.setattr(world, "WORLD_SIZE", 3)
    assert refused(no_model("grpo"), "grpo", "3 ranks")


def test_a_model_that_does_not_exist(no_model):
    name = "nobody/no-such-model"
    assert refused(no_model("grpo", "--model", name), "grpo", f"--model {name}")
    Path("empty").mkdir()
    assert refused(no_model("grpo", "--model", "empty"), "grpo", "--model empty")


# --------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_explains_every_flag(no_model, monkeypatch, script):
    """Without loading a policy. A flag begins a line, and the lines below it explain it."""
    monkeypatch.setenv("COLUMNS", "80")
    result = no_model(script, "--help")
    assert result.code == 0
    assert not result.err
    explained = {}
    for line in result.out.splitlines():
        text = line.strip("│ ")
        flag = re.match(r"--(\w+)", text)
        if flag:
            name = flag[1]
            explained[name] = ""
        elif explained:
            explained[name] += f" {text}"
    module = importlib.import_module(script)
    for field in fields(module.Config):
        text, _, default = explained[field.name].partition("(default:")
        assert len(text.strip()) > 5, f"--{field.name}: {text!r}"
        assert default, f"--{field.name}"
    for variant in module.VARIANTS:
        assert variant in result.out
    assert not Path("runs").exists()


# ----------------------------------------------------------------------------- booleans, presets


@pytest.mark.parametrize(
    "typed, expected",
    [
        ("--dynamic_sampling", True),
        ("--no_dynamic_sampling", False),
        ("--dynamic_sampling true", True),
        ("--dynamic_sampling false", False),
        ("--dynamic_sampling True", True),
        ("--dynamic_sampling=False", False),
        ("--dynamic-sampling false", False),
        ("--no-dynamic-sampling", False),
        ("--dynamic_sampling --seed 3", True),
        ("--no_dynamic_sampling --dynamic_sampling", True),  # the last one counts
        ("--dynamic_sampling true --dynamic_sampling false", False),
    ],
)
def test_ways_to_give_a_boolean(parsed, typed, expected):
    for variant in ("grpo", "dapo"):  # whose own value is false, and true
        config = parsed("grpo", "--variant", variant, *typed.split())
        assert config.dynamic_sampling is expected


def test_a_flag_that_is_given_wins_over_the_presets(parsed):
    assert parsed("grpo", "--variant", "dapo").epsilon_high == 0.28
    config = parsed("grpo", "--epsilon_high", "0.3", "--variant", "dapo")
    assert (config.epsilon_high, config.aggregation) == (0.3, "token")
    config = parsed("grpo", "--eval_samples", "3", "--eval_protocol", "asymgrpo")
    assert (config.eval_samples, config.eval_temperature) == (3, 0.4)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_variant_sets_its_flags_and_leaves_the_others(parsed, script):
    plain = asdict(parsed(script))
    for variant, preset in importlib.import_module(script).VARIANTS.items():
        assert asdict(parsed(script, "--variant", variant)) == plain | preset | {"variant": variant}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_sets_the_flags_of_the_evaluation_alone(parsed, protocol):
    plain, preset = asdict(parsed("grpo")), PROTOCOLS[protocol]
    config = asdict(parsed("grpo", "--eval_protocol", protocol))
    assert config == plain | preset | {"eval_protocol": protocol}
    assert all(name == "top_p" or name.startswith("eval_") for name in preset)
    # so that in a resumed run nothing is left of another one
    assert not preset or preset.keys() == PROTOCOLS["agrae"].keys()


def test_the_defaults_are_large_beyond_the_tiny_policy_and_countdown(parsed):
    """A local model may be as small as the tiny one."""
    small = asdict(parsed("grpo"))
    assert all(small[name] != value for name, value in LARGE.items())
    Path("folder").mkdir()
    for typed in (
        "--model Qwen/Qwen2.5-0.5B",
        "--dataset gsm8k",
        "--eval_dataset countdown,math500",
    ):
        flag, value = typed.split()
        config = asdict(parsed("grpo", flag, value))
        assert config == small | LARGE | {flag.removeprefix("--"): value}
    for typed in ("--model folder", "--eval_dataset countdown"):
        flag, value = typed.split()
        config = asdict(parsed("grpo", flag, value))
        assert config == small | {flag.removeprefix("--"): value}


def test_arithmetic_has_defaults_of_its_own(parsed):
    """Where it is trained on; what is given wins, and a paper's evaluation does."""
    small = asdict(parsed("grpo"))
    line = "--model HuggingFaceTB/SmolLM2-135M-Instruct --dataset arithmetic"
    config = asdict(parsed("grpo", *line.split()))
    names = dict(model="HuggingFaceTB/SmolLM2-135M-Instruct", dataset="arithmetic")
    assert config == small | LARGE | ARITHMETIC | names
    given = parsed("grpo", *line.split(), "--max_steps", "5", "--eval_protocol", "fade")
    assert (given.max_steps, given.eval_samples) == (5, 256)
    assert given.learning_rate == ARITHMETIC["learning_rate"]
    beside = parsed("grpo", "--dataset", "gsm8k", "--eval_dataset", "arithmetic")
    assert beside.max_completion_length == LARGE["max_completion_length"]


def test_flags_and_presets_win_over_the_large_defaults(parsed):
    config = parsed("grpo", "--dataset", "gsm8k", "--learning_rate", "3e-6")
    assert (config.learning_rate, config.max_steps) == (3e-6, LARGE["max_steps"])
    config = parsed("grpo", "--dataset", "gsm8k", "--eval_protocol", "agrae")
    assert (config.eval_samples, config.max_steps) == (16, LARGE["max_steps"])
    config = parsed("grpo", "--dataset", "gsm8k", "--no_gradient_checkpointing")
    assert not config.gradient_checkpointing


# ------------------------------------------------------------------------------------- saved flags


@pytest.mark.usefixtures("no_evaluation")
def test_flags_win_over_the_presets_and_over_those_of_the_resumed_run(run, resume):
    def saved(*names):
        config = json.loads(Path("run/config.json").read_text())
        return [config[name] for name in names]

    run("grpo", variant="dapo", epsilon_high=0.3, max_steps=1, seed=3)
    assert saved("epsilon_high", "aggregation", "seed") == [0.3, "token", 3]
    result = resume("grpo", "run", max_steps=2, eval_protocol="asymgrpo", eval_samples=3)
    assert result.code == 0, result.err
    assert saved("epsilon_high", "aggregation", "seed") == [0.3, "token", 3]
    assert saved("variant", "max_steps") == ["dapo", 2]
    # the protocol's 10 samples give way to the flag
    assert saved("eval_samples", "eval_temperature") == [3, 0.4]


@pytest.mark.parametrize("path", ["empty", "missing"])
def test_resume_from_a_folder_without_a_run(no_model, path):
    Path("empty").mkdir()
    result = no_model("grpo", "--resume_from_checkpoint", path)
    assert refused(result, "grpo", "--resume_from_checkpoint", path)


@pytest.mark.parametrize("text", ["{", "[]", '{"no_such_flag": 1}', '{"seed": "many"}'])
def test_resume_of_a_run_whose_config_is_not_readable(no_model, text):
    checkpoint = Path("run/checkpoint-1")
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.pt").touch()
    Path("run/config.json").write_text(text)
    assert refused(no_model("grpo", "--resume_from_checkpoint", "run"), "grpo")
    assert Path("run/config.json").read_text() == text


@pytest.mark.usefixtures("no_evaluation")
def test_resume_of_another_script_s_run(run, resume):
    run("grpo", max_steps=1)
    config, metrics = Path("run/config.json").read_text(), rows("run", timed=True)
    result = resume("agrae", "run", max_steps=2)
    assert refused(result, "agrae", "is not a run of this script")
    assert Path("run/config.json").read_text() == config
    assert rows("run", timed=True) == metrics
    assert steps("run") == [1]


def test_the_value_of_a_flag_is_no_flag(parsed):
    config = parsed("grpo", "--output_dir", "num_train_epochs", "--max_steps", "5")
    assert (config.output_dir, config.max_steps) == ("num_train_epochs", 5)


@pytest.mark.usefixtures("no_evaluation")
def test_a_run_s_own_folder_by_another_path(run, resume):
    run("grpo", max_steps=1)
    result = resume("grpo", "run", max_steps=2, output_dir=Path("run").absolute())
    assert result.code == 0, result.err
    assert steps("run") == [1, 2]


@pytest.mark.usefixtures("no_evaluation")
def test_resume_of_the_run_of_a_copy(run, resume):
    """It has the flags of the script that it was copied from, and perhaps another formula."""
    run("grpo", max_steps=1)
    file = Path("run/config.json")
    assert json.loads(file.read_text())["script"] == "grpo.py"
    file.write_text(file.read_text().replace("grpo.py", "mine.py"))
    assert refused(resume("grpo", "run", max_steps=2), "grpo", "run is a run of mine.py")

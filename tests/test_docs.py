"""README.md and docs/ say what the code does: equations, flags, metrics, commands, links, sizes."""

import dataclasses
import functools
import importlib
import inspect
import json
import re
import shlex
from collections import Counter
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import rlvr.flags
from rlvr import world
from rlvr.config import Config
from rlvr.fit import choose_flags
from rlvr.memory import memory_estimate, policy_sizes
from rlvr.presets import ARITHMETIC, CHOSEN_BY_MEMORY, LARGE, PROTOCOLS
from rlvr.tasks.sources import DATASETS
from rlvr.tasks.verifiers import VERIFIERS

import claims
import pytest
import torch
from claims_judge import judge_all
from claims_rows import BASES, ROWS, rows_from
from claims_runs import read_results
from language_model_results import RESULTS, judge_language_model
from runs import ROOT, SCRIPTS, SMALL, arguments, rows
from shapes import QWEN, qwen_shape

import fade

MODULES = {script: importlib.import_module(script) for script in SCRIPTS}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text() for page in PAGES}
README = TEXTS["README.md"]
ALL_TEXT = "\n".join(TEXTS.values())


OUR_TESTS = [page.read_text() for page in (ROOT / "tests").glob("test_*.py")]


def tables(text):
    """The tables of a page: (the heading above, the cells of the first row, the other rows)."""
    found, heading, inside = [], "", False
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if not line.startswith("|"):
            inside = False
            continue
        cells = [
            cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip("|"))
        ]
        if not inside:
            found.append((heading, cells, []))
        elif set("".join(cells)) != {"-"}:
            found[-1][2].append(cells)
        inside = True
    return found


def rows_of_tables(page, first_cell):
    """(heading, cells) of each row of the tables whose first column is named so."""
    return [
        (heading, cells)
        for heading, header, body in tables(TEXTS[page])
        if header[0] == first_cell
        for cells in body
    ]


def as_flags(preset):
    """A preset as it stands on a command line."""
    parts = []
    for name, value in preset.items():
        if isinstance(value, bool):
            parts.append(f"--{name}" if value else f"--no_{name}")
        else:
            parts.append(f"--{name} {value}")
    return f"`{' '.join(parts)}`" if parts else "none"


# --------------------------------------------------------------------------------- sizes and links


def test_the_readme_is_read_in_one_sitting():
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("page", TEXTS)
def test_no_line_is_too_wide(page):
    """Of what a reader reads in the source; tables and commands are as wide as they are."""
    code = False
    for line in TEXTS[page].splitlines():
        if line.startswith("```"):
            code = not code
        elif not code and not line.startswith("|"):
            assert len(line) <= 120, line
    assert not code


def anchors(text):
    """What a heading is called in a link."""
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_files_that_are_named_exist():
    for path in re.findall(r"\b(?:docs|rlvr|studies|tests)/[\w/-]+\.\w+(?:\.gz)?", ALL_TEXT):
        assert (ROOT / path).exists(), path


def test_every_figure_is_shown():
    reports = "".join(page.read_text() for page in (ROOT / "studies").glob("*.md"))
    for figure in (ROOT / "studies" / "figures").glob("*.png"):
        assert figure.name in ALL_TEXT + reports


def test_every_page_is_linked_from_the_readme():
    for page in PAGES[1:]:
        assert f"(docs/{page.name}" in README


def test_the_ci_runs_the_command_of_the_readme():
    """.ci/run takes the first line that installs and tests, and tests have to be all of them."""
    pattern = re.search(r"grep -m 1 '(.*?)' README\.md", (ROOT / ".ci" / "run").read_text())[1]
    command = next(line for line in README.splitlines() if re.search(pattern, line))
    assert command.endswith("&& python -m pytest -q -n 2 --dist loadfile")
    assert "pip install -r requirements.txt" in command


# ---------------------------------------------------------------------------------------- equations

EQUATIONS = rows_of_tables("equations.md", "equation")


def resolve(path):
    """The object of a dotted path such as common.Batch.sampler_correction."""
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        return functools.reduce(getattr, parts[split:], module)
    raise LookupError(path)


def parts_of(function_cell):
    """[`fade.fade_advantage`](../fade.py) -> the path of the function, and the link."""
    return re.fullmatch(r"\[`([\w.]+)`\]\((.+)\)", function_cell).groups()


@pytest.mark.parametrize("heading, cells", EQUATIONS, ids=[cells[0] for _, cells in EQUATIONS])
def test_the_function_contains_the_line(heading, cells):
    path, link = parts_of(cells[1])
    function = inspect.unwrap(resolve(path))
    lines = [line.split("  # ")[0].strip() for line in inspect.getsource(function).splitlines()]
    assert cells[2].strip("`") in lines
    assert (ROOT / "docs" / link).resolve() == ROOT / inspect.getsourcefile(function)


def test_the_map_covers_every_script():
    mapped = {parts_of(cells[1])[0].split(".")[0] for _, cells in EQUATIONS}
    assert mapped == {"common", "rlvr", *SCRIPTS}
    assert len(EQUATIONS) >= 40


def test_every_policy_weight_is_listed():
    listed = [cells[0].strip("`") for _, cells in rows_of_tables("equations.md", "`--weight`")]
    assert listed == [*fade.POLICY_WEIGHTS]
    assert f"{len(listed)} weights" in TEXTS["equations.md"]


# ------------------------------------------------------------------------------ variants, protocols


def test_the_readme_names_every_variant():
    section = README.partition("## The five algorithms\n")[2].partition("\n## ")[0]
    for script, module in MODULES.items():
        paragraph = next(part for part in section.split("\n\n") if f"({script}.py)" in part)
        names = re.search(r"Variants: ([^.;]*)", paragraph)[1]
        assert re.split(r",\s+", names) == [*module.VARIANTS]


@pytest.mark.parametrize("script", SCRIPTS)
def test_variants_are_presets_of_these_flags(script):
    listed = {
        cells[0]: cells[1]
        for heading, cells in rows_of_tables("papers.md", "variant")
        if re.search(rf"\b{script}\.py", heading)
    }
    variants = MODULES[script].VARIANTS
    assert listed == {name: as_flags(preset) for name, preset in variants.items()}


def test_what_the_tables_of_the_papers_name():
    """Functions and methods of the scripts, and tests of the page that the table links to."""
    for heading, cells in rows_of_tables("papers.md", "the paper"):
        for name in re.findall(rf"`((?:common|{'|'.join(SCRIPTS)})\.[\w.]+)`", cells[1]):
            assert callable(resolve(name)), name
        for name in re.findall(r"`(test_\w+)`", cells[1]):
            assert any(f"def {name}(" in text for text in OUR_TESTS), f"{heading}: {name}"


def test_protocols_are_presets_of_these_flags():
    listed = {
        cells[0]: cells[1] for _, cells in rows_of_tables("real-models.md", "`--eval_protocol`")
    }
    assert listed == {name: as_flags(preset) for name, preset in PROTOCOLS.items()}


# -------------------------------------------------------------------------------------------- flags

PAGE_OF_FLAGS = "flags-and-metrics.md"
LARGE_HEADING = "Other defaults for real models"
SHARED_FLAGS = {
    cells[0].strip("`-"): cells[1:]
    for heading, cells in rows_of_tables(PAGE_OF_FLAGS, "flag")
    if heading != LARGE_HEADING
}
SCRIPT_FLAGS = {
    (cells[0], cells[1].strip("`-")): cells[2:]
    for _, cells in rows_of_tables(PAGE_OF_FLAGS, "script")
}


def choices(kind):
    """The values of a Literal type, also one within markers."""
    if get_origin(kind) is Annotated:
        return choices(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) is Literal else ()


def check_row(config_class, name, cells):
    """A row has the flag's default, all its choices, and whether it may change on resuming."""
    default, resume, meaning = cells
    config = config_class()
    if name != "variant":  # which is named in papers.md
        assert default.strip("`") == (str(getattr(config, name)) or "''")
        for choice in choices(get_type_hints(config_class, include_extras=True)[name]):
            assert f"`{choice}`" in default + meaning, choice
    assert resume == ("may change" if config.may_change(name) else "")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Config)])
def test_shared_flags(name):
    check_row(Config, name, SHARED_FLAGS[name])


@pytest.mark.parametrize("script", SCRIPTS)
def test_flags_of_a_script(script):
    """Those that the script adds, and those whose default is another one."""
    config_class = MODULES[script].Config
    own = {*vars(config_class)["__annotations__"]} - {"variant"}
    assert {name for of, name in SCRIPT_FLAGS if of == script} == own
    for name in own:
        check_row(config_class, name, SCRIPT_FLAGS[script, name])


def test_defaults_for_real_models():
    rows = [
        [cell.strip("`-") for cell in cells]
        for heading, cells in rows_of_tables(PAGE_OF_FLAGS, "flag")
        if heading == LARGE_HEADING
    ]
    for column, preset in ((1, LARGE), (2, ARITHMETIC)):
        listed = {cells[0]: cells[column] for cells in rows if cells[column]}
        assert listed == {name: str(value) for name, value in preset.items()}


OTHER_FLAGS = {  # of torchrun, sbatch, pytest, the studies, and of what a reader adds
    *("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "shutdown_timeout"),
    *("rdzv_backend", "nodes", "gpus", "time", "requeue", "open", "signal"),
    *("no", "programs", "completions", "beside"),  # of pip's --no-deps, and of the load studies
    *("dist", "help", "quick", "work", "hardness", "length_penalty", "flag", "no_flag"),
    *("layers", "every", "measure", "verl", "overlong_cache", "mine", "seeds"),
    *("report", "rows"),
}


def test_flags_that_are_named_exist():
    known = set(OTHER_FLAGS)
    for module in MODULES.values():
        for name in get_type_hints(module.Config):
            known |= (
                {name, f"no_{name}"} if isinstance(getattr(module.Config(), name), bool) else {name}
            )
    named = re.findall(r"(?<![\w-])--([a-z]\w*)", ALL_TEXT)
    assert {*named} <= known


# ------------------------------------------------------------------------------------------ metrics


def in_general(metric):
    """pass@4 -> pass@k, avg@4 -> avg@n, covariance_positive_top_20% -> ..._top_X%."""
    metric = re.sub(r"^pass@\d+$", "pass@k", metric)
    metric = re.sub(r"^avg@\d+$", "avg@n", metric)
    return re.sub(r"_top_[\d.]+%$", "_top_X%", metric)


def metrics_of(heading):
    """The metrics that the table below a heading names."""
    return {
        name
        for above, cells in rows_of_tables(PAGE_OF_FLAGS, "metric")
        if above == heading
        for name in re.findall(r"`([^`]+)`", cells[0])
    }


@pytest.fixture
def run_once(bare, tmp_path):
    """run_once(script, folder, flag=value, ...): a step of a policy that has not been taught."""

    def run(script, folder, **flags):
        small = {**SMALL, "sft_steps": 0, "max_steps": 1, "max_completion_length": 8}
        given = {**small, "cache_dir": tmp_path / "cache", "output_dir": folder, **flags}
        result = bare(script, *arguments(**given))
        assert result.code == 0, result.err

    return run


def test_every_logged_metric_is_explained(run_once, tmp_path):
    steps, evaluations = set(), set()
    for script in SCRIPTS:
        flags = dict(tool="calculator")  # which even a policy that writes at random calls
        flags |= dict(log_gain=True) if script == "asymgrpo" else {}
        folder = tmp_path / script
        run_once(script, folder, **flags)
        steps |= {in_general(key) for row in rows(folder, timed=True) for key in row}
        evaluations |= {in_general(key) for row in rows(folder, "eval") for key in row}
    of_vllm = {"sampler_gap"}  # tests/test_vllm_requests.py shows that it is logged
    assert steps - {"step"} == metrics_of("Metrics of a step") - of_vllm
    assert evaluations - {"step"} <= metrics_of("Metrics of an evaluation")
    # a policy that is always wrong has no curve to fit, and Countdown on two numbers has one level
    rest = {"fit_a", "fit_b", "fit_c", "pass@1 <level>"}
    assert metrics_of("Metrics of an evaluation") <= evaluations | rest


# ----------------------------------------------------------------------------------------- commands


PROGRAMS = [f"{script}.py" for script in SCRIPTS]


def commands_of(text):
    """(script, what it is given, the number of ranks) of each command that runs a script."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        command = line.rpartition("&& ")[2].partition("#")[0].strip()
        if not command.startswith(("python ", "torchrun ")):
            continue
        if "$flags" in command:
            continue  # the lines for a scheduler, which tests/test_scheduler.py runs
        words = shlex.split(command)
        places = [i for i, word in enumerate(words) if word in PROGRAMS]
        if not places:
            continue
        before, after = words[: places[0]], words[places[0] + 1 :]
        counts = dict(zip(before[1::2], before[2::2], strict=False))
        ranks = int(counts.get("--nproc_per_node", 1)) * int(counts.get("--nnodes", 1))
        yield words[places[0]].removesuffix(".py"), after, ranks


def all_commands():
    """Of all pages, in blocks or within a sentence, and of the scripts' docstrings; each once."""
    # those of your-own.md need its edits: tests/test_your_own.py follows that page
    text = "\n".join(text for page, text in TEXTS.items() if page != "your-own.md")
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    in_sentences = re.findall(r"`((?:python|torchrun) [^`\n]+)`", text)
    texts = blocks + in_sentences + [module.__doc__ for module in MODULES.values()]
    found = {str(command): command for text in texts for command in commands_of(text)}
    return [*found.values()]


COMMANDS = [command for command in all_commands() if command[1] != ["--help"]]


def test_commands_are_found():
    assert len(COMMANDS) >= 40
    assert {script for script, _, _ in COMMANDS} == {*SCRIPTS}
    assert {ranks for _, _, ranks in COMMANDS} == {1, 2, 4, 8, 16}


def expected_values(given):
    """What a command line says, as name -> text, True or False."""
    expected, rest = {}, [*given]
    while rest:
        name = rest.pop(0).removeprefix("--")
        if rest and not rest[0].startswith("--"):
            expected[name] = rest.pop(0)
        else:
            expected[name.removeprefix("no_")] = not name.startswith("no_")
    return expected


@pytest.mark.parametrize(
    "script, given, ranks", COMMANDS, ids=[" ".join([c[0], *c[1]])[:80] for c in COMMANDS]
)
def test_commands_are_taken(script, given, ranks, monkeypatch, tmp_path):
    """All flags of a command, up to where a model, data or the run to resume are loaded."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.jsonl").write_text("")
    monkeypatch.setattr("sys.argv", [f"{script}.py", *given])
    monkeypatch.setattr(world, "WORLD_SIZE", ranks)
    module = MODULES[script]
    if "--resume_from_checkpoint" in given:
        config = rlvr.flags.parse(module.Config, module.Config(), given)
    else:
        config = rlvr.flags.parse_flags(module.Config, module.VARIANTS)
    for name, value in expected_values(given).items():
        found = getattr(config, name)
        assert found == (value if isinstance(value, bool) else type(found)(value))


# ----------------------------------------------------------------------------------- other contents


@pytest.mark.parametrize("name", DATASETS)
def test_data_sets_of_the_table(name):
    listed = {
        name: cells
        for heading, cells in rows_of_tables("real-models.md", "name")
        for name in cells[0].split(", ")
    }
    source, (_, paths, use, verifier) = DATASETS[name], listed[name]
    assert source.path in paths.split(", ")
    assert source.verifier == verifier
    assert ("train" in use) == (source.train is not None)
    assert ("by level" in use) == (source.level is not None)


def test_verifiers_of_the_table():
    listed = [cells[0].strip("`") for _, cells in rows_of_tables("real-models.md", "verifier")]
    assert sorted(listed) == sorted(VERIFIERS)


MEMORY = [cells for _, cells in rows_of_tables("many-gpus-and-resuming.md", "model")]


def test_memory_table_has_all_sizes():
    assert {(cells[0], cells[1]) for cells in MEMORY} >= {
        (size, ranks) for size in QWEN for ranks in ("1", "8")
    }
    assert {cells[2] for cells in MEMORY} == {"hf", "vllm"}


@pytest.mark.parametrize("cells", MEMORY, ids=lambda cells: " ".join(cells[:2]))
def test_memory_table_is_what_is_printed(cells, monkeypatch):
    size, ranks, engine, *numbers = cells
    monkeypatch.setattr(world, "WORLD_SIZE", int(ranks))
    config = Config(**LARGE, engine=engine)
    estimate = memory_estimate(policy_sizes(qwen_shape(size)), config, 80.0)
    assert numbers == [f"{value:.1f}" for value in estimate.values()]


CHOSEN = rows_of_tables("many-gpus-and-resuming.md", "model on so many GPUs of")


@pytest.mark.parametrize("cells", [cells for _, cells in CHOSEN], ids=lambda cells: cells[0])
def test_flags_that_are_chosen_by_memory(cells, monkeypatch):
    size, ranks = cells[0].split(" on ")
    monkeypatch.setattr(world, "WORLD_SIZE", int(ranks))
    config = Config(**LARGE, engine="vllm")
    for gpu_memory, listed in zip((24, 40, 80), cells[1:], strict=True):
        sizes = policy_sizes(qwen_shape(size))
        chosen = choose_flags(sizes, config, gpu_memory, CHOSEN_BY_MEMORY)
        words = ["does not fit"]
        if chosen:
            words = [
                f"{chosen['microbatch_tokens']} tokens",
                "checkpointing" * chosen["gradient_checkpointing"],
                "sleep mode" * chosen["vllm_enable_sleep_mode"],
                str(chosen["vllm_gpu_memory_utilization"]),
            ]
        assert listed == ", ".join(filter(None, words))


@functools.cache
def results_of_the_claims():
    """The line of each run that is committed."""
    return read_results(claims.RESULTS)


def test_counts_of_the_verdicts():
    verdicts = judge_all(results_of_the_claims(), BASES)
    count = Counter(found.verdict for found in verdicts)
    text = " ".join(README.split())
    assert f"We tried {len(ROWS)} claims" in text
    assert f'Of {len(verdicts)} verdicts {count["holds"]} are "holds"' in text
    assert f'{count["does not"]} are "does not hold"' in text
    assert f'{count["unclear"]} are "unclear"' in text
    assert f"and {len(rows_from('weak'))} also from `weak`" in text
    judged = [found.verdict for found in judge_language_model(RESULTS) if found.evidence]
    unclear = f"{judged.count('unclear')} of {len(judged)} verdicts are unclear"
    assert f"with three seeds of SmolLM2-135M, {unclear}" in text


def test_your_own_algorithm(run_once, tmp_path, monkeypatch):
    """Its three pieces of code, put where the README says, are a script that trains."""
    section = README.partition("## Your own algorithm\n")[2].partition("\n## ")[0]
    function, flag, call = re.findall(r"```python\n(.*?)```", section, re.S)
    script = (ROOT / "grpo.py").read_text()
    for before, after in (
        ("def main(", function + "\n\ndef main("),
        ("\n\n\ndef grpo_advantage(", "\n" + flag + "\n\ndef grpo_advantage("),
        (re.search(r".*= grpo_advantage\(.*\n", script)[0], call),
    ):
        assert script.count(before) == 1
        script = script.replace(before, after)
    (tmp_path / "mine.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    run_once("mine", tmp_path / "run", hardness=2)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["hardness"] == 2

    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])  # p = 1/4
    advantages = importlib.import_module("mine").my_advantage(rewards, hardness=2)
    expected = 9 / 16 * torch.tensor([[3 / 4, -1 / 4, -1 / 4, -1 / 4]])
    assert torch.allclose(advantages, expected)

"""The README's map from equations to lines, its tables and its commands follow the code."""
import importlib
import json
import re
from pathlib import Path

import pytest
import transformers

import common
import tasks

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SCRIPTS = ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo")
MAP = re.findall(r"\| \[(\w+\.py):(\d+)\]\(\1#L\2\) \| `(.+)` \|", README)


def test_map_covers_every_script():
    assert {file for file, _, _ in MAP} == {"common.py", *(f"{script}.py" for script in SCRIPTS)}


@pytest.mark.parametrize("file, line, code", MAP)
def test_map_points_at_the_line(file, line, code):
    assert code.replace(r"\|", "|") in (ROOT / file).read_text().splitlines()[int(line) - 1]


def test_every_variant_is_named():
    named = set(re.findall(r"[\w-]+", re.search(r"\| script \| paper .*?\n\n", README, re.S)[0]))
    assert set().union(*(importlib.import_module(script).VARIANTS for script in SCRIPTS)) <= named


def test_linked_files_exist():
    assert all((ROOT / path).exists() for path in re.findall(r"\]\(([\w/.]+\.(?:png|py))", README))


def test_sizes_of_the_design():
    for script in SCRIPTS:
        assert len((ROOT / f"{script}.py").read_text().splitlines()) <= 250
    for shared in ("common.py", "tasks.py", "runner.py"):
        assert len((ROOT / shared).read_text().splitlines()) <= 600


COMMAND = r"^(?:torchrun (?:--\w+ \S+ (?:\\\n *)?)+)?(?:python )?(\w+)\.py ((?:[^\n]*\\\n)*[^\n]*)$"
COMMANDS = [(script, re.sub(r"\\\n|#.*", " ", rest).split())
            for script, rest in re.findall(COMMAND, README, re.M) if script in SCRIPTS]


def test_commands_are_found():
    assert len(COMMANDS) >= 15 and {script for script, _ in COMMANDS} == set(SCRIPTS)


@pytest.mark.parametrize("script, arguments", COMMANDS, ids=lambda value: " ".join(value)[:60])
def test_commands_are_taken(script, arguments, monkeypatch, tmp_path):
    """The flags of every command of the README, up to loading a model or data."""
    if "--help" in arguments or "--resume_from_checkpoint" in arguments:
        pytest.skip("needs a run, or ends at once")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code.jsonl").write_text("")
    monkeypatch.setattr("sys.argv", [f"{script}.py", *arguments])
    module = importlib.import_module(script)
    config = tasks.parse_flags(module.Config, module.VARIANTS)
    for name, value in zip(arguments[::2], arguments[1::2]):
        given = getattr(config, name.removeprefix("--"))
        assert str(given).lower() == value if isinstance(given, bool) else type(given)(value) == given


def test_data_sets_of_the_table():
    for name, source in tasks.DATASETS.items():
        row, = re.findall(rf"^\| [^|]*\b{name}\b[^|]* \|.*$", README, re.M)
        assert source.path in row


def test_verdicts_are_those_of_the_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    from claims_report import claims_table
    saved = json.loads((ROOT / "studies" / "claims.json").read_text())
    assert "\n".join(claims_table(saved["claims"], saved["scale"]["bases"], intervals=False)) in README


SHAPES = {  # Qwen2.5's
    "0.5 B": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                  num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "1.5 B": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                  num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "7 B": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
                num_key_value_heads=4, vocab_size=152064, tie_word_embeddings=False)}
MEMORY = re.findall(r"^\| ([\d.]+ B) \| (\d+) \| (.*) \|$", README, re.M)


def test_memory_table_has_all_sizes():
    assert {(size, ranks) for size, ranks, _ in MEMORY} >= {(size, ranks) for size in SHAPES for ranks in ("1", "8")}


@pytest.mark.parametrize("size, ranks, numbers", MEMORY)
def test_memory_table_is_what_is_printed(size, ranks, numbers, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(common, "WORLD_SIZE", int(ranks))
    estimate = common.memory_estimate(transformers.Qwen2Config(**SHAPES[size]), tasks.Config(**tasks.LARGE))
    assert numbers.split(" | ") == [f"{value:.1f}" for value in estimate.values()]

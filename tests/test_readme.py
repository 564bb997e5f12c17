"""The README's map from equations to lines, its tables and its commands follow the code."""
import importlib
import re
from pathlib import Path

import pytest

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
    assert len((ROOT / "common.py").read_text().splitlines()) <= 600

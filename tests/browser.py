"""JavaScript of the project's pages, run in node or in headless Chromium; skipped without them."""

import html
import json
import re
import shutil
import subprocess

import pytest

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def open_page(page):
    """What the scripts of a page have made its title in Chromium, through JSON."""
    if not CHROMIUM:
        pytest.skip("chromium is not installed")
    alone = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent}/user"]
    command = [CHROMIUM, *alone, "--dump-dom", f"file://{page.resolve()}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", shown, re.S)[1]))


def evaluate(folder, functions, expression):
    """The value of a JavaScript expression, through JSON, after the functions are defined."""
    if not NODE:
        pytest.skip("node is not installed")
    script = folder / "script.js"
    script.write_text(f"{functions}\nconsole.log(JSON.stringify({expression}));\n")
    done = subprocess.run([NODE, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)

"""JavaScript of the project's pages, run in node or in headless Chromium; skipped without them."""

import html
import json
import re
import shutil
import subprocess

import pytest

NODE = shutil.which("node")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EARLY = "<script>const errors = []; onerror = (message) => errors.push(message);</script>"
LATE = """
<script>
addEventListener("load", () => {
  %s
  parent.document.title = JSON.stringify([errors, seen]);
});
</script>
</body>
"""


def open_page(folder, text, script):
    """(errors, `seen`) of a script, once a page has loaded in Chromium, 400 pixels wide."""
    if not CHROMIUM:
        pytest.skip("chromium is not installed")
    text = text.replace("<head>", f"<head>{EARLY}", 1).replace("</body>", LATE % script)
    frame = f'<iframe style="width: 400px; height: 800px; border: 0" srcdoc="{html.escape(text)}">'
    (folder / "frame.html").write_text(f'<meta charset="utf-8"><title></title>{frame}</iframe>')
    alone = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/user"]
    command = [CHROMIUM, *alone, "--dump-dom", f"file://{folder}/frame.html"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", shown, re.S)[1]))


def evaluate(folder, functions, expression):
    if not NODE:
        pytest.skip("node is not installed")
    script = folder / "script.js"
    script.write_text(f"{functions}\nconsole.log(JSON.stringify({expression}));\n")
    done = subprocess.run([NODE, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)

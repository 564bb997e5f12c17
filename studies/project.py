"""Where the project lies. A study imports this module before all others.

So it runs from any folder, and rlvr sets how torch's threads wait before torch is imported.
"""

import sys
from pathlib import Path

STUDIES = Path(__file__).resolve().parent
ROOT = STUDIES.parent
FIGURES = STUDIES / "figures"

sys.path.insert(0, str(ROOT))

import rlvr  # noqa: F401

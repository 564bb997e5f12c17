"""Plumbing: what any such program needs and no paper is about.

Nothing about the algorithms is in this package, so a reader of the five scripts may skip it.
"""

import os
import sys

if sys.version_info < (3, 11):
    sys.stderr.write(f"Python 3.11 or newer is needed, and this is {sys.version.split()[0]}\n")
    sys.exit(2)

# By default a thread that waits for the others spins. On a machine that is shared, this costs more
# than a second thread gains. Torch reads the setting when it is imported, so this package is
# imported before torch everywhere.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

"""Programs: found in a text, run in a sandbox, and judged by unit tests from outside of it."""

from rlvr import door

__getattr__ = door(
    __name__,
    code="tests_text verify_code",
    isolation="PROJECT START_SECONDS describe",
    solution="Pipe limit",
)

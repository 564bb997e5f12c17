"""Problems: generated here, read from data sets, and written as prompts for the policy.

Read problems.py, then embedded.py, which makes Countdown, then datasets.py, which opens all sets,
and prompts.py. A student may skip cells.py and files.py, the formats of other sets.
"""

from .datasets import open_problems
from .embedded import make_countdown
from .problems import SUCCESS, Problem, ProblemStream, Sample, own_tokens, padded
from .prompts import (
    encode_prompt,
    end_of_turn,
    prompt_lengths,
    special_tokens,
    texts_with_thoughts,
    that_fit,
)
from .sources import is_made, source_of
from .tools import TOOLS, find_call_ends

"""Find the answer in a text, and compare it with the gold answer."""

from .boxes import answer_text, boxed, find_answer, last_boxed, verify_choice
from .expressions import countdown_text, extract_answer, value_of, verify_countdown
from .gym import answers_in, open_gym, verify_entry
from .mathematics import verify_math
from .numbers import last_number, verify_number

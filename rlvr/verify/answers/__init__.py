"""Find the answer in a text, and compare it with the gold answer.

Read boxes.py, expressions.py and numbers.py, which need no sympy, then mathematics.py; a student
may skip latex.py and equality.py, its text and its algebra, and gym.py.
"""

from .boxes import answer_text, boxed, find_answer, last_boxed, verify_choice
from .expressions import countdown_text, extract_answer, value_of, verify_countdown
from .gym import answers_in, open_gym, verify_entry
from .mathematics import verify_math
from .numbers import last_number, verify_number

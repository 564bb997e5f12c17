"""Answers in a text: where they stand, and whether they equal the gold answer."""

from rlvr import door

__getattr__ = door(
    __name__,
    boxes="answer_text boxed find_answer last_boxed verify_choice",
    expressions="countdown_text extract_answer value_of verify_countdown",
    mathematics="verify_math",
    numbers="last_number verify_number",
)

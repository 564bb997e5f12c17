"""Problems: made here, read from data sets, and written as the prompts that a policy reads."""

from rlvr import door

__getattr__ = door(
    __name__,
    datasets="open_problems",
    embedded="exchange_target make_countdown",
    pictures="open_image reader_of",
    problems="Problem Sample own_tokens padded",
    prompts=(
        "USER_SUFFIXES encode_prompt end_of_turn prompt_lengths read_template_kwargs "
        "texts_with_opened_thoughts"
    ),
    sources="DATASETS EMBEDDED source_of",
    tools="TOOLS find_call_ends find_replies",
)

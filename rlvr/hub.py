"""Whether the hub can be reached. No library's own timeout counts the search for its address."""

import contextlib
import threading


def hub_answers(seconds: float = 3.0) -> bool:
    """Return whether the hub answers in time. Libraries would try for half a minute or more."""
    import huggingface_hub

    answers = []

    def ask():
        with contextlib.suppress(Exception):  # of the network library, or offline mode
            address = huggingface_hub.constants.ENDPOINT
            answers.append(huggingface_hub.get_session().head(address, timeout=seconds))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answers)

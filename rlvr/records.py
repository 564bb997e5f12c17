"""The two records that travel through a rollout: a problem, and one completion of its prompt."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem whose answer a verifier can judge."""

    prompt: str  # what the policy reads; system prompt and chat template included
    gold: str | tuple[str, ...]  # what is right: an answer, unit tests, or alternative answers
    verifier: str = "countdown"  # a name of rlvr.tasks.verifiers.VERIFIERS
    level: str = ""  # problems of one level are also evaluated by themselves
    # encoded as PNG, JPEG and so on, in the order of their places in the prompt
    images: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion of one prompt, with its reward."""

    prompt_ids: list[int]
    completion_ids: list[int]  # the stop token included
    text: str = ""  # the completion as text, without special tokens
    reward: float = 0.0
    truncated: bool = False  # there was no stop token before the length limit
    logprobs: tuple[float, ...] | list[float] = ()  # the sampler's, in nats, one a completion token
    status: str = ""  # of the verifier: "", "unparsed" or "timeout"
    success: bool = False  # whether the reward reaches --success_threshold
    # where a tool's tokens stand among completion_ids; their log-probs are 0
    replies: tuple[range, ...] | list[range] = ()
    images: tuple[bytes, ...] = field(default=(), repr=False)  # the problem's

    @property
    def own_length(self) -> int:
        """How many tokens of the completion the policy itself has written."""
        return len(self.completion_ids) - sum(map(len, self.replies))

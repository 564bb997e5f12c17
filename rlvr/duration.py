"""About how many seconds a step takes on a CPU, found out before the policy is loaded.

Two policies of the same shape, but of few layers, make the passes of a step on some of its tokens.
Each further layer takes as long as the one before, so the whole policy's time follows.
"""

import copy
import statistics
import time
from dataclasses import replace

from rlvr import world
from rlvr.devices import forward_passes
from rlvr.logprobs import LinearLogProbs
from rlvr.samplers import bf16_twin
from rlvr.sharding import layers_of
from rlvr.tasks.prompts import choose_system_prompt, encode_prompt, write_prompts
from rlvr.tasks.sources import EMBEDDED
from rlvr.tasks.verifiers import VERIFIERS

import torch
import transformers

FEW, MORE = 1, 3  # layers of the two policies
CACHED = 8  # tokens of the texts that go on by one
HEAD_TOKENS = 64  # of a pass of the head that is timed
MOST_TOKENS = 512  # of a pass of the layers that is timed; fewer where a layer is large
PRODUCTS = 1e10  # of a parameter of a layer and a token, in such a pass


def tell_duration(shape, config, tokenizer) -> None:
    """Print about how long a step takes. It takes a few seconds itself.

    With --bf16 it says how long one takes without it: much less, where a CPU has no instructions
    for bf16.
    """
    made_here = config.dataset in EMBEDDED
    prompt = mean_prompt(config, tokenizer) if made_here else config.max_prompt_length
    rollout, update = seconds_of_a_step(shape, config, prompt)
    about = "about" if made_here else "with prompts and completions at full length about"
    otherwise = ""
    if config.bf16:
        in_fp32 = sum(seconds_of_a_step(shape, replace(config, bf16=False), prompt))
        otherwise = f"; without --bf16 about {in_fp32:.0f}"
    if world.RANK == 0:
        print(
            f"{about} {rollout + update:.0f} s a step on this CPU: {rollout:.0f} for the rollout, "
            f"{update:.0f} for the update{otherwise}"
        )


def mean_prompt(config, tokenizer) -> int:
    """Tokens of a prompt of a data set that is made here."""
    problems, _ = EMBEDDED[config.dataset](config)
    verifier = VERIFIERS[problems[0].verifier]
    system = choose_system_prompt(verifier, config.system_prompt, tokenizer)
    written = write_prompts(problems[:64], system, config, tokenizer)
    lengths = [len(encode_prompt(tokenizer, problem.prompt)) for problem in written]
    return round(statistics.mean(lengths))


def seconds_of_a_step(shape, config, prompt: int) -> tuple[float, float]:
    """Seconds of a rollout and of an update, for prompts of so many tokens.

    Completions count at their full length. What the verifiers and Adam take is left out.
    """
    few, more = (seconds_of_passes(shape, config, prompt, layers) for layers in (FEW, MORE))
    further = (shape.num_hidden_layers - FEW) / (MORE - FEW)
    reading, updating, token = (a + (b - a) * further for a, b in zip(few, more, strict=True))
    weight = torch.zeros(shape.vocab_size, shape.hidden_size, requires_grad=True)
    token += seconds(lambda: draw_words(weight, rows_at_once(config)))
    head = seconds(lambda: update_head(weight)) / HEAD_TOKENS

    completions = completions_of_a_rank(config)
    completion = config.max_completion_length
    drawing = completions / rows_at_once(config) * completion * token
    texts = completions * (prompt + completion)
    update = texts * updating + completions * completion * head
    if config.gradient_checkpointing:
        update += texts * reading
    return completions * prompt * reading + drawing, config.num_iterations * update


def completions_of_a_rank(config) -> int:
    """How many completions each rank draws in a step."""
    return config.prompts_per_step * config.num_generations // world.WORLD_SIZE


def rows_at_once(config) -> int:
    """How many completions `generate` goes on with at a time."""
    return min(completions_of_a_rank(config), config.rollout_batch_size)


def seconds_of_passes(shape, config, prompt: int, layers: int) -> tuple[float, float, float]:
    """Seconds of a policy with so many layers: to read a token, to update on it, to go on by one.

    The last one is for all rows that `generate` goes on with at a time.
    """
    policy, size = thin_policy(shape, layers, config.trust_remote_code)
    tokens = max(16, min(MOST_TOKENS, int(PRODUCTS / size)))
    length = min(prompt + config.max_completion_length, tokens)
    texts = torch.zeros(tokens // length, length, dtype=torch.long)
    last = torch.zeros(rows_at_once(config), 1, dtype=torch.long)

    writer = bf16_twin(policy) if config.bf16 else policy

    def update():
        with forward_passes(torch.device("cpu"), config.bf16, config.gradient_checkpointing):
            hidden = policy(input_ids=texts, use_cache=False).last_hidden_state
        hidden.sum().backward()

    with torch.no_grad():
        reading = seconds(lambda: writer(input_ids=texts, use_cache=True))
        cache = writer(input_ids=last.expand(-1, CACHED), use_cache=True).past_key_values
        token = seconds(lambda: writer(input_ids=last, past_key_values=cache))
    return reading / texts.numel(), seconds(update) / texts.numel(), token


def thin_policy(shape, layers: int, trust_remote_code: bool):
    """The base of a policy with so many layers, all weights 0.01, and the size of one of them."""
    thin = copy.deepcopy(shape)
    thin.num_hidden_layers = layers
    for name, value in vars(shape).items():
        if isinstance(value, list) and len(value) == shape.num_hidden_layers:  # one of each layer
            setattr(thin, name, (value * layers)[:layers])
    with torch.device("meta"):
        policy = transformers.AutoModelForCausalLM.from_config(
            thin, trust_remote_code=trust_remote_code
        )
    policy = policy.base_model.to_empty(device="cpu")
    for tensor in (*policy.parameters(), *policy.buffers()):
        tensor.data.fill_(0.01)
    # The gradient of a large embedding would outweigh that of these few tokens.
    policy.get_input_embeddings().requires_grad_(False)
    in_layers = sum(p.numel() for layer in layers_of(policy) for p in layer.parameters())
    return policy, in_layers / layers


def seconds(work) -> float:
    """The least wall time of three attempts: other programs can only make it longer."""
    found = []
    for _ in range(3):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


@torch.no_grad()
def draw_words(weight: torch.Tensor, rows: int) -> None:
    """What the head [V, H] does for a token of a rollout: logits, their log-probs, and a draw."""
    logits = torch.ones(rows, weight.shape[1]) @ weight.T  # [rows, V]
    logits.log_softmax(-1)
    torch.multinomial(logits.softmax(-1), 1)


def update_head(weight: torch.Tensor) -> None:
    """What the head [V, H] does in an update: log-probs and entropies, and their gradients."""
    hidden = torch.ones(HEAD_TOKENS, weight.shape[1], requires_grad=True)
    targets = torch.zeros(HEAD_TOKENS, dtype=torch.long)
    logprobs, _ = LinearLogProbs.apply(hidden, weight, targets, 1.0)
    logprobs.sum().backward()
    weight.grad = None

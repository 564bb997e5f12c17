"""How a problem becomes a prompt."""

import json
from dataclasses import replace
from datetime import datetime

from rlvr.errors import UserError, loading
from rlvr.tasks.problems import Problem
from rlvr.verify.verifiers import BOXED

USER_SUFFIXES = {"none": "", "boxed": BOXED}

# The date in chat templates. With the real date, a resumed run would have other prompts. It is a
# macro before the template, because transformers keeps functions from templates since 5.22.2.
A_FIXED_DAY = datetime(2024, 7, 26)
CODES = "a A b B d -d e F H -H I -I j m -m M -M p S T y Y Z %".split()  # `%%` is the last one
REPLACED = "".join(f"|replace('%{code}', '{A_FIXED_DAY:%{code}}')" for code in CODES)
FIXED_DATE = "{%- macro strftime_now(format) %}{{ format" + REPLACED + " }}{% endmacro -%}"


def encode_prompt(tokenizer, prompt: str) -> list[int]:
    """Return token ids. A chat template has already written its special tokens."""
    return tokenizer.encode(prompt, add_special_tokens=not tokenizer.chat_template)


def texts_with_thoughts(samples, tokenizer) -> list[str]:
    """Return the samples' texts, with <think> in front if the prompt ends with that tag."""
    ends = [tokenizer.decode(sample.prompt_ids[-16:]).rstrip() for sample in samples]
    return [
        f"<think>{sample.text}" if end.endswith("<think>") else sample.text
        for sample, end in zip(samples, ends, strict=True)
    ]


def write_prompts(problems: list[Problem], system: str, config, tokenizer) -> list[Problem]:
    """Turn questions, or conversations as pairs of role and content, into what the policy reads.

    The chat template wraps them, with the system prompt and --user_suffix; without a template, each
    is on a line of its own. UserError if the template fails, or if one is needed and there is none.
    """
    suffix = USER_SUFFIXES[config.user_suffix]
    conversations = [converse(problem, system, suffix) for problem in problems]
    if tokenizer.chat_template:
        import jinja2  # as late as transformers, which needs it

        options = read_template_kwargs(config.chat_template_kwargs)
        # some templates refuse a system prompt
        errors = (jinja2.TemplateError, TypeError)  # what a template raises, and does to a text
        with loading("the model's chat template", *errors, hint="; try --system_prompt none"):
            texts = fill_templates(tokenizer, conversations, add_generation_prompt=True, **options)
    else:
        if config.chat_template_kwargs:
            raise UserError("--chat_template_kwargs: the model has no chat template")
        texts = [in_lines(messages, suffix) for messages in conversations]
    return [replace(problem, prompt=text) for problem, text in zip(problems, texts, strict=True)]


def converse(problem: Problem, system: str, suffix: str) -> list[dict]:
    """Return the messages of a prompt. A conversation keeps its own system prompt."""
    prompt = problem.prompt
    turns = (("user", prompt),) if isinstance(prompt, str) else prompt
    messages = [{"role": role, "content": text} for role, text in turns]
    if suffix:
        messages[-1]["content"] += f"\n{suffix}"
    if system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return messages


def in_lines(messages: list[dict[str, str]], suffix: str) -> str:
    """Join messages for a policy without a chat template; a single question stays as it is."""
    text = "\n".join(message["content"] for message in messages)
    return f"{text}\n" if suffix or len(messages) > 1 else text


def read_template_kwargs(text: str) -> dict:
    """Return --chat_template_kwargs as a dict. UserError if it is not one."""
    try:
        return {**json.loads(text or "{}")}
    except (TypeError, ValueError):  # it is no object, or no JSON
        example = '{"enable_thinking": false}'
        message = f"--chat_template_kwargs takes a JSON object, such as {example}, got {text}"
        raise UserError(message) from None


def fill_templates(tokenizer, chats: list[list[dict]], **options) -> list[str]:
    """Return the text of each conversation in the chat template, the same on every day."""
    template = FIXED_DATE + tokenizer.get_chat_template(options.pop("chat_template", None))
    return tokenizer.apply_chat_template(chats, tokenize=False, chat_template=template, **options)


def prompt_lengths(problems: list[Problem], tokenizer) -> list[int]:
    """Return the number of tokens in each prompt."""
    lengths = []
    # A thousand at once: it is faster than one by one, and each takes 20 kB until then.
    for start in range(0, len(problems), 1000):
        texts = [problem.prompt for problem in problems[start : start + 1000]]
        encoded = tokenizer(texts, add_special_tokens=not tokenizer.chat_template)["input_ids"]
        lengths += map(len, encoded)
    return lengths


def that_fit(problems: list[Problem], limit: int, tokenizer) -> list[Problem]:
    """Return the problems whose prompts have from 1 to `limit` tokens.

    Short prompts need not be encoded: a token is at least one byte, except for those that may open
    and close a text.
    """
    doubtful = [p for p in problems if len(p.prompt.encode()) + 2 > limit or not p.prompt]
    prompts = [problem.prompt for problem in doubtful]
    lengths = dict(zip(prompts, prompt_lengths(doubtful, tokenizer), strict=True))
    return [problem for problem in problems if 0 < lengths.get(problem.prompt, limit) <= limit]


def special_tokens(tokenizer) -> set[int]:
    """Return the tokens that the tokenizer's file calls special."""
    return {token for token, entry in tokenizer.added_tokens_decoder.items() if entry.special}


def end_of_turn(tokenizer) -> list[int]:
    """Return the token with which the chat template ends an answer: a list of one, or [].

    The checkpoint of a base model often names another token, which ends a document.
    """
    if not tokenizer.chat_template:
        return []
    import jinja2

    answer = "forty-two"  # which is part of no token's name
    turns = [dict(role="user", content="question"), dict(role="assistant", content=answer)]
    try:
        (text,) = fill_templates(tokenizer, [turns])
    except (jinja2.TemplateError, TypeError):  # it refuses answers
        text = ""
    _, match, rest = text.rpartition(answer)
    special = special_tokens(tokenizer) - {tokenizer.unk_token_id}
    ids = tokenizer.encode(rest, add_special_tokens=False) if match else []
    return [token for token in ids if token in special][:1]

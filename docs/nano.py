"""The whole of RLVR in one file, which needs PyTorch and Transformers alone.

    python docs/nano.py            # GRPO, two minutes on one idle core
    python docs/nano.py fade       # another advantage: agrae, asymgrpo, fade, cwgrpo

Shapes: N = B * G completions, n per minibatch; at most L tokens in a prompt, T in a completion.
"""

import random
import re
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

POLICY = Path(__file__).resolve().parents[1] / "rlvr/policy/policies/middle"  # 0.3 M parameters
STEPS, B, G, MINIBATCH, LONGEST, HELD_OUT = 60, 32, 16, 256, 48, 128
EPSILON, LEARNING_RATE, TARGET_ENTROPY = 0.2, 1e-4, 0.08


def make_problem(held_out):
    """The task is Countdown: reach a target with three numbers. A seventh of it is held out."""
    while True:
        a, b, c = random.choices(range(1, 10), k=3)
        first, second = random.choices("+-*", k=2)
        target = eval(f"({a} {first} {b}) {second} {c}")
        if 1 <= target <= 99 and ((a + b + c + target) % 7 == 0) == held_out:
            return random.sample([a, b, c], k=3), target


def verify(text, numbers, target):
    """The verifier is a program: 1 if the answer uses each number once and is right, else 0."""
    answer = "".join(re.findall(".*<answer>(.*)</answer>", text))  # the last one, or nothing
    # Nothing but three digits, two signs between them, and parentheses may reach eval.
    harmless = re.fullmatch("[( ]*[1-9][) ]*([-+*/][( ]*[1-9][) ]*){2}", answer)
    if not harmless or sorted(re.findall("[1-9]", answer)) != sorted(map(str, numbers)):
        return 0.0
    try:
        return float(abs(eval(answer) - target) < 1e-6)
    except (SyntaxError, ZeroDivisionError):
        return 0.0


@torch.no_grad()
def roll_out(policy, tokenizer, problems):
    """The policy answers each problem G times, and the verifier gives each answer a reward."""
    prompts = [f"{a} {b} {c} : {target} " for (a, b, c), target in problems]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")  # [B, L]
    sampling = dict(do_sample=True, top_k=0, num_return_sequences=G, max_new_tokens=LONGEST)
    ids = policy.generate(**inputs, **sampling)  # [N, L + T]
    completions = ids[:, inputs.input_ids.shape[1] :]  # [N, T]
    ends = (completions == tokenizer.eos_token_id).long()  # [N, T]
    mask = (ends.cumsum(1) - ends == 0).float()  # [N, T], 1 up to the first end of sequence
    attention = torch.cat([inputs.attention_mask.repeat_interleave(G, 0), mask], 1)  # [N, L + T]
    texts = tokenizer.batch_decode(completions, skip_special_tokens=True)
    rewards = [verify(text, *problems[i // G]) for i, text in enumerate(texts)]
    return ids, attention, mask, torch.tensor(rewards).view(-1, G)  # rewards [B, G]


def log_probs(policy, ids, attention, T):
    """How likely is each token of a completion, given the tokens before it?"""
    logits = policy(input_ids=ids, attention_mask=attention).logits[:, -T - 1 : -1]  # [n, T, V]
    return logits.log_softmax(-1).gather(-1, ids[:, -T:, None])[..., 0]  # [n, T]


def advantage(method, r, entropy):
    """How much likelier should each completion become? Rewards [B, G] -> advantages [B, G]."""
    p, w = r.mean(1, keepdim=True), r.mean()  # success rates: of each group [B, 1], of the batch
    A = (r - p) / r.std(1, keepdim=True, correction=0).clamp(min=1e-6)  # GRPO; 0 if all r are equal
    if method == "agrae":  # while w is low, easy problems count more, and successes less
        A = A * w / 2 / p.clamp(min=1e-6).sqrt() + A * (1 - w) / 2 / (1 - p).clamp(min=1e-6).sqrt()
        A = torch.where(A > 0, A * w, A)
    if method == "asymgrpo":  # the difficulty weighs successes and failures with two exponents
        A = torch.where(r > 0, ((1 - p) / p) ** 0.9, -((p / (1 - p)) ** 0.4))
    if method == "fade":  # a large alpha stresses hard problems, a small delta failures
        alpha = (1.5 * (1 - w) / w).clamp(1, 3)
        delta = (1 + entropy - TARGET_ENTROPY).clamp(0.3, 1)
        A = (1 - p) ** (alpha - 1) * (r - p)
        A = torch.where(A < 0, A / delta, A)
    return A


def weigh_tokens(A, logp, mask):
    """CW-GRPO: a token with an extreme covariance of A and log-prob counts less. Return [n, T]."""
    groups = (-1, G * mask.shape[1])  # all tokens of a group in one row
    A, logp = A.expand_as(mask).reshape(groups), logp.detach().reshape(groups)
    share = mask.view(groups) / mask.view(groups).sum(1, keepdim=True)  # so that sums are means
    c = (logp - (logp * share).sum(1, True)) * (A - (A * share).sum(1, True))
    variance = (c**2 * share).sum(1, True) - (c * share).sum(1, True) ** 2
    weights = (-(c**2) / (2 * variance.clamp(min=1e-12))).exp()
    return (A * weights / (weights * share).sum(1, True)).view_as(mask)


def main(method="grpo"):
    assert method in ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo"), method
    set_seed(0)
    policy = AutoModelForCausalLM.from_pretrained(POLICY)
    tokenizer = AutoTokenizer.from_pretrained(POLICY)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    held_out = [make_problem(held_out=True) for _ in range(HELD_OUT)]
    for step in range(STEPS + 1):
        if step in (0, STEPS):  # pass@k: is at least one of k answers right?
            *_, r = roll_out(policy, tokenizer, held_out)
            print(f"held out  pass@1 {r.mean():.3f}  pass@{G} {r.amax(1).mean():.3f}", flush=True)
        if step == STEPS:
            break
        problems = [make_problem(held_out=False) for _ in range(B)]
        ids, attention, mask, r = roll_out(policy, tokenizer, problems)
        T = mask.shape[1]
        old = log_probs(policy, ids, attention, T).detach()  # [N, T]
        entropy = -((old * mask).sum(1) / mask.sum(1)).mean()  # in nats per token
        A = advantage(method, r, entropy).view(-1, 1)  # [N, 1]
        # PPO-clip: a ratio beyond 1 +- epsilon earns nothing more.
        for rows in torch.arange(B * G).split(MINIBATCH):
            logp = log_probs(policy, ids[rows], attention[rows], T)  # [n, T]
            A_t = weigh_tokens(A[rows], logp, mask[rows]) if method == "cwgrpo" else A[rows]
            ratio = (logp - old[rows]).exp()  # [n, T], a token's probability now / at the rollout
            clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)  # [n, T]
            objective = torch.min(ratio * A_t, clipped * A_t) * mask[rows]  # [n, T]
            loss = -(objective.sum(1) / mask[rows].sum(1)).mean()  # over tokens, then completions
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"{step + 1:2}/{STEPS}  reward {r.mean():.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

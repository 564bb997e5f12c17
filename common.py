"""What the five scripts share: the policy, log-probs, rollout, loss, evaluation. What needs no torch is in tasks.py,
what keeps a run whole in runner.py.
In shapes: B prompts, G completions a prompt, N = B * G completions, T tokens of the longest completion, M scored
tokens, H hidden size, V vocabulary. Weights are fp32; on a GPU the forward passes run in bf16 autocast.
"""
import functools
import hashlib
import importlib.util
import inspect
import math
import os
import random
import statistics
from collections import Counter, namedtuple
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

import tasks
from runner import (AT_EXIT, Run, gather, gather_groups, global_mean, global_sum, launch, save_beside,  # noqa: F401
                    shard, unshard, whole)
from tasks import (RANK, WORLD_SIZE, Config, Problem, encode_prompt, fail, load_problems,  # noqa: F401
                   make_countdown)

transformers.utils.logging.disable_progress_bar()

def build_tiny() -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    """A randomly initialised Qwen2 of 0.3 M parameters and its character-level tokenizer (a tag is one token)."""
    tokens = ["<pad>", "<eos>", "<unk>", "<think>", "</think>", "<answer>", "</answer>", *"0123456789+-*/()=: "]
    tokenizer = Tokenizer(models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("</?(think|answer)>|."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    config = transformers.Qwen2Config(
        vocab_size=len(tokens), hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=1024, tie_word_embeddings=True,
        pad_token_id=0, eos_token_id=1, bos_token_id=None)
    return transformers.Qwen2ForCausalLM(config), transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")

def warm_up_tiny(config: Config, batch_size: int = 128, lr: float = 2e-3) -> Path:
    """The folder, named by a hash of all that shapes it, of the tiny policy after supervised steps on solutions."""
    code = map(inspect.getsource, (make_countdown, build_tiny, warm_up_tiny, token_logprobs, LinearLogProbs))
    shaped_by = [*code, config.sft_steps, config.numbers, torch.__version__, transformers.__version__]
    name = f"tiny-{hashlib.sha256(repr(shaped_by).encode()).hexdigest()[:16]}"
    folder = Path(os.path.expanduser(config.cache_dir), name)
    if RANK == 0 and not folder.exists():
        sizes, rng = [int(size) for size in config.numbers.split(",")], random.Random(0)
        with torch.random.fork_rng([]):
            torch.manual_seed(0)
            policy, tokenizer = build_tiny()
        optimizer = torch.optim.AdamW(policy.parameters(), lr=lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, config.sft_steps + 1, cycle_momentum=False)
        for _ in tqdm(range(config.sft_steps), desc="warming up the tiny policy, once"):
            examples = (make_countdown(rng, rng.choice(sizes)) for _ in range(batch_size))
            samples = [Sample(tokenizer.encode(problem.prompt), tokenizer.encode(solution + tokenizer.eos_token))
                       for problem, solution in examples]
            logprobs, _ = token_logprobs(policy, samples, range(batch_size))  # [n, T], 0 beyond each end
            (-logprobs.sum() / completion_mask(samples, policy.device).sum()).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        save_beside(folder, policy, tokenizer)
    gather([])  # the other ranks wait here
    return folder

def load_policy(config: Config, device: torch.device):
    """The policy, in fp32 whatever dtype its checkpoint has, and its tokenizer."""
    source = warm_up_tiny(config) if config.model == "tiny" else config.model
    try:
        if not Path(source).is_dir() and not huggingface_hub.try_to_load_from_cache(source, "config.json"):
            huggingface_hub.model_info(source, timeout=10)  # fails at once, where from_pretrained tries for minutes
        shape = transformers.AutoConfig.from_pretrained(source, trust_remote_code=config.trust_remote_code)
        if config.max_completion_length > getattr(shape, "max_position_embeddings", math.inf):
            raise ValueError(f"its context of {shape.max_position_embeddings} is under --max_completion_length")
        if config.model != "tiny" and RANK == 0:
            estimate = memory_estimate(shape, config)
            print("memory a rank:", "; ".join(f"{size:.1f} GB {name}" for name, size in estimate.items()))
        # not AutoTokenizer, which gives any Qwen2 folder Qwen's own pre-tokenizer, the tiny policy's too
        tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(source)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # Llama's has none
        return load_weights(source, config, device), tokenizer
    except Exception as error:
        fail(f"cannot load --model {config.model}: {str(error).splitlines()[0]}")

def load_weights(source, config: Config, device: torch.device):
    """A policy from a folder or the hub, sharded over the ranks unless --fsdp is false."""
    policy = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, trust_remote_code=config.trust_remote_code)
    if config.gradient_checkpointing:
        policy.gradient_checkpointing_enable()
    if WORLD_SIZE == 1 or not config.fsdp:
        return policy.to(device)
    shard(policy, scores)
    return policy

def load_reference(policy, config: Config):
    """The frozen starting policy, for the KL penalty; None where --beta is 0."""
    return load_weights(policy.name_or_path, config, policy.device) if config.beta else None

def memory_estimate(shape: transformers.PretrainedConfig, config: Config) -> dict[str, float]:
    """GB a rank, about, of what a run keeps: fp32 weights, gradients and Adam's two moments, and of its two peaks."""
    with torch.device("meta"):
        policy = transformers.AutoModelForCausalLM.from_config(shape, trust_remote_code=config.trust_remote_code)
    parameters, gpu = sum(p.numel() for p in policy.parameters()) / 1e9, torch.cuda.is_available()
    ranks = WORLD_SIZE if config.fsdp else 1  # that share the weights
    hidden, layers, heads = shape.hidden_size, shape.num_hidden_layers, shape.num_attention_heads
    # measured: what one layer of Llama's shape keeps of a token for the backward pass, with and without bf16 autocast
    layer = 40 * hidden + (11 if gpu else 16) * getattr(shape, "intermediate_size", 4 * hidden)
    token = 4 * hidden * layers + layer if config.gradient_checkpointing else layer * layers
    width = getattr(shape, "num_key_value_heads", heads) * (getattr(shape, "head_dim", None) or hidden // heads)
    cache = 4 * layers * width * config.longest
    return {"weights, gradients and Adam": (16 + 4 * bool(config.beta)) * parameters / ranks,
            "weights gathered for a rollout": (2 if gpu else 4) * parameters * (ranks > 1),
            f"activations of {config.microbatch_tokens} tokens": config.microbatch_tokens * token / 1e9 + 0.5,
            f"cache of {config.rollout_batch_size} completions, without vLLM": config.rollout_batch_size * cache / 1e9}

class LinearLogProbs(torch.autograd.Function):
    """log pi(target) and entropy of pi = softmax(z), z = hidden W^T / temperature, a tile of the vocabulary at a time.
    log Z and the mean of z under pi build up over the tiles; the entropy is log Z - mean. The backward pass computes
    the tiles again: d log pi / d z = onehot - pi, d H / d z = -pi (log pi + H).
    """

    @staticmethod
    def tiles(hidden, weight, targets, temperature):
        """Of each tile its words, as a slice, its logits [M, v], in fp32 or better, and where in it targets are."""
        size = max(1, 2**(25 if hidden.is_cuda else 22) // len(hidden))  # so that a CPU's cache holds a tile
        for start in range(0, len(weight), size):
            words = slice(start, start + size)
            logits = (hidden @ weight[words].T).to(torch.promote_types(hidden.dtype, torch.float32))
            rows = ((targets >= start) & (targets < start + size)).nonzero()[:, 0]
            yield words, logits.div_(temperature), (rows, targets[rows] - start)

    @staticmethod
    def forward(ctx, hidden, weight, targets, temperature):  # [M, H], [V, H], [M], float -> [M], [M]
        log_z = torch.full_like(targets, -torch.inf, dtype=torch.promote_types(hidden.dtype, torch.float32))  # [M]
        mean, chosen = torch.zeros_like(log_z), torch.zeros_like(log_z)  # [M], [M]
        for _, logits, (rows, columns) in LinearLogProbs.tiles(hidden, weight, targets, temperature):
            chosen[rows] = logits[rows, columns]
            largest = logits.amax(1, keepdim=True)  # [M, 1]
            powers = (logits - largest).exp_()  # [M, v]
            total = powers.sum(1)  # [M]
            tile_log_z, tile_mean = largest[:, 0] + total.log(), powers.mul_(logits).sum(1) / total
            log_z = log_z.logaddexp(tile_log_z)
            mean = mean.lerp(tile_mean, (tile_log_z - log_z).exp())
        entropies = log_z - mean  # [M]
        ctx.save_for_backward(hidden, weight, targets, log_z, entropies)
        ctx.temperature = temperature
        return chosen - log_z, entropies

    @staticmethod
    def backward(ctx, grad_logprobs, grad_entropies):
        hidden, weight, targets, log_z, entropies = ctx.saved_tensors
        grad_hidden, grad_weight = torch.zeros_like(hidden, dtype=log_z.dtype), torch.empty_like(weight)
        for words, logits, (rows, columns) in LinearLogProbs.tiles(hidden, weight, targets, ctx.temperature):
            logp = logits.sub_(log_z[:, None])  # [M, v]
            grad = grad_logprobs[:, None] + grad_entropies[:, None] * (logp + entropies[:, None])
            grad = grad.mul_(logp.exp_()).neg_()
            grad[rows, columns] += grad_logprobs[rows]
            grad = grad.div_(ctx.temperature).to(hidden.dtype)  # [M, v]
            grad_hidden += grad @ weight[words]
            grad_weight[words] = grad.T @ hidden
        return grad_hidden.to(hidden.dtype), grad_weight, None, None

# One completion of one prompt, both as token ids, the stop token included; truncated: there was no stop token in time;
# logprobs: the sampler's, of each token; status: of the verifier, "" or "unparsed" or "timeout".
Sample = namedtuple("Sample", "prompt_ids completion_ids text reward truncated logprobs status",
                    defaults=("", 0.0, False, (), ""))

def completion_mask(samples: list[Sample], device, skip_truncated: bool = False) -> torch.Tensor:
    """[N, T], 1.0 on completion tokens, by position, as the stop token may equal the padding; cut-off ones can be 0."""
    ones = [torch.full((len(s.completion_ids),), float(not (skip_truncated and s.truncated))) for s in samples]
    return pad_sequence(ones, batch_first=True).to(device)

def sampled_logprobs(samples: list[Sample], device) -> torch.Tensor:
    """The sampler's log-probs of the completion tokens, [N, T], 0 beyond a row's end."""
    return pad_sequence([torch.tensor(s.logprobs) for s in samples], batch_first=True).to(device)

def scores(policy, ids: torch.Tensor, scored: torch.Tensor, temperature: float):
    """Log-probs and entropies (nats) of the tokens of ids [n, S] where scored [n, S] is true: [M] each."""
    gpu = ids.device.type == "cuda"
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=gpu):
        hidden = policy.base_model(input_ids=ids, use_cache=False).last_hidden_state  # [n, S, H]
    hidden = hidden[:, :-1][scored[:, 1:]]  # [M, H]: the state before a token predicts it
    weight = policy.get_output_embeddings().weight  # [V, H]
    if gpu:
        hidden, weight = hidden.bfloat16(), weight.bfloat16()
    return LinearLogProbs.apply(hidden, weight, ids[scored], temperature)

def token_logprobs(policy, samples: list[Sample], rows, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies (nats) of the completion tokens of samples[rows]: [n, T] each, 0 beyond a row's end.
    T is the longest completion of all `samples`. Padding on the right needs no mask: causal attention looks left.
    """
    device, width = policy.device, max(len(s.completion_ids) for s in samples)
    policy.train(policy.is_gradient_checkpointing and torch.is_grad_enabled())  # transformers' condition for it
    samples = [samples[i] for i in rows]
    ids = pad_sequence([torch.tensor(s.prompt_ids + s.completion_ids, device=device) for s in samples], True)  # [n, S]
    lengths = torch.tensor([(len(s.prompt_ids), len(s.completion_ids)) for s in samples], device=device)
    starts, lengths = lengths.T[..., None]  # [n, 1] each
    position = torch.arange(ids.shape[1], device=device)  # [S]
    scored = (position >= starts) & (position < starts + lengths)  # [n, S]: the completion tokens
    # where the policy is sharded, `scores` is a method of its own, which gathers its weights
    logprobs, entropies = getattr(policy, "scores", functools.partial(scores, policy))(ids, scored, temperature)  # [M]
    mask = torch.arange(width, device=device) < lengths  # [n, T]
    zeros = torch.zeros(mask.shape, dtype=logprobs.dtype, device=device)
    return zeros.masked_scatter(mask, logprobs), zeros.masked_scatter(mask, entropies)

def microbatches(samples: list[Sample], rows, token_budget: int) -> list[list[int]]:
    """Splits the indices `rows`, sorted by length, into parts of at most `token_budget` padded tokens; into as many
    parts on every rank, because all of them gather sharded weights together.
    """
    lengths, parts = {int(i): len(samples[i].prompt_ids) + len(samples[i].completion_ids) for i in rows}, []
    for i in sorted(lengths, key=lengths.get):
        if not parts or (len(parts[-1]) + 1) * lengths[i] > token_budget:
            parts.append([])
        parts[-1].append(i)
    for _ in range(len(parts), min(max(gather([len(parts)])), len(lengths))):
        largest = max(parts, key=len)
        parts.append([largest.pop() for _ in range(len(largest) // 2)])
    return parts

@torch.no_grad()
def frozen_logprobs(policy, samples: list[Sample], config: Config, rows=None):
    """token_logprobs without gradient, [N, T] each: of the old policy or of the reference; 0 outside of `rows`."""
    logprobs, entropies = torch.zeros(2, *completion_mask(samples, "cpu").shape, device=policy.device)
    for part in microbatches(samples, range(len(samples)) if rows is None else rows, config.microbatch_tokens):
        logprobs[part], entropies[part] = token_logprobs(policy, samples, part, config.temperature)
    return logprobs, entropies

class Recorder(transformers.LogitsProcessor):
    """Keeps the log-probs of the tokens that `generate` draws: those of a step are known at the next."""
    def __init__(self, temperature: float):
        self.temperature, self.last, self.logprobs = temperature, None, []

    def __call__(self, ids, logits):  # [n, S], [n, V]
        if self.last is not None:
            self.logprobs.append(self.last.gather(1, ids[:, -1:])[:, 0])  # [n]
        self.last = (logits.float() / self.temperature).log_softmax(-1)
        if self.last.isnan().any():
            raise FloatingPointError("the policy's logits have become NaN or infinite: lower --learning_rate, or raise "
                                     "a very low temperature")
        return logits

class GenerateSampler:
    """Completions by `transformers.generate` on the policy's own weights."""
    def __init__(self, policy, tokenizer, config: Config, cap: float = 0.0):  # of the importance weights, none here
        self.policy, self.tokenizer, self.config = policy, tokenizer, config
        self.devices = [policy.device] if policy.device.type == "cuda" else []  # whose random states are this rank's
        stops = policy.generation_config.eos_token_id or tokenizer.eos_token_id
        self.stops = stops if isinstance(stops, list) else [stops]
        self.cap = cap if config.vllm_importance_sampling_cap is None else config.vllm_importance_sampling_cap

    @torch.no_grad()
    def generate(self, prompt_ids: list[list[int]], temperature: float, top_p: float, max_tokens: int):
        """A completion a prompt, as token ids that include the stop token, and their log-probs, before top-p.
        Temperature 0 takes the likeliest token, with the log-probs of temperature 1.
        """
        completions, logprobs, device = [], [], self.policy.device
        settings = transformers.GenerationConfig(
            **dict(do_sample=True, temperature=temperature, top_p=top_p, top_k=0) if temperature else {},
            repetition_penalty=1.0, max_new_tokens=max_tokens, pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.stops)
        self.policy.eval()
        for start in range(0, len(prompt_ids), self.config.rollout_batch_size):
            rows = prompt_ids[start:start + self.config.rollout_batch_size]
            batch = self.tokenizer.pad({"input_ids": rows}, padding_side="left", return_tensors="pt").to(device)
            recorder = Recorder(temperature or 1.0)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                ids = self.policy.generate(  # [n, P + T]
                    **batch, generation_config=settings, logits_processor=[recorder], synced_gpus=False)
            recorder(ids, recorder.last)  # the last token's
            recorded = torch.stack(recorder.logprobs, 1).tolist()  # [n, T]
            for tokens, logps in zip(ids[:, batch["input_ids"].shape[1]:].tolist(), recorded):
                length = next((i + 1 for i, token in enumerate(tokens) if token in self.stops), len(tokens))
                completions.append(tokens[:length])
                logprobs.append(logps[:length])
        return completions, logprobs

    def sync(self):
        """Called before a rollout, for the policy may have been updated: gathers the weights of a sharded one."""
        unshard(self.policy, True)

    def sleep(self):
        """Called after a rollout."""
        unshard(self.policy, False)

class VllmSampler(GenerateSampler):
    """Completions by vLLM in this process: one engine a rank, or --vllm_tensor_parallel_size ranks that share one."""
    def __init__(self, policy, tokenizer, config: Config):
        import vllm
        super().__init__(policy, tokenizer, config, cap=2.0)
        for name, value in dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=0).items():
            os.environ.setdefault(name, str(value))
        self.parameters, gpu = vllm.SamplingParams, policy.device.type == "cuda"
        self.probe, self.tolerance = tokenizer.encode("1 2 3 : 6 "), 0.3 if gpu else 1e-3  # nats; on a GPU it is bf16
        length = min(config.longest, policy.config.max_position_embeddings)
        try:
            with torch.random.fork_rng(self.devices):  # LLM() seeds the generators
                self.engine = vllm.LLM(
                    policy.name_or_path, max_model_len=length, distributed_executor_backend="external_launcher",
                    tensor_parallel_size=config.vllm_tensor_parallel_size, dtype="bfloat16" if gpu else "float32",
                    gpu_memory_utilization=config.vllm_gpu_memory_utilization, logprobs_mode="processed_logprobs",
                    enable_sleep_mode=config.vllm_enable_sleep_mode, skip_tokenizer_init=True, enforce_eager=not gpu)
            AT_EXIT.callback(self.engine.llm_engine.engine_core.shutdown)
            self.generate([self.probe], 0.0, 1.0, 1)  # some shapes fail as late as here
        except (ValueError, RuntimeError) as error:  # too little memory, heads that the ranks cannot share
            fail(f"vLLM does not start: {' '.join(str(error).split())}")

    def generate(self, prompt_ids: list[list[int]], temperature: float, top_p: float, max_tokens: int):
        """As GenerateSampler, with log-probs after top-p. The ranks of one engine give it the prompts of them all."""
        size, mine = self.config.vllm_tensor_parallel_size, (prompt_ids, torch.randint(2**62, ()).item())
        shared = gather([mine])[RANK // size * size:][:size] if size > 1 else [mine]  # by the ranks of this engine
        first = sum(len(part) for part, _ in shared[:RANK % size])
        settings = self.parameters(temperature=temperature, top_p=top_p, max_tokens=max_tokens, logprobs=0,
                                   stop_token_ids=self.stops, detokenize=False)
        prompts = [dict(prompt_token_ids=ids) for part, _ in shared for ids in part]
        with torch.random.fork_rng(self.devices):  # the ranks of one engine have to draw the same tokens
            torch.manual_seed(shared[0][1])
            found = self.engine.generate(prompts, settings, use_tqdm=False)
        outputs = [request.outputs[0] for request in found[first:first + len(prompt_ids)]]
        return ([list(output.token_ids) for output in outputs],
                [[step[token].logprob for step, token in zip(output.logprobs, output.token_ids)] for output in outputs])

    def sync(self):
        """Gives the engine the policy's weights, and ends the run if its log-probs are then not the policy's."""
        super().sync()
        if self.config.vllm_enable_sleep_mode:
            self.engine.wake_up()
        self.push()
        self.engine.reset_prefix_cache()
        completions, logprobs = self.generate([self.probe], 0.0, 1.0, 8)
        expected, _ = token_logprobs(self.policy, [Sample(self.probe, completions[0])], [0])  # [1, 8]
        gap = (expected[0].detach().cpu() - torch.tensor(logprobs[0])).abs().max().item()
        if not gap < self.tolerance:
            fail(f"vLLM has not taken the new weights: its log-probs are off by {gap:.3g} nats")

    def push(self):
        weights = ((name, parameter.detach()) for name, parameter in self.policy.named_parameters())
        self.engine.collective_rpc("reload_weights", kwargs=dict(weights_iterator=weights))
        if self.policy.device.type == "cpu" and self.policy.config.tie_word_embeddings:  # or the head stays stale
            self.engine.apply_model(lambda m: m.lm_head.quant_method.process_weights_after_loading(m.lm_head))

    def sleep(self):
        super().sleep()
        if self.config.vllm_enable_sleep_mode:
            self.engine.sleep(level=2)  # forgets the weights, which `sync` brings back

def make_sampler(policy, tokenizer, config: Config) -> GenerateSampler:
    """What --engine asks for, with a hint where vLLM would be faster."""
    gpu, installed = policy.device.type == "cuda", importlib.util.find_spec("vllm") is not None
    if gpu and not installed and RANK == 0:
        print("rollouts by transformers; they are faster after: pip install vllm==0.32.0")
    chosen = config.engine == "vllm" or config.engine == "auto" and gpu and installed
    return (VllmSampler if chosen else GenerateSampler)(policy, tokenizer, config)

def roll_out(sampler, problems: list[Problem], size: int, temperature: float, max_tokens: int, top_p: float = 1.0):
    """Draws `size` completions for each problem and verifies them -> a list of groups of Samples."""
    prompts = [encode_prompt(sampler.tokenizer, problem.prompt) for problem in problems]
    problems, prompts = ([item for item in items for _ in range(size)] for items in (problems, prompts))
    completions, logprobs = sampler.generate(prompts, temperature, top_p, max_tokens)
    texts = sampler.tokenizer.batch_decode(completions, skip_special_tokens=True)
    grades = tasks.in_threads(lambda pair: tasks.grade((pair[0].verifier, pair[1], pair[0].gold),
                                                       sampler.config.verify_seconds), [*zip(problems, texts)])
    samples = [Sample(prompt, ids, text, reward, not {*ids[-1:]} & {*sampler.stops}, logps, status)
               for prompt, ids, logps, text, (reward, status) in zip(prompts, completions, logprobs, texts, grades)]
    return [samples[i:i + size] for i in range(0, len(samples), size)]

class ProblemStream:
    """Endless shuffled passes over the training problems; `position` is all that resuming has to know."""
    def __init__(self, problems: list[Problem], seed: int):
        self.problems, self.seed, self.position = problems, seed, 0

    def draw(self, count: int) -> list[Problem]:
        """This rank's of the next `count` problems a rank, dealt out in turn: minibatches then have the same prompts
        whatever the number of ranks.
        """
        first, size = self.position, len(self.problems)
        self.position += WORLD_SIZE * count
        epochs = range(first // size, self.position // size + 1)
        order = [problem for i in epochs for problem in random.Random(f"{self.seed}/{i}").sample(self.problems, size)]
        return order[first % size:][RANK:WORLD_SIZE * count:WORLD_SIZE]

def roll_out_step(sampler, stream: ProblemStream, config: Config) -> list[Sample]:
    """This rank's share of a step's N samples, by group; dynamic sampling (DAPO) replaces groups all right or wrong."""
    size, wanted = config.num_generations, config.prompts_per_step // WORLD_SIZE
    sampler.sync()
    groups = roll_out(sampler, stream.draw(wanted), size, config.temperature, config.max_completion_length)
    for _ in range(config.max_redraws if config.dynamic_sampling else 0):
        mixed = [group for group in groups if 0 < sum(sample.reward for sample in group) < size]
        missing = max(gather([wanted - len(mixed)]))  # a rank that lacks fewer draws as many, to stay in step
        if not missing:
            break
        new = roll_out(sampler, stream.draw(missing), size, config.temperature, config.max_completion_length)
        groups = (mixed + new)[:wanted]
    sampler.sleep()
    return sum(groups, [])

def token_weights(mask: torch.Tensor, aggregation: str, max_completion_length: int | None = None) -> torch.Tensor:
    """The weight of each token of one optimizer minibatch [N, T] in the loss, which then is a plain sum.
    "sequence": 1 / (N |o_i|), GRPO (000 Eq. 1). "token": 1 / sum_i |o_i|, DAPO. "constant": 1 / (N
    max_completion_length), Dr.GRPO. N and sums are over all ranks. ValueError for anything else.
    """
    sequences, tokens = global_sum(len(mask), mask.sum())
    if aggregation == "sequence":
        return mask / (sequences * mask.sum(1, keepdim=True).clamp(min=1))
    if aggregation == "token":
        return mask / max(tokens, 1)
    if aggregation == "constant" and max_completion_length:
        return mask / (sequences * max_completion_length)
    raise ValueError(f"aggregation {aggregation!r} with max_completion_length {max_completion_length}")

ClipLoss = namedtuple("ClipLoss", "loss clipped_low clipped_high")  # the last two are numbers of tokens

def ppo_clip_loss(logprobs, old_logprobs, advantages, mask, epsilon=0.2, epsilon_high=None,
                  importance_sampling_level="token", aggregation="sequence", max_completion_length=None,
                  weights=None) -> ClipLoss:
    """Sum of weight * -min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A) (000 Eq. 1, with the sign of a loss).
    logprobs, old_logprobs, mask: [N, T]; advantages: [N], or [N, T] for one a token. rho = exp(logp - old_logp) per
    token, or exp(mean over the response) at importance_sampling_level "sequence" (GSPO). `weights` [N, T] are
    token_weights of the whole minibatch when this call sees a part of it; left out, they come from `mask`.
    ValueError for an unknown level or aggregation.
    """
    mask = mask.to(logprobs.dtype)
    weights = token_weights(mask, aggregation, max_completion_length) if weights is None else weights
    log_ratio = torch.where(mask > 0, logprobs - old_logprobs, 0)  # [N, T]
    if importance_sampling_level == "sequence":
        log_ratio = (log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)).expand_as(mask)
    elif importance_sampling_level != "token":
        raise ValueError(f"importance_sampling_level {importance_sampling_level!r} is neither token nor sequence")
    ratio = log_ratio.exp()  # [N, T]
    low, high = 1 - epsilon, 1 + (epsilon if epsilon_high is None else epsilon_high)
    advantages = advantages.view(len(mask), -1)  # [N, 1], or [N, T]
    loss = -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages)  # [N, T]
    return ClipLoss((weights * loss).sum(),
                    (mask * (ratio < low) * (advantages < 0)).sum(), (mask * (ratio > high) * (advantages > 0)).sum())

def kl_penalty(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """The k3 estimate of KL(policy || reference) per token, in nats, any shape (000 Eq. 2)."""
    log_ratio = ref_logprobs - logprobs
    return log_ratio.exp() - log_ratio - 1

def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Chance that one of k samples drawn without replacement is correct (000 Eq. 37); ValueError if k > num_samples."""
    if not (0 <= num_correct <= num_samples and 1 <= k <= num_samples):
        raise ValueError(f"pass@{k} of {num_samples} samples with {num_correct} correct")
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)

def answer_entropy(answers: list[str]) -> float:
    """Entropy, in nats, of the frequencies of the distinct answers to one problem (001 C.5)."""
    return sum(-n / len(answers) * math.log(n / len(answers)) for n in Counter(answers).values())

def fit_pass_at_k(ks: list[int], values: list[float]) -> dict[str, float]:
    """a, b, c of pass@k = exp(-a (k + c)^-b), the shifted power law of 003 section 12; {} for under 3 values in (0, 1).
    For each c on a grid, log(-log pass@k) = log a - b log(k + c) is a line; the best c has the least squared error.
    """
    points = [(k, value) for k, value in zip(ks, values) if 0 < value < 1]
    if len(points) < 3:
        return {}
    k, value = np.array(points).T
    fits = []
    for c in np.geomspace(0.01, 101, 1000) - 1:
        slope, intercept = np.polyfit(np.log(k + c), np.log(-np.log(value)), 1)
        error = np.square(np.exp(-np.exp(intercept + slope * np.log(k + c))) - value).sum()
        fits.append((error, intercept, slope, c))
    _, intercept, slope, c = min(fits)
    return {"fit_a": float(np.exp(intercept)), "fit_b": float(-slope), "fit_c": float(c)}

@torch.no_grad()
def evaluate(sampler, sets: dict[str, list[Problem]], config: Config) -> dict[str, float]:
    """evaluate_set of each set, by a random stream of its own; several sets have their names before the metrics'."""
    sampler.sync()
    with torch.random.fork_rng(sampler.devices):
        torch.manual_seed(config.seed + 1000 * RANK)
        found = {name: evaluate_set(sampler, problems, config) for name, problems in sets.items()}
    sampler.sleep()
    return {f"{name}/{key}" if len(sets) > 1 else key: value for name, metrics in found.items()
            for key, value in metrics.items()}

def evaluate_set(sampler, problems: list[Problem], config: Config) -> dict[str, float]:
    """pass@k for k = 1, 2, 4 ... n = eval_samples and its fit, mean and greedy accuracy, entropies (nats), lengths."""
    n, mine = config.eval_samples, problems[RANK::WORLD_SIZE]
    length = min(config.eval_max_completion_length or config.max_completion_length,
                 getattr(sampler.policy.config, "max_position_embeddings", math.inf))
    groups = roll_out(sampler, mine, n, config.eval_temperature, length, config.top_p)
    greedy = roll_out(sampler, mine, 1, 0.0, length)
    samples = sum(groups, [])
    _, entropy = frozen_logprobs(sampler.policy, samples, replace(config, temperature=config.eval_temperature))
    entropy, tokens = global_sum(entropy.sum(), sum(len(s.completion_ids) for s in samples))
    correct, greedy, entropies, levels = zip(*gather([  # of each problem, on all ranks
        (int(sum(s.reward for s in group)), likeliest.reward,
         answer_entropy([tasks.extract(problem.verifier, s.text) for s in group]), problem.level)
        for problem, group, (likeliest,) in zip(mine, groups, greedy)]))
    ks = sorted({n, *(2**i for i in range(n.bit_length()))})
    pass_at = {f"pass@{k}": statistics.mean(pass_at_k(n, c, k) for c in correct) for k in ks}
    of_level = {f"pass@1 {level}": statistics.mean(c / n for c, other in zip(correct, levels) if other == level)
                for level in sorted(set(levels)) if len(set(levels)) > 1}
    return {**pass_at, f"avg@{n}": pass_at["pass@1"], "greedy": statistics.mean(greedy),
            "answer_entropy": statistics.mean(entropies), "token_entropy": entropy / tokens,
            **fit_pass_at_k(ks, [*pass_at.values()]), **of_level, **rollout_metrics(samples, n)}

def rollout_metrics(samples: list[Sample], num_generations: int) -> dict[str, float]:
    """Mean reward, shares of groups that are all wrong and all right, mean length, share cut off; over all ranks."""
    rewards, lengths, truncated, statuses = zip(*gather(
        [(s.reward, len(s.completion_ids), s.truncated, s.status) for s in samples]))
    rates = [statistics.mean(rewards[i:i + num_generations]) for i in range(0, len(rewards), num_generations)]
    return {"reward": statistics.mean(rewards), "all_wrong": rates.count(0) / len(rates),
            "all_right": rates.count(1) / len(rates), "length": statistics.mean(lengths),
            "truncated": truncated.count(True) / len(truncated),
            **{status: statuses.count(status) / len(statuses) for status in ("unparsed", "timeout")}}

def sampler_mismatch(samples: list[Sample], logprobs: torch.Tensor, sampled: torch.Tensor) -> dict[str, float]:
    """How far the sampler's log-probs are from the trainer's, [N, T] each: mean |difference|, k3, and largest ratio."""
    difference = (logprobs - sampled)[completion_mask(samples, logprobs.device) > 0]  # [M]
    k3 = kl_penalty(-difference, torch.zeros_like(difference))  # [M], of the sampler to the trainer
    size, k3, tokens = global_sum(difference.abs().sum(), k3.sum(), len(difference))
    return {"mismatch": size / tokens, "mismatch_k3": k3 / tokens,
            "mismatch_max_ratio": math.exp(max(gather([difference.max().item()])))}

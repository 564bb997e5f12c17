"""Completions by vLLM in the training process, and the choice between it and the decoding loop."""

import contextlib
import os
from collections.abc import Callable

from rlvr import progress
from rlvr.errors import UserError, using
from rlvr.flags import Config
from rlvr.machine import AT_EXIT
from rlvr.policy import completion_logprobs, gathered
from rlvr.rollout.rollouts import context_of
from rlvr.rollout.samplers import Sampler
from rlvr.tasks import Sample

import torch


def pack_head(model) -> None:
    """Renew the packed copy of a tied output head, which a CPU build of vLLM keeps."""
    model.lm_head.quant_method.process_weights_after_loading(model.lm_head)


class VllmSampler(Sampler):
    """vLLM, with one engine per rank."""

    def __init__(self, policy, tokenizer, config, decode):
        # vLLM warns of a missing head each time it gets weights whose head is the embedding.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read by the next import
        import vllm

        # its kernels are not the trainer's on any device
        super().__init__(policy, tokenizer, config, decode, is_exact=False)
        alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=0)
        for name, value in alone.items():  # without torchrun
            os.environ.setdefault(name, str(value))
        self.probe = tokenizer.encode("1 2 3 : 6 ")
        # how far a log-prob may be off, in nats; in bf16 it is off by up to 0.3
        self.tolerance = 1.0 if self.settings.half else 1e-3
        # LLM() seeds the generators. It fails for too little memory, or if another process frees
        # memory while it measures what is free.
        errors = (ValueError, RuntimeError, AssertionError)
        with using("vLLM", *errors), torch.random.fork_rng(self.devices):
            self.engine = vllm.LLM(
                policy.name_or_path,
                max_model_len=min(config.longest, context_of(policy)),
                distributed_executor_backend="external_launcher",
                dtype=self.settings.dtype,
                hf_overrides=dict(head_dtype="float32"),  # logits in fp32, as in the loss
                gpu_memory_utilization=config.vllm_gpu_memory_utilization,
                # By default a large GPU's engine sets several GB aside for larger batches.
                max_num_seqs=512,
                max_num_batched_tokens=8192,
                logprobs_mode="processed_logprobs",
                enforce_eager=policy.device.type != "cuda",
                # vLLM's build for CPUs fails for a prompt with a seed that two batches share.
                enable_chunked_prefill=policy.device.type == "cuda",
                skip_tokenizer_init=True,
            )
            AT_EXIT.callback(self.engine.llm_engine.engine_core.shutdown)
            # some shapes fail only here
            self.generate([self.probe], temperature=0.0, top_p=1.0, max_tokens=1)

    def generate(self, prompt_ids, *, temperature, top_p, max_tokens, call_ends=()):
        """Return what Sampler does, but with log-probs after top-p.

        Each completion has a seed from the run's generator. The engine's own seeds would ignore
        --seed, be equal on all ranks, and repeat in a resumed run.
        """
        import vllm

        seeds = [None] * len(prompt_ids)
        if temperature:
            seeds = torch.randint(2**62, (len(prompt_ids),)).tolist()
        settings = [
            vllm.SamplingParams(
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=seed,
                logprobs=0,  # only of the drawn token
                flat_logprobs=True,  # one list per completion: a dict per token costs seconds
                stop_token_ids=[*self.stops, *call_ends],
                detokenize=False,
            )
            for seed in seeds
        ]
        prompts = [dict(prompt_token_ids=ids) for ids in prompt_ids]
        requests = self.engine.generate(prompts, settings, use_tqdm=False)
        outputs = [request.outputs[0] for request in requests]
        completions = [list(output.token_ids) for output in outputs]
        logprobs = [list(output.logprobs.logprobs) for output in outputs]
        return completions, logprobs

    @contextlib.contextmanager
    def synced(self):
        """Give the engine the policy's weights. UserError if its log-probs then differ."""
        with gathered(self.policy):  # for this alone: vLLM has its own weights
            self.push()
            self.engine.reset_prefix_cache()  # it was computed with the old weights
            self.gap = self.logprob_gap()
        if not self.gap < self.tolerance:
            raise UserError(
                "vLLM has not loaded the new weights, or computes something else: its log-probs "
                f"are off by {self.gap:.3g} nats"
            )
        yield

    @torch.no_grad()
    def logprob_gap(self) -> float:
        """Return the largest difference to the policy's log-probs on a short text, in nats."""
        completions, logprobs = self.generate(
            [self.probe], temperature=0.0, top_p=1.0, max_tokens=8
        )
        greedy = Sample(self.probe, completions[0])
        width = len(greedy.completion_ids)
        expected, _ = completion_logprobs(self.policy, [greedy], 1.0, width)  # [1, width]
        return (expected[0].cpu() - torch.tensor(logprobs[0])).abs().max().item()

    def push(self) -> None:
        """Copy the weights into the engine."""
        weights = ((name, value.detach()) for name, value in self.policy.named_parameters())
        self.engine.collective_rpc("reload_weights", kwargs=dict(weights_iterator=weights))
        if self.policy.device.type == "cpu" and self.policy.config.tie_word_embeddings:
            self.engine.apply_model(pack_head)


def make_sampler(policy, tokenizer, config: Config, decode: Callable) -> Sampler:
    """Return the sampler that --engine asks for; `decode` is the loop of the one without vLLM."""
    gpu = policy.device.type == "cuda"
    if config.uses_vllm(gpu):
        return VllmSampler(policy, tokenizer, config, decode)
    if gpu and config.engine == "auto":
        progress.write("rollouts use transformers; vLLM is faster: pip install vllm==0.32.0")
    return Sampler(policy, tokenizer, config, decode)

"""Completions by vLLM in the training process."""

import os

from rlvr import world
from rlvr.errors import UserError
from rlvr.machine import AT_EXIT, computes_in_bf16, gather
from rlvr.policy import completion_logprobs, unshard
from rlvr.rollout.rollouts import context_of
from rlvr.rollout.samplers import Sampler
from rlvr.tasks import Sample, reader_of

import torch


def reading_settings(policy, config) -> dict:
    """What vLLM is to be told of how a prompt is read."""
    reader = reader_of(policy)
    if reader is None:
        return dict(skip_tokenizer_init=True)
    # vLLM reserves memory for the largest image, and those of longer prompts are dropped.
    side = reader.processor.patch_size * reader.processor.merge_size
    smallest, largest = (reader.processor.size[f"{edge}_edge"] for edge in ("shortest", "longest"))
    largest = min(largest, config.max_prompt_length * side**2)  # in pixels, as they are in `size`
    return dict(
        mm_processor_kwargs=dict(size=dict(shortest_edge=smallest, longest_edge=largest)),
        limit_mm_per_prompt=dict(video=0),
    )


def head_of(model):
    """The output head of vLLM's model, which is inside of its language model if there is one."""
    return getattr(model, "language_model", model).lm_head


class VllmSampler(Sampler):
    """One engine a rank, or --vllm_tensor_parallel_size ranks that share one."""

    is_vllm = True

    def __init__(self, policy, tokenizer, config, decode):
        # At every push of a policy whose head is its embedding, vLLM warns of a missing head.
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")  # read by the next import
        import vllm

        super().__init__(policy, tokenizer, config, decode)
        alone = dict(RANK=0, LOCAL_RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=0)
        for name, value in alone.items():  # without torchrun
            os.environ.setdefault(name, str(value))
        gpu = policy.device.type == "cuda"
        self.probe = tokenizer.encode("1 2 3 : 6 ")
        in_bf16 = computes_in_bf16(policy)
        # by which a log-prob may be off, in nats; bf16 is off by up to 0.3
        self.tolerance = 1.0 if in_bf16 else 1e-3
        try:
            with torch.random.fork_rng(self.devices):  # LLM() seeds the generators
                self.engine = vllm.LLM(
                    policy.name_or_path,
                    max_model_len=min(config.longest, context_of(policy)),
                    distributed_executor_backend="external_launcher",
                    tensor_parallel_size=config.vllm_tensor_parallel_size,
                    dtype=torch.bfloat16 if in_bf16 else torch.float32,
                    hf_overrides=dict(head_dtype="float32"),  # logits in fp32, as in the loss
                    gpu_memory_utilization=config.vllm_gpu_memory_utilization,
                    # By default a large GPU's engine sets several GB aside for larger batches.
                    max_num_seqs=512,
                    max_num_batched_tokens=8192,
                    logprobs_mode="processed_logprobs",
                    enable_sleep_mode=config.vllm_enable_sleep_mode,
                    enforce_eager=not gpu,
                    **reading_settings(policy, config),
                )
            AT_EXIT.callback(self.engine.llm_engine.engine_core.shutdown)
            self.generate([self.probe], 0.0, 1.0, 1)  # some shapes fail as late as here
        except (ValueError, RuntimeError) as error:
            # too little memory, or heads that the ranks cannot share
            reason = " ".join(str(error).split())
            raise UserError(f"vLLM does not start: {reason}") from error
        self.sleep()  # resuming needs the memory

    def generate(self, prompt_ids, temperature, top_p, max_tokens, call_ends=(), images=()):
        """As Sampler, but with log-probs after top-p.

        The ranks of one engine give it the prompts of them all, and each takes its own back. Each
        completion has a seed of its own, which is drawn from the run's generator. Without one the
        engine would draw it: by no --seed, alike on all ranks, and alike again in a resumed run.
        """
        import vllm

        seeds = [None] * len(prompt_ids)
        if temperature:
            seeds = torch.randint(2**62, (len(prompt_ids),)).tolist()
        size = self.config.vllm_tensor_parallel_size
        mine = [*zip(prompt_ids, images or [()] * len(prompt_ids), seeds, strict=True)]
        first_rank = world.RANK // size * size  # of this engine
        by_rank = gather([mine])[first_rank : first_rank + size] if size > 1 else [mine]
        first = sum(len(requests) for requests in by_rank[: world.RANK % size])
        shared = [request for requests in by_rank for request in requests]
        settings = [
            vllm.SamplingParams(
                temperature=temperature,
                top_p=top_p,
                max_tokens=max_tokens,
                seed=seed,
                logprobs=0,  # those of the drawn token alone
                flat_logprobs=True,  # in one list a completion: a dict a token costs seconds
                stop_token_ids=[*self.stops, *call_ends],
                detokenize=False,
            )
            for _, _, seed in shared
        ]
        prompts = [self.request(ids, shown) for ids, shown, _ in shared]
        found = self.engine.generate(prompts, settings, use_tqdm=False)
        found = found[first : first + len(prompt_ids)]
        for ids, request in zip(prompt_ids, found, strict=True):
            if any(images) and request.prompt_token_ids != ids:
                raise UserError("vLLM reads the images as other tokens than the policy does")
        outputs = [request.outputs[0] for request in found]
        completions = [list(output.token_ids) for output in outputs]
        logprobs = [list(output.logprobs.logprobs) for output in outputs]
        return completions, logprobs

    def request(self, ids: list[int], images: tuple[bytes, ...]) -> dict:
        """A prompt as vLLM takes it: it repeats the token of each image itself."""
        reader = reader_of(self.policy)
        if not images or reader is None:
            return dict(prompt_token_ids=ids)
        return dict(
            prompt_token_ids=reader.merge_repeats(ids),
            multi_modal_data=dict(image=[reader.resized(encoded) for encoded in images]),
        )

    def sync(self) -> None:
        """Give the engine the policy's weights.

        UserError where its log-probs are then others than the policy's.
        """
        if self.config.vllm_enable_sleep_mode:
            self.engine.wake_up()
        unshard(self.policy, True)
        self.push()
        self.engine.reset_prefix_cache()  # its entries are the old weights'
        if reader_of(self.policy):  # so are the embeddings that are kept of images
            self.engine.llm_engine.reset_encoder_cache()
        self.gap = self.logprob_gap()
        if not self.gap < self.tolerance:
            raise UserError(
                "vLLM has not taken the new weights, or computes something else: its log-probs are "
                f"off by {self.gap:.3g} nats"
            )
        unshard(self.policy, False)  # a rollout by vLLM does not need what was gathered

    @torch.no_grad()
    def logprob_gap(self) -> float:
        """The largest difference of a short completion's log-probs to the policy's, in nats."""
        completions, logprobs = self.generate([self.probe], 0.0, 1.0, 8)
        greedy = Sample(self.probe, completions[0])
        width = len(greedy.completion_ids)
        expected, _ = completion_logprobs(self.policy, [greedy], 1.0, width)  # [1, width]
        return (expected[0].cpu() - torch.tensor(logprobs[0])).abs().max().item()

    def push(self) -> None:
        """Copy the weights into the engine."""
        weights = ((name, value.detach()) for name, value in self.policy.named_parameters())
        self.engine.collective_rpc("reload_weights", kwargs=dict(weights_iterator=weights))
        if self.policy.device.type == "cpu" and self.policy.config.tie_word_embeddings:
            # a CPU build keeps a packed copy of the tied head, which stays stale otherwise
            self.engine.apply_model(
                lambda m: head_of(m).quant_method.process_weights_after_loading(head_of(m))
            )

    def sleep(self) -> None:
        """Give memory back; at level 2 the engine forgets its weights, which `sync` brings back."""
        super().sleep()
        if self.config.vllm_enable_sleep_mode:
            self.engine.sleep(level=2)

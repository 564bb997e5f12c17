"""The optimizer steps of one rollout, by TRL's GRPOTrainer and by grpo.py, from the same weights.

TRL rolls out. grpo.py then gets these completions and rewards in place of a rollout of its own, and
both make the same updates: one in the first case, and in the others four, two minibatches twice. So
after the first update the ratios are not 1, and tokens are clipped.

LEFT says what had to be set alike, beside bf16 and gradient checkpointing, which are off.
"""

import contextlib
import io
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import rlvr.models
import rlvr.run
import rlvr.tasks.datasets
import rlvr.tiny
from rlvr.logs import read_rows
from rlvr.records import Problem, Sample

import torch
import transformers

import common
import grpo

GROUPS, SIZE, LONGEST, LEARNING_RATE = 4, 4, 16, 1e-3  # B, G, T
TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}  # by our --aggregation
PLAIN = dict(  # settings of TRL's GRPOConfig
    bf16=False,
    use_cpu=True,
    gradient_checkpointing=False,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    logging_steps=1,
)
SEVERAL = dict(minibatch_size=GROUPS * SIZE // 2, num_iterations=2)  # four updates
CASES = {  # flags of grpo.py
    "grpo, one update": dict(),
    "grpo": dict(**SEVERAL),
    "dr-grpo": dict(**SEVERAL, **grpo.VARIANTS["dr-grpo"]),
    "dapo": dict(**SEVERAL, **grpo.VARIANTS["dapo"]),
    "gspo": dict(**SEVERAL, **grpo.VARIANTS["gspo"]),
    "grpo --beta 0.3": dict(**SEVERAL, beta=0.3),
    "dapo --entropy_coef 0.1": dict(**SEVERAL, **grpo.VARIANTS["dapo"], entropy_coef=0.1),
    "grpo --mask_truncated_completions": dict(**SEVERAL, mask_truncated_completions=True),
}
LEFT = {  # what TRL does otherwise, and the case that shows what it changes
    "the standard deviation divides by G - 1, and 1e-4 is added to it": "grpo",
    "the completions are shuffled before they are cut into minibatches": "grpo",
    "the learning rate falls to 0": "grpo",
    "a token is divided by the mean number of tokens of all minibatches": "dapo",
    "the KL penalty is multiplied by the ratio": "grpo --beta 0.3",
    "an update whose gradient is 0 still moves the weights, by momentum": "gspo",
}
STD, SHUFFLED, SCHEDULE, TOKENS, BIAS, MOMENTUM = LEFT


class Steps(NamedTuple):
    """What the updates have come to."""

    policy: transformers.PreTrainedModel
    norm: float  # of the gradient, the mean over the updates


def config_of(folder: Path, flags: dict) -> grpo.Config:
    """What both sides are told."""
    given = dict(minibatch_size=GROUPS * SIZE) | flags
    return grpo.Config(
        output_dir=str(folder / "run"),
        max_steps=1,
        prompts_per_step=GROUPS,
        num_generations=SIZE,
        max_completion_length=LONGEST,
        learning_rate=LEARNING_RATE,
        eval_problems=4,
        engine="hf",
        **given,
    )


def settings_of(config: grpo.Config, left: str) -> dict:
    """The same for TRL's GRPOConfig."""
    minibatches = GROUPS * SIZE // config.minibatch_size
    return dict(
        output_dir=str(Path(config.output_dir).parent / "trl"),
        per_device_train_batch_size=config.minibatch_size,
        steps_per_generation=minibatches,
        num_iterations=config.num_iterations,
        max_steps=minibatches * config.num_iterations,
        num_generations=SIZE,
        max_completion_length=LONGEST,
        mask_truncated_completions=config.mask_truncated_completions,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="linear" if left == SCHEDULE else "constant",
        loss_type=TRL_LOSS[config.aggregation],
        importance_sampling_level=config.importance_sampling_level,
        epsilon=config.epsilon,
        epsilon_high=config.epsilon_high,
        scale_rewards=config.scale_rewards,
        beta=config.beta,
        use_bias_correction_kl=left == BIAS,
        entropy_coef=config.entropy_coef,
    )


class StillWithoutGradient(torch.optim.AdamW):
    """AdamW that makes no step where the gradient is 0, as in grpo.py."""

    def step(self, closure=None):
        if any(weights.grad.any() for weights in self.param_groups[0]["params"]):
            super().step(closure)


def make_trainer(trainer_class: type, model: Path, problems: list[Problem], reward, **settings):
    """TRL's trainer of a model in a folder, on 64 problems at most."""
    import datasets
    from trl import GRPOConfig

    return trainer_class(
        transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward,
        args=GRPOConfig(**PLAIN, **settings),
        train_dataset=datasets.Dataset.from_list([dict(prompt=p.prompt) for p in problems[:64]]),
        processing_class=transformers.AutoTokenizer.from_pretrained(model),
    )


def trl_steps(model: Path, config: grpo.Config, left: str) -> tuple[Steps, list[Sample]]:
    """TRL's updates, and the samples that it made them on; `left` is as TRL has it."""
    from trl import GRPOTrainer
    from trl.trainer import grpo_trainer

    rewards = []

    def reward(completions, **_):
        """Some right ones in each group, whatever the policy writes."""
        rewards[:] = [float(i % SIZE <= i // SIZE % 3) for i in range(len(completions))]
        return rewards

    class Trainer(GRPOTrainer):
        def create_optimizer(self, *given):
            adam = torch.optim.AdamW if left == MOMENTUM else StillWithoutGradient
            self.optimizer = adam(self.model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
            return self.optimizer

        def _generate_and_score_completions(self, inputs):
            self.rollout = super()._generate_and_score_completions(inputs)
            if left != STD:
                of_groups = torch.tensor(rewards).view(-1, SIZE)
                advantages = grpo.grpo_advantage(of_groups, config.scale_rewards)
                self.rollout["advantages"] = advantages.flatten()
            return self.rollout

        def _compute_loss(self, model, inputs):
            if left != TOKENS:  # else the mean over the minibatches
                tokens = inputs["completion_mask"].sum() * self.args.steps_per_generation
                inputs = {**inputs, "num_items_in_batch": tokens}
            return super()._compute_loss(model, inputs)

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    trainer = make_trainer(Trainer, model, problems, reward, **settings_of(config, left))
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        if left != SHUFFLED:
            stack.enter_context(
                mock.patch.object(grpo_trainer, "shuffle_sequence_dict", lambda rows: rows)
            )
        trainer.train()
    norms = [row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row]
    assert len(norms) == trainer.args.max_steps
    steps = Steps(trainer.model, statistics.mean(norms))
    return steps, samples_of(trainer.rollout, rewards, tokenizer.eos_token_id)


def samples_of(rollout: dict, rewards: list[float], stop: int) -> list[Sample]:
    """TRL's rollout as this project keeps one. A row ends behind its stop token, if it has one."""
    samples = []
    for i, reward in enumerate(rewards):
        prompt = rollout["prompt_ids"][i][rollout["prompt_mask"][i] == 1]
        completion = rollout["completion_ids"][i].tolist()
        truncated = stop not in completion
        if not truncated:
            completion = completion[: completion.index(stop) + 1]
        samples.append(
            Sample(
                prompt_ids=prompt.tolist(),
                completion_ids=completion,
                logprobs=[0.0] * len(completion),  # of the sampler, which nothing corrects for
                reward=reward,
                success=reward == 1,
                truncated=truncated,
            )
        )
    return samples


def own_steps(model: Path, config: grpo.Config, samples: list[Sample]) -> tuple[Steps, float]:
    """grpo.py's updates on these samples, and the share of the tokens that it has clipped."""
    policy = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with (
        mock.patch.object(rlvr.models, "load_policy", lambda *_: (policy, tokenizer)),
        mock.patch.object(common, "roll_out", lambda *_: common.make_batch(samples, config, "cpu")),
        mock.patch.object(common, "evaluate", lambda *_: {"pass@1": 0.0}),
        contextlib.redirect_stdout(io.StringIO()),
        rlvr.run.AT_EXIT,
    ):
        grpo.main(config)
    (row,) = read_rows(Path(config.output_dir), "metrics")
    return Steps(policy, row["grad_norm"]), row["clip_low"] + row["clip_high"]


def compare(flags: dict, left: str = "") -> dict[str, float]:
    """How far apart both are: the gradient's norm, relative, and the weights, by their update.

    "clipped" is the share of the tokens that the clip has left without a gradient.
    """
    with tempfile.TemporaryDirectory() as scratch, torch.random.fork_rng():
        folder = Path(scratch)
        torch.manual_seed(0)
        start, tokenizer = rlvr.tiny.build_tiny()
        start.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        config = config_of(folder, flags)
        theirs, samples = trl_steps(folder / "model", config, left)
        ours, clipped = own_steps(folder / "model", config, samples)
    before, after, other = (
        torch.cat([weights.detach().flatten() for weights in policy.parameters()])
        for policy in (start, ours.policy, theirs.policy)
    )
    update, apart = (after - before).norm(), (after - other).norm()
    return {
        "gradient norm": abs(ours.norm - theirs.norm) / theirs.norm,
        "weights": (apart / update).item(),
        "clipped": clipped,
    }

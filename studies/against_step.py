"""One optimizer step by TRL's GRPOTrainer and by grpo.py, from the same weights and completions.

TRL rolls out, and grpo.py then gets these completions and rewards in place of a rollout of its own.
Set alike are: the standard deviation, which TRL divides by G - 1 and adds 1e-4 to; a constant
learning rate, for TRL's falls; no bf16, no gradient checkpointing.
"""

import contextlib
import io
import tempfile
from pathlib import Path
from unittest import mock

import rlvr.models
import rlvr.run
import rlvr.tasks.datasets
import rlvr.tiny
from rlvr.logs import read_rows
from rlvr.records import Sample

import torch
import transformers

import common
import grpo

GROUPS, SIZE, LONGEST, LEARNING_RATE = 4, 4, 16, 1e-3  # B, G, T


def flags(folder: Path) -> grpo.Config:
    """What both sides are told."""
    return grpo.Config(
        output_dir=str(folder / "run"),
        max_steps=1,
        prompts_per_step=GROUPS,
        num_generations=SIZE,
        minibatch_size=GROUPS * SIZE,
        max_completion_length=LONGEST,
        learning_rate=LEARNING_RATE,
        eval_problems=4,
        engine="hf",
    )


def trl_step(model: Path, config: grpo.Config):
    """TRL's step -> its policy, its gradient norm, and the samples that it trained on."""
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    rewards = []

    def reward(completions, **_):
        """Some right ones in each group, whatever the policy writes."""
        rewards[:] = [float(i % SIZE <= i // SIZE % 3) for i in range(len(completions))]
        return rewards

    class Trainer(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            self.rollout = super()._generate_and_score_completions(inputs)
            advantages = grpo.grpo_advantage(torch.tensor(rewards).view(-1, SIZE)).flatten()
            self.rollout["advantages"] = advantages
            return self.rollout

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    settings = GRPOConfig(
        output_dir=str(Path(config.output_dir).parent / "trl"),
        per_device_train_batch_size=GROUPS * SIZE,
        num_generations=SIZE,
        max_completion_length=LONGEST,
        max_steps=1,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        loss_type="grpo",
        beta=0.0,
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
    )
    trainer = Trainer(
        transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        reward,
        args=settings,
        train_dataset=datasets.Dataset.from_list([dict(prompt=p.prompt) for p in problems[:64]]),
        processing_class=tokenizer,
    )
    with contextlib.redirect_stdout(io.StringIO()):
        trainer.train()
    norm = next(row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row)
    return trainer.model, norm, samples_of(trainer.rollout, rewards)


def samples_of(rollout: dict, rewards: list[float]) -> list[Sample]:
    """TRL's rollout as this project keeps one."""
    samples = []
    for i, reward in enumerate(rewards):
        prompt = rollout["prompt_ids"][i][rollout["prompt_mask"][i] == 1]
        completion = rollout["completion_ids"][i][rollout["completion_mask"][i] == 1]
        samples.append(
            Sample(
                prompt_ids=prompt.tolist(),
                completion_ids=completion.tolist(),
                logprobs=[0.0] * len(completion),  # of the sampler, which nothing corrects for
                reward=reward,
                success=reward == 1,
            )
        )
    return samples


def own_step(model: Path, config: grpo.Config, samples: list[Sample]):
    """grpo.py's step on these samples -> its policy and its gradient norm."""
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
    return policy, read_rows(Path(config.output_dir), "metrics")[0]["grad_norm"]


def whole_step() -> dict[str, float]:
    """Relative differences of the gradient norm, and of the weights by the length of the update."""
    with tempfile.TemporaryDirectory() as scratch, torch.random.fork_rng():
        folder = Path(scratch)
        torch.manual_seed(0)
        policy, tokenizer = rlvr.tiny.build_tiny()
        policy.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        theirs, their_norm, samples = trl_step(folder / "model", flags(folder))
        ours, own_norm = own_step(folder / "model", flags(folder), samples)
    before, after, other = (
        torch.cat([weights.detach().flatten() for weights in model.parameters()])
        for model in (policy, ours, theirs)
    )
    update, apart = (after - before).norm(), (after - other).norm()
    return {
        "gradient norm": abs(own_norm - their_norm) / their_norm,
        "weights": (apart / update).item(),
    }

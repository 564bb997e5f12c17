"""vLLM beside the trainer, on a CPU: the weights are pushed after each update.

.ci/more makes an environment for it, and runs `pytest -m vllm` there. In such an environment:

    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1

By hand, `PYTHONPATH=. python tests/test_vllm_sampler.py runs/vllm` prints after every push what it
compares; before it may stand torchrun.
"""

import subprocess
import sys

import rlvr.flags.command_line
import rlvr.policy.tiny
import rlvr.training.run
from rlvr.policy.sharding import unshard
from rlvr.rollout.samplers import GenerateSampler

import pytest
from runs import ENVIRONMENT, ROOT, arguments, free_port, rows, small_flags

import common
import grpo

FLAGS = (
    "--engine vllm --numbers 2 --sft_steps 80 --max_steps 3 --prompts_per_step 8 "
    "--num_generations 8 --minibatch_size 32 --eval_problems 8 --eval_samples 4 --eval_steps 2 "
    "--learning_rate 1e-3 --entropy_coef 0.01"
).split()
pytestmark = pytest.mark.vllm
PROMPTS = ("3 9 5 : 48 ", "1 2 3 : 6 ", "4 4 8 : 40 ", "7 1 5 : 12 ")
MOST_TOKENS = 24
AS_WANTED = "vLLM writes greedily what the trainer does: True; it draws anew each time: True"


def train(folder, *options):
    """Train the tiny policy for three steps, and compare vLLM with the trainer at every push."""
    from rlvr.rollout.vllm_sampler import VllmSampler

    sync = VllmSampler.sync

    def sync_and_compare(sampler):
        sync(sampler)
        compare(sampler)

    VllmSampler.sync = sync_and_compare
    GenerateSampler.decode = staticmethod(common.decode)
    build = rlvr.policy.tiny.build_tiny
    rlvr.policy.tiny.build_tiny = lambda *_: with_heads_of_32(*build())
    # The cache is its own, since this tiny policy is not what others expect there.
    folders = ["--output_dir", folder, "--cache_dir", f"{folder}-cache"]
    sys.argv = ["grpo.py", *folders, *FLAGS, *options]
    rlvr.training.run.launch(
        grpo.main, rlvr.flags.command_line.parse_flags(grpo.Config, grpo.VARIANTS)
    )


def with_heads_of_32(policy, tokenizer):
    """The tiny policy, untrained, in a shape that vLLM knows on a CPU, and its tokenizer."""
    shape = policy.config
    shape.hidden_size = 32 * shape.num_attention_heads
    return type(policy)(shape), tokenizer


def compare(sampler):
    """Print how AS_WANTED ends here."""
    ids = [sampler.tokenizer.encode(prompt) for prompt in PROMPTS]
    theirs, _ = sampler.generate(ids, 0.0, 1.0, MOST_TOKENS)
    unshard(sampler.policy, True)  # `sync` has taken the gathered weights back
    ours, _ = GenerateSampler.generate(sampler, ids, 0.0, 1.0, MOST_TOKENS)
    unshard(sampler.policy, False)
    first, second = (sampler.generate(ids * 4, 1.0, 1.0, MOST_TOKENS)[0] for _ in range(2))
    # in one piece, since the lines of two ranks mix
    print(
        f"vLLM writes greedily what the trainer does: {theirs == ours}; "
        f"it draws anew each time: {first != second}\n",
        end="",
    )


def run(tmp_path, *command):
    """Run a command in an empty folder, as vLLM wants it on a CPU."""
    settings = dict(
        PYTHONPATH=str(ROOT),
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="nobind",
        VLLM_LOGGING_LEVEL="ERROR",
    )
    return subprocess.run(
        [str(part) for part in command],
        env={**ENVIRONMENT, **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1800,  # which only a run that hangs reaches, however busy the machine is
    )


def torchrun(ranks):
    """What stands between python and the script; nothing for one rank."""
    if ranks == 1:
        return []
    nodes = ["--nproc_per_node", ranks, "--master_port", free_port()]
    return ["-m", "torch.distributed.run", *nodes]


@pytest.mark.parametrize(
    "ranks, options",
    [(1, []), (2, []), (2, ["--vllm_tensor_parallel_size", "2"])],
    ids=["one process", "two ranks", "tensor parallel"],
)
def test_engine_follows_the_trainer(tmp_path, ranks, options):
    result = run(tmp_path, sys.executable, *torchrun(ranks), __file__, "run", *options)
    assert result.returncode == 0, result.stderr[-3000:]
    compared = [line for line in result.stdout.splitlines() if line.startswith("vLLM writes")]
    assert compared == [AS_WANTED] * 6 * ranks  # 3 rollouts, evaluations at steps 0, 2 and 3
    found = rows(tmp_path / "run")
    assert len(found) == 3
    assert all(row["mismatch"] < 1e-4 and row["grad_norm"] > 0 for row in found)
    assert all(0 <= row["sampler_gap"] < 1e-4 for row in found)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_and_its_second_step_again(tmp_path, ranks):
    """grpo.py itself, which is resumed after the first of its two steps. The policy is untrained.

    The entropy bonus sees to it that the weights change.
    """
    for part in with_heads_of_32(*rlvr.policy.tiny.build_tiny()):
        part.save_pretrained(tmp_path / "policy")
    small = {**small_flags(["model"]), "learning_rate": 1e-3, "entropy_coef": 0.01}
    flags = arguments(**small, engine="vllm", model="policy", output_dir="run")
    command = [sys.executable, *torchrun(ranks), ROOT / "grpo.py"]
    result = run(tmp_path, *command, *flags)
    assert result.returncode == 0, result.stderr[-3000:]
    made = rows(tmp_path / "run")
    assert [row["step"] for row in made] == [1, 2]
    assert all(row["grad_norm"] > 0 and 0 <= row["sampler_gap"] < 1e-4 for row in made)
    result = run(tmp_path, *command, "--resume_from_checkpoint", "run/checkpoint-1")
    assert result.returncode == 0, result.stderr[-3000:]
    again = rows(tmp_path / "run")
    assert [row["step"] for row in again] == [1, 2]
    assert again[1] == pytest.approx(made[1], rel=1e-3, abs=1e-6)


if __name__ == "__main__":
    train(*sys.argv[1:])

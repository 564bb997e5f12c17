"""Images through vLLM itself, on a CPU.

tests/test_vllm_sampler.py says where this runs. For images vLLM wants torchvision, too, in a build
for CPUs, or mended as .ci/more does it.

By hand, it prints how far vLLM's log-probs are from the trainer's after each update:

    PYTHONPATH=. python tests/test_vllm_images.py runs/vllm-images
"""

import sys
from pathlib import Path

import rlvr.flags.command_line
import rlvr.training.run

import pytest
import vision
from runs import rows
from test_images import flags
from test_vllm_sampler import run

import grpo


def train(folder):
    """Train a small Qwen2.5-VL on pictures of squares for three steps, with vLLM's rollouts."""
    vision.TEXT |= dict(
        hidden_size=128,  # on a CPU, vLLM knows heads of 32
        rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[4, 6, 6]),
    )
    given = flags(
        Path(folder),
        engine="vllm",
        output_dir=Path(folder, "run"),
        prompts_per_step=6,
        minibatch_size=24,
        max_steps=3,
        eval_steps=2,
        max_completion_length=4,
    )
    sys.argv = ["grpo.py", *given]
    rlvr.training.run.launch(
        grpo.main, rlvr.flags.command_line.parse_flags(grpo.Config, grpo.VARIANTS)
    )


@pytest.mark.vllm
def test_vllm_sees_what_the_trainer_sees(tmp_path):
    """After each of the updates, too, which change the vision tower."""
    result = run(tmp_path, sys.executable, __file__, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    found = rows(tmp_path / "run")
    assert len(found) == 3
    assert all(row["mismatch_max_ratio"] < 1.001 and row["grad_norm"] > 0 for row in found)
    assert all(0 <= row["sampler_gap"] < 1e-4 for row in found)


if __name__ == "__main__":
    train(*sys.argv[1:])

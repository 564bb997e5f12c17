"""vLLM beside the trainer, on a CPU: the weights are pushed after each update.

.ci/more makes an environment for it, and runs `pytest -m vllm` there. In such an environment:

    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1

For images vLLM wants torchvision, too, in a build for CPUs, or mended as .ci/more does it.
"""

from pathlib import Path

import pytest
import vision
from make_bases import build_tiny
from runs import ROOT, SMALL, arguments, free_port, rows, run_python
from test_images import flags

pytestmark = pytest.mark.vllm
TWO_RANKS = ["-m", "torch.distributed.run", "--nproc_per_node", "2"]
# The entropy bonus sees to it that the weights of an untrained policy change.
TRAINED = dict(engine="vllm", learning_rate=1e-3, entropy_coef=0.01, output_dir="run")


def train(tmp_path, given, launcher=()):
    """Run grpo.py in an empty folder, as vLLM wants it on a CPU -> the rows of its metrics.

    After each push of the weights its log-probs are the trainer's.
    """
    settings = dict(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind")
    port = ["--master_port", free_port()] if launcher else []
    result = run_python(*launcher, *port, ROOT / "grpo.py", *given, folder=tmp_path, **settings)
    assert result.returncode == 0, result.stderr[-3000:]
    assert not [*Path("/dev/shm").glob("*-cpushm_*")]  # with which a later run would not start
    found = rows(tmp_path / "run")
    assert all(row["mismatch_max_ratio"] < 1.001 and row["grad_norm"] > 0 for row in found)
    assert all(0 <= row["sampler_gap"] < 1e-4 for row in found)
    return found


@pytest.mark.parametrize(
    "launcher, more",
    [([], {}), (TWO_RANKS, {}), (TWO_RANKS, dict(vllm_tensor_parallel_size=2))],
    ids=["one process", "two ranks", "tensor parallel"],
)
def test_a_run_and_its_third_step_again(tmp_path, launcher, more):
    """The tiny policy, untrained, in a shape that vLLM knows on a CPU: heads of 32."""
    policy, tokenizer = build_tiny()
    policy.config.hidden_size = 32 * policy.config.num_attention_heads
    for part in (type(policy)(policy.config), tokenizer):
        part.save_pretrained(tmp_path / "policy")
    small = {**SMALL, **TRAINED, "max_steps": 3, **more}
    made = train(tmp_path, arguments(**small, model="policy"), launcher)
    again = train(tmp_path, ["--resume_from_checkpoint", "run/checkpoint-2"], launcher)
    assert [row["step"] for row in made] == [row["step"] for row in again] == [1, 2, 3]
    assert again[2] == pytest.approx(made[2], rel=1e-3, abs=1e-6)


def test_vllm_sees_the_images_that_the_trainer_sees(tmp_path, monkeypatch):
    """Pictures of squares, also after the updates, which change the vision tower."""
    monkeypatch.setitem(vision.TEXT, "hidden_size", 128)  # heads of 32
    monkeypatch.setitem(vision.TEXT["rope_parameters"], "mrope_section", [4, 6, 6])
    given = dict(prompts_per_step=6, minibatch_size=24, max_steps=3, max_completion_length=4)
    assert len(train(tmp_path, flags(tmp_path, **{**TRAINED, **given}))) == 3

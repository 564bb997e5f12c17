"""The sbatch lines of docs/many-gpus-and-resuming.md, with this test in the scheduler's place."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import ENVIRONMENT, ROOT, SMALL, arguments, free_port, rows, steps

FLAGS = {**SMALL, "max_steps": 8, "eval_steps": 8, "save_steps": 8}
TORCHRUN = f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n'
SCONTROL = '#!/bin/bash\necho "$@" >> requeued\n'


def sbatch_lines():
    """The script in the docs."""
    text = (ROOT / "docs/many-gpus-and-resuming.md").read_text()
    (lines,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", text, flags=re.DOTALL)
    return lines


def made_small(lines, cache_dir):
    """Two ranks train the tiny policy by grpo.py."""
    flags = " ".join(arguments(**FLAGS, cache_dir=cache_dir))
    for large, small in {
        "--model Qwen/Qwen2.5-7B-Instruct --dataset math": flags,
        "--nproc_per_node 8": f"--nproc_per_node 2 --master_port {free_port()}",
        "agrae.py": f"{ROOT}/grpo.py",
    }.items():
        assert lines.count(large) == 1
        lines = lines.replace(large, small)
    return lines


@pytest.fixture
def job(tmp_path, cache_dir):
    """job(signal, step) -> (exit code, printed): run the lines; at that step, signal them."""
    for name, text in {"torchrun": TORCHRUN, "scontrol": SCONTROL}.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"

    def run(number=None, step=None):
        (tmp_path / "job.sh").write_text(made_small(sbatch_lines(), cache_dir))
        with open(tmp_path / "printed", "w+") as printed:
            process = subprocess.Popen(
                ["bash", "job.sh"],
                cwd=tmp_path,
                env={**ENVIRONMENT, "PATH": path, "SLURM_JOB_ID": "7"},
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            while process.poll() is None:
                if number and f"  {step}/" in (tmp_path / "printed").read_text():
                    process.send_signal(number)
                    number = None  # once
                time.sleep(0.05)
            return process.returncode, (tmp_path / "printed").read_text()

    return run


@pytest.mark.longest
def test_a_job_that_is_warned_and_taken_back_ends_as_one_that_is_not(job, tmp_path, cache_dir):
    code, printed = job(signal.SIGUSR1, step=2)
    assert code == 0, printed
    assert "torchrun has ended with 1" in printed and "SignalException" in printed
    assert "to go on: torchrun --nproc_per_node 2 grpo.py --resume" in printed
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    run = tmp_path / "runs/job-7"
    first = steps(run)[-1]
    assert 2 <= first < 8 and (run / f"checkpoint-{first}").exists()

    code, printed = job(signal.SIGTERM, step=first + 1)  # the scheduler requeues it by itself
    assert code == 128 + signal.SIGTERM, printed
    assert "torchrun has ended with 1" in printed
    second = steps(run)[-1]
    assert first < second < 8 and (run / f"checkpoint-{second}").exists()

    code, printed = job()
    assert code == 0, printed
    assert f"  {second + 1}/8" in printed
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"

    (tmp_path / "runs").rename(tmp_path / "stopped")
    code, printed = job()
    assert code == 0, printed
    for name in ("metrics", "eval"):
        assert rows(tmp_path / "stopped/job-7", name) == rows(run, name)

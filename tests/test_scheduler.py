"""The sbatch lines of docs/many-gpus-and-resuming.md, with this test in the scheduler's place."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest
from runs import ENVIRONMENT, ROOT, SMALL, arguments, free_port, steps

PROGRAMS = {
    "torchrun": f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n',
    "scontrol": '#!/bin/bash\necho "$@" >> requeued\n',
}


def small_job(cache_dir):
    """The lines of the docs, where two ranks train the tiny policy by grpo.py."""
    text = (ROOT / "docs/many-gpus-and-resuming.md").read_text()
    (lines,) = re.findall(r"```bash\n(#!/bin/bash\n.*?)```", text, flags=re.DOTALL)
    flags = {**SMALL, "max_steps": 8, "eval_steps": 8, "save_steps": 8, "cache_dir": cache_dir}
    for large, small in {
        "--model Qwen/Qwen2.5-7B-Instruct --dataset math": " ".join(arguments(**flags)),
        "--nproc_per_node 8": f"--nproc_per_node 2 --master_port {free_port()}",
        "agrae.py": f"{ROOT}/grpo.py",
    }.items():
        assert lines.count(large) == 1
        lines = lines.replace(large, small)
    return lines


@pytest.fixture
def job(tmp_path, cache_dir):
    """job(signal, step) -> its exit code: run the lines; at that step, signal them."""
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"

    def run(number, step):
        (tmp_path / "job.sh").write_text(small_job(cache_dir))
        with open(tmp_path / "printed", "w") as printed:
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
        return process.returncode

    return run


@pytest.mark.longest
def test_a_job_that_is_warned_and_taken_back_goes_on(job, tmp_path):
    assert job(signal.SIGUSR1, step=2) == 0
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    run = tmp_path / "runs/job-7"
    first = steps(run)[-1]
    assert 2 <= first < 8 and (run / f"checkpoint-{first}").exists()

    # the scheduler requeues it by itself
    assert job(signal.SIGTERM, step=first + 1) == 128 + signal.SIGTERM
    second = steps(run)[-1]
    assert first < second < 8 and (run / f"checkpoint-{second}").exists()

    assert job(None, None) == 0
    assert steps(run) == [*range(1, 9)]
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"

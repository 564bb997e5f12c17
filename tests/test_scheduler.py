"""A job that its scheduler warns and takes back, by the lines of docs/many-gpus-and-resuming.md."""

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


@pytest.mark.longest
def test_a_job_that_is_warned_and_taken_back_goes_on(cache_dir, tmp_path):
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    run, printed = tmp_path / "runs/job-7", tmp_path / "printed"

    def job(number=None, step=None):
        """Run the lines, and signal them at that step -> the exit code, and the last step."""
        with open(printed, "w") as output:
            process = subprocess.Popen(
                ["bash", "-c", small_job(cache_dir)],
                cwd=tmp_path,
                env={**environment, "SLURM_JOB_ID": "7"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            while process.poll() is None:
                if number and f"  {step}/" in printed.read_text():
                    process.send_signal(number)
                    number = None  # once
                time.sleep(0.05)
        return process.returncode, steps(run)[-1]

    code, first = job(signal.SIGUSR1, step=2)
    assert code == 0 and 2 <= first < 8
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    code, second = job(signal.SIGTERM, step=first + 1)  # the scheduler requeues it by itself
    assert code == 128 + signal.SIGTERM and first < second < 8
    assert job() == (0, 8)
    assert steps(run) == [*range(1, 9)]
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"

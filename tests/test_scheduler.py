"""Processes that are signalled: by a scheduler, as in docs/many-gpus-and-resuming.md, or Ctrl-C."""

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
    run = tmp_path / "runs/job-7"

    def job(number, step):
        """Run the lines, and signal them at that step -> the exit code, and the last step."""
        (tmp_path / "job.sh").write_text(small_job(cache_dir))
        with open(tmp_path / "printed", "w") as printed:
            process = subprocess.Popen(
                ["bash", "job.sh"],
                cwd=tmp_path,
                env={**environment, "SLURM_JOB_ID": "7"},
                stdout=printed,
                stderr=subprocess.STDOUT,
            )
            while process.poll() is None:
                if number and f"  {step}/" in (tmp_path / "printed").read_text():
                    process.send_signal(number)
                    number = None  # once
                time.sleep(0.05)
        last = steps(run)[-1]
        assert (run / f"checkpoint-{last}").exists()
        return process.returncode, last

    code, first = job(signal.SIGUSR1, step=2)
    assert code == 0 and 2 <= first < 8
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    code, second = job(signal.SIGTERM, step=first + 1)  # the scheduler requeues it by itself
    assert code == 128 + signal.SIGTERM and first < second < 8
    assert job(None, None) == (0, 8)
    assert steps(run) == [*range(1, 9)]
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"


@pytest.mark.slow
def test_the_last_step_is_saved_where_nobody_reads_any_more(cache_dir, tmp_path):
    """Ctrl-C ends the reader of `| tee log`, too."""
    folder = tmp_path / "run"
    endless = dict(max_steps=10_000, save_steps=10_000, eval_steps=10_000)
    flags = arguments(**{**SMALL, **endless}, cache_dir=cache_dir, output_dir=folder)
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, ROOT / "grpo.py", *flags],
        **dict(env=ENVIRONMENT, cwd=tmp_path, stdout=write, stderr=write),
    ) as child:
        os.close(write)
        while not (folder / "metrics.jsonl").exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGSTOP)  # so that it prints nothing before the signal
        os.close(read)
        child.send_signal(signal.SIGINT)
        child.send_signal(signal.SIGCONT)
        assert child.wait() == 0
    assert (folder / f"checkpoint-{steps(folder)[-1]}").exists()
    assert (folder / "curves.png").exists()

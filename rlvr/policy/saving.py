"""A policy as a Hugging Face folder that is either whole or absent.

It is written under another name and then renamed. checksums.json tells later whether it is whole.
"""

import json
import os
from pathlib import Path

from rlvr.errors import UserError
from rlvr.machine import checksum, remove, scratch_folder
from rlvr.tasks import reader_of

import torch
from safetensors import SafetensorError


def save_folder(folder: Path, policy, tokenizer, state=None, weights=None) -> None:
    """Write a Hugging Face folder under another name, and rename it once it is whole.

    `weights` are those of a sharded policy, and `state` becomes state.pt. The files follow the
    umask. UserError if the disk or the file system refuses them.
    """
    try:
        with scratch_folder(folder.parent) as scratch:
            new = Path(scratch) / "new"
            policy.save_pretrained(new, state_dict=weights)
            tokenizer.save_pretrained(new)
            reader = reader_of(tokenizer)
            if reader:
                reader.processor.save_pretrained(new)
            if state:
                torch.save(state, new / "state.pt")
            sums = {file.name: checksum(file) for file in new.iterdir()}
            (new / "checksums.json").write_text(json.dumps(sums))
            mode = (new / "checksums.json").stat().st_mode
            for file in new.iterdir():  # has to be on the disk before the rename is
                file.chmod(mode)  # safetensors keeps its files to their owner
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
            remove(folder)
            new.rename(folder)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch's own is RuntimeError
        raise UserError(f"cannot write {folder}: {error}") from error

"""A policy as a Hugging Face folder that is either whole or not there.

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

    `weights` are those of a policy that is sharded, `state` what becomes state.pt. The files follow
    the umask. UserError where the disk or the file system does not take them, or where the folder
    around it is gone: a run folder that is made anew would lack what else belongs to the run.
    """
    try:
        with scratch_folder(folder.parent) as name:
            scratch = Path(name)
            made = scratch.stat()
            new = scratch / "new"
            policy.save_pretrained(new, state_dict=weights)
            save_tokenizer(tokenizer, new)
            if state:
                torch.save(state, new / "state.pt")
            sums = {file.name: checksum(file) for file in new.iterdir()}
            (new / "checksums.json").write_text(json.dumps(sums))
            for file in new.iterdir():  # has to be on the disk before the rename is
                file.chmod(0o666 & ~current_umask())  # safetensors keeps its files to their owner
                with open(file, "rb+") as opened:
                    os.fsync(opened.fileno())
            if not os.path.samestat(scratch.stat(), made):
                raise FileNotFoundError("the folder around it has been moved or removed")
            remove(folder)
            new.rename(folder)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch's own is RuntimeError
        raise UserError(f"cannot write {folder}: {error}") from error


def save_tokenizer(tokenizer, folder: Path) -> None:
    """Write the tokenizer's files, and how images are read; OSError where that is impossible."""
    try:
        tokenizer.save_pretrained(folder)
        if reader_of(tokenizer):
            reader_of(tokenizer).processor.save_pretrained(folder)
    except Exception as error:
        if type(error) is Exception:  # of the tokenizers library, which has no class of its own
            raise OSError(str(error)) from error
        raise


def current_umask() -> int:
    """The bits that the files of this process do not have; to read them is to set them twice."""
    umask = os.umask(0)
    os.umask(umask)
    return umask

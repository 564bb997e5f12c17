"""TensorBoard, Weights & Biases and trackio, beside the .jsonl files."""

from dataclasses import asdict
from pathlib import Path

from rlvr.errors import UserError


def make_writer(config, folder: Path):
    """write(metrics, step) for what --report_to names, or None. UserError without the package."""
    if config.report_to == "none":
        return None
    try:
        return WRITERS[config.report_to](config, folder)
    except ImportError as error:
        raise UserError(f"--report_to {config.report_to}: {error}") from error


def tensorboard_writer(config, folder: Path):
    """Write event files into the run folder."""
    from torch.utils.tensorboard import SummaryWriter

    events = SummaryWriter(folder)

    def write(metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            events.add_scalar(name, value, step)

    return write


def wandb_writer(config, folder: Path):
    """Start a run that follows what is written for TensorBoard."""
    import wandb

    wandb.init(project="rlvr", name=folder.name, config=asdict(config), sync_tensorboard=True)
    return tensorboard_writer(config, folder)


def trackio_writer(config, folder: Path):
    """Write into trackio's own database; a resumed run goes on under its name."""
    import trackio

    resume = "allow" if config.resume_from_checkpoint else "never"
    trackio.init(project="rlvr", name=folder.name, config=asdict(config), resume=resume)
    return trackio.log


WRITERS = {"tensorboard": tensorboard_writer, "wandb": wandb_writer, "trackio": trackio_writer}

"""A run whose last layers go back to their start now and then (FADE section 15.2).

    python studies/reset_layers.py --layers 1 --every 10 fade --variant asym --output_dir runs/a

What stands behind the two flags is a script and its flags. After every so many steps the last
layers get the weights that the run has begun with; the optimizer keeps its moments. An evaluation
of that step comes before it, so that its effect shows in the next one. With asymmetric weights the
paper sees pass@1 fall back to the start's, as what they learn is in these layers.
"""

import argparse
import importlib
import sys

import project  # noqa: F401

import rlvr.flags
import rlvr.run
from rlvr.sharding import layers_of

import torch


@torch.no_grad()
def copy_weights(source, target) -> None:
    """Give the layers in `target` the weights of those in `source`."""
    for layer, weights in zip(target, source, strict=True):
        for name, weight in layer.named_parameters():
            weight.copy_(weights[name])


class ResettingRun(rlvr.run.Run):
    """A run that resets the last `layers` layers of its policy after every `every` steps."""

    layers = 1
    every = 10

    def last_layers(self, training) -> list[torch.nn.Module]:
        """The layers that are reset."""
        return layers_of(training.policy)[-self.layers :]

    def resume(self, training) -> int:
        """As in Run, once the weights of the start are kept."""
        self.start = [
            {name: weight.detach().clone() for name, weight in layer.named_parameters()}
            for layer in self.last_layers(training)
        ]
        return super().resume(training)

    def end_step(self, step: int, training) -> bool:
        """As in Run, once the layers are reset where that is due: a checkpoint has them so."""
        if step % self.every == 0:
            copy_weights(self.start, self.last_layers(training))
            print(f"reset the last {self.layers} layers after step {step}")
        return super().end_step(step, training)


def main(script: str, flags: list[str], layers: int, every: int) -> None:
    ResettingRun.layers, ResettingRun.every = layers, every
    rlvr.run.Run = ResettingRun
    sys.argv = [f"{script}.py", *flags]
    module = importlib.import_module(script)
    rlvr.run.launch(module.main, rlvr.flags.parse_flags(module.Config, module.VARIANTS))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--layers", type=int, default=1, help="how many; the paper: 4 of 28")
    parser.add_argument("--every", type=int, default=10, help="steps from one reset to the next")
    parser.add_argument("script", choices=["grpo", "agrae", "asymgrpo", "fade", "cwgrpo"])
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="of the script")
    given = parser.parse_args()
    if given.layers < 1 or given.every < 1:
        parser.error("--layers and --every must be above 0")
    main(given.script, given.flags, given.layers, given.every)

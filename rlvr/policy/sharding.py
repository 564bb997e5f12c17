"""FSDP2: each rank keeps a share of the weights, of the gradients and of Adam's moments."""

import contextlib

from rlvr import world
from rlvr.policy.settings import settings_of

import torch
import torch.distributed as dist


def layers_of(policy) -> list[torch.nn.Module]:
    """Return the layers of a transformer that has not been sharded yet."""
    return [m for m in policy.modules() if type(m).__name__ in policy._no_split_modules]


def shard(policy, frozen: bool = False, device: str = "cpu") -> None:
    """Shard the policy. A layer is gathered when it is used, and gradients are added up.

    Build the optimizer before anything is computed: the embedding and the head stay gathered from
    their first forward pass to the backward pass, and an optimizer that is given the gathered ones
    does not train them.
    """
    from torch.distributed import fsdp

    mesh = dist.device_mesh.init_device_mesh(device, (world.WORLD_SIZE,))
    settings = settings_of(policy)
    mixed = fsdp.MixedPrecisionPolicy(settings.dtype, torch.float32)
    dtypes = mixed if settings.half else fsdp.MixedPrecisionPolicy()
    for module in (*layers_of(policy), policy):
        # What is not in a layer is needed last in the forward pass and first in the backward pass,
        # which a frozen policy does not have.
        reshard = frozen or module is not policy
        part = fsdp.fully_shard(module, mesh=mesh, mp_policy=dtypes, reshard_after_forward=reshard)
        # Sums instead of means over the ranks: token_weights are those of the global minibatch.
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)
    policy.use = lambda function, *args, **kwargs: function(policy, *args, **kwargs)
    fsdp.register_fsdp_forward_method(policy, "use")


def use(policy, function, *args, **kwargs):
    """Return function(policy, ...), which may use sharded weights as `forward` does."""
    if is_sharded(policy):
        return policy.use(function, *args, **kwargs)
    return function(policy, *args, **kwargs)


@contextlib.contextmanager
def gathered(policy):
    """Keep a sharded policy whole on each rank, for any number of uses, until the block ends."""
    sharded = [module for module in policy.modules() if is_sharded(module)]
    for module in sharded:
        module.set_reshard_after_forward(False)
        module.unshard()
    try:
        yield
    finally:
        for module in sharded:
            module.set_reshard_after_forward(module is not policy)
            module.reshard()


def add_up_gradients(policy) -> None:
    """Sum the gradients over the ranks unless FSDP has done so, and undo the scale of fp16.

    All ranks call it together.
    """
    settings = settings_of(policy)
    gradients = [parameter.grad for parameter in policy.parameters() if parameter.grad is not None]
    if world.WORLD_SIZE > 1 and not is_sharded(policy):
        for gradient in gradients:
            dist.all_reduce(gradient)
    if settings.dtype == torch.float16:
        for gradient in gradients:
            gradient /= settings.loss_scale


def is_sharded(module: torch.nn.Module) -> bool:
    """Return whether `shard` has sharded a module."""
    return hasattr(module, "unshard")  # a method that FSDP adds


def whole(tensor) -> torch.Tensor:
    """Return a tensor, gathered from all ranks if it is sharded."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

"""AdamW, with float32 copies of weights that are kept in half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import torch

from .network import PolicyNetwork

__all__ = ["MasterAdamW", "clip_gradient", "collect_gradient", "new_optimizer"]


class MasterAdamW(torch.optim.AdamW):
    """AdamW over float32 copies ("masters") of parameters in half precision, which are rounded from them after each step.

    A weight of 0.02 in bfloat16 has neighbours 1e-4 away: most steps of fine-tuning are smaller and would be rounded to nothing. Gradients
    of micro-batches are summed in float32 too. 16 bytes a parameter beside the weights.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], *, fused: bool) -> None:
        self.parameters = list(parameters)
        self.masters = [p.detach().float().clone() for p in self.parameters]
        super().__init__(self.masters, lr=0.0, fused=fused)

    def collect(self) -> None:
        """Add the parameters' gradients to the masters' and drop them."""
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of both."""
        super().zero_grad(set_to_none)
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of the masters; the parameters follow."""
        result = cast("float | None", super().step(closure))
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                parameter.copy_(master)
        return result

    def state_dict(self) -> dict[str, Any]:
        """AdamW's state, and the masters."""
        return {**super().state_dict(), "masters": self.masters}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; a state without masters starts them from the parameters."""
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "masters"})
        with torch.no_grad():
            for master, saved in zip(self.masters, state_dict.get("masters", self.parameters), strict=True):
                master.copy_(saved)


def new_optimizer(network: PolicyNetwork) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; each update sets its learning rate and the rest."""
    parameters = list(network.trainable.values())
    fused = network.device.type in ("cpu", "cuda")
    if any(p.dtype in (torch.bfloat16, torch.float16) for p in parameters):
        return MasterAdamW(parameters, fused=fused)
    return torch.optim.AdamW(parameters, lr=0.0, fused=fused)


def collect_gradient(optimizer: torch.optim.AdamW) -> None:
    """After each micro-batch: bring its gradient to where the optimiser sums it."""
    if isinstance(optimizer, MasterAdamW):
        optimizer.collect()


def clip_gradient(optimizer: torch.optim.AdamW, limit: float) -> float:
    """Scale the gradient to a norm of at most `limit`; returns the norm before."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return float(torch.nn.utils.clip_grad_norm_(parameters, limit)) if parameters else 0.0

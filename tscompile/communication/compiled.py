"""From a recipe to its communication plan, with kernels where the target has them."""

from __future__ import annotations

from tscompile.communication.extraction import communication
from tscompile.communication.plan import CommunicationPlan
from tscompile.deployment import requested
from tscompile.ir.finish import finish
from tscompile.ir.request import CompileRequest
from tscompile.ir.verifier import Stage, verify
from tscompile.passes.pin_kernels import pin_kernels
from tscompile.passes.pipeline import compile_until
from tscompile.passes.uncollected import uncollected
from tscompile.recipe import Recipe
from tskernels.selection import NoKernelError


def planned(recipe: Recipe) -> CommunicationPlan:
    """What the recipe's deployment communicates; its weights are not read."""
    return planned_request(requested(recipe))


@uncollected()
def planned_request(request: CompileRequest) -> CommunicationPlan:
    """What a request's deployment communicates.

    Hardware that there are no kernels for can be planned, too: `unpinned` then says which is the
    first that is missing.
    """
    draft = compile_until(request, Stage.PLAN_MEMORY, folded=True)
    try:
        pinned = pin_kernels(draft)
    except NoKernelError as missing:
        return communication(finish(draft), missing.message)
    verify(pinned, Stage.PIN_KERNELS)
    return communication(finish(pinned))

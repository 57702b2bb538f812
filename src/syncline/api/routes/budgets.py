"""`/v1/budgets`: how many calls may be made. For operators."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request

from syncline.api.auth import OperatorCanAdminister, OperatorCanRead, ScopedRoute, engine_of
from syncline.api.problems import Problem
from syncline.api.requests import BudgetBody
from syncline.api.responses import BudgetOut, BudgetsOut, problems

router = APIRouter(prefix="/v1/budgets", tags=["budgets"], route_class=ScopedRoute)
Scope = Annotated[str, Path(description="Its name, such as `google` or `google:{tenant}`.")]


@router.get("", responses=problems())
async def list_budgets(request: Request, principal: OperatorCanRead) -> BudgetsOut:  # noqa: ARG001
    """List all budgets with their source, and what is left of those that all share."""
    found = await engine_of(request).budgets.list()
    return BudgetsOut(items=[BudgetOut(**asdict(one)) for one in found])


@router.put("/{scope}", responses=problems(413, 415))
async def set_budget(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    scope: Scope,
    body: BudgetBody,
) -> BudgetOut:
    """Set the operator's budget of a scope. Every process obeys it within five seconds."""
    budget = await engine_of(request).budgets.set(
        scope, calls=body.calls, per=body.per, burst=body.burst, providers=tuple(body.providers)
    )
    return BudgetOut(**asdict(budget))


@router.delete("/{scope}", status_code=204, responses=problems(404))
async def clear_budget(
    request: Request,
    principal: OperatorCanAdminister,  # noqa: ARG001
    scope: Scope,
) -> None:
    """Remove the operator's budget of a scope, or else the one of the settings."""
    if not await engine_of(request).budgets.clear(scope):
        raise Problem(404, "not-found", f"{scope!r} has no budget that can be removed")

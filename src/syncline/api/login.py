"""The login form: a key once, then a cookie that no script and no other site can use."""

from functools import cache
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, FastAPI, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, Template

from syncline.api.auth import Authenticator, Needs, Principal, check_csrf
from syncline.api.problems import Problem
from syncline.model import Scope

HOME = "/"


class SignInNeeded(Exception):
    """The viewer of a page must sign in first."""


class DatabaseAway(Exception):
    """The viewer of a page cannot be identified: the database does not answer."""


async def identify_viewer(request: Request) -> Principal:
    """Return the viewer of a page; redirect a viewer who is not signed in to the form."""
    refusal: Exception | None = getattr(request.state, "refusal", None)
    if refusal is None:
        principal: Principal = request.state.principal
        return principal
    if not isinstance(refusal, Problem):
        raise DatabaseAway(f"{type(refusal).__name__}: {refusal}")
    raise SignInNeeded if refusal.status == 401 else refusal


Viewing = Annotated[Principal, Depends(Needs(Scope.READ, identify=identify_viewer))]
"""The viewer of a page."""

ViewingOperator = Annotated[
    Principal, Depends(Needs(Scope.READ, is_for_operators=True, identify=identify_viewer))
]
"""The viewer of a page that only operators may see."""

ActingOperator = Annotated[
    Principal, Depends(Needs(Scope.OPERATE, is_for_operators=True, identify=identify_viewer))
]
"""The operator who submits a form of such a page."""

AdministeringOperator = Annotated[
    Principal, Depends(Needs(Scope.ADMIN, is_for_operators=True, identify=identify_viewer))
]
"""The operator who may add connections, and change what they sign in with."""


def install(app: FastAPI) -> None:
    """Add the login form, and the routes that sign in and out."""
    template = _template()
    authenticator: Authenticator = app.state.authenticator

    @app.get("/login", include_in_schema=False)
    async def show_form(next: str = HOME) -> HTMLResponse:
        return HTMLResponse(template.render(next=_local(next), alert=None))

    @app.post("/login", include_in_schema=False)
    async def sign_in(
        request: Request,
        key: Annotated[str, Form(max_length=200)] = "",
        next: Annotated[str, Form(max_length=2000)] = HOME,
    ) -> Response:
        response = RedirectResponse(_local(next), status_code=303)
        problem = Problem(401, "key", "Invalid key: unknown, expired or revoked.")
        try:
            if await authenticator.sign_in(request, key, response):
                return response
        except Problem as refused:  # too many failed logins
            problem = refused
        html = template.render(next=_local(next), alert=problem.detail)
        return HTMLResponse(html, status_code=problem.status, headers=problem.headers)

    @app.post("/logout", include_in_schema=False)
    async def sign_out(
        request: Request, viewer: Viewing, csrf: Annotated[str, Form(max_length=100)] = ""
    ) -> Response:
        check_csrf(viewer, csrf)
        response = RedirectResponse("/login", status_code=303)
        await authenticator.sign_out(request, response)
        return response

    @app.exception_handler(SignInNeeded)
    async def redirect_to_form(request: Request, _error: Exception) -> Response:
        target = request.url.path
        return RedirectResponse(f"/login?next={quote(target)}", status_code=303)


@cache
def _template() -> Template:
    """Return the form's template, which is compiled once in a process."""
    environment = Environment(loader=PackageLoader("syncline.api", "assets"), autoescape=True)
    return environment.get_template("login.html")


def _local(target: str) -> str:
    """Return the target if it is a path of this site, otherwise the overview."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_path and target.isprintable() else HOME

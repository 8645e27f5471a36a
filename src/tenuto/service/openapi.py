"""The OpenAPI description of a server or node, as its routes really answer.
FastAPI documents a validation error of its own, which no route of ours gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute

_NEVER_SENT = ("HTTPValidationError", "ValidationError")


def described(api: FastAPI) -> dict[str, Any]:
    """The description of an application."""
    is_new = api.openapi_schema is None
    description: dict[str, Any] = api.openapi()
    if is_new:
        _with_files(api, _with_security(api, _without_foreign_errors(description)))
    return description


def application(title: str, version: str, description: str, **more: Any) -> FastAPI:
    """An application without FastAPI's own pages, which load a script from elsewhere.

    Nor its redirects from `/jobs/` to `/jobs`, which are no JSON and name the Host of the request.
    """
    plain: dict[str, Any] = dict.fromkeys(("openapi_url", "docs_url", "redoc_url"))
    named = {"generate_unique_id_function": operation_id, "redirect_slashes": False, **plain, **more}
    return FastAPI(title=title, version=version, description=description, **named)


def operation_id(route: APIRoute) -> str:
    """What programs that are made from the description call a route: the name of its function."""
    return route.name


def add_pages(router: APIRouter, responses: dict[int | str, dict[str, Any]]) -> None:
    """The routes `/openapi.json` and `/swagger` of a server or node."""

    @router.get("/openapi.json", summary="This description", responses=responses)
    async def openapi(request: Request) -> JSONResponse:
        return JSONResponse(described(request.app))

    @router.get(
        "/swagger",
        summary="This description, as a page",
        response_class=HTMLResponse,
        responses=responses,
    )
    async def swagger(request: Request) -> HTMLResponse:
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
        page = documentation_page(described(request.app), str(request.base_url).rstrip("/"))
        return HTMLResponse(page, headers={"content-security-policy": policy})


def _with_security(api: FastAPI, description: dict[str, Any]) -> dict[str, Any]:
    """Says which routes need a token; where every client is believed, one may be given."""
    wants_token = getattr(api.state, "wants_token", True)
    schemes = description.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["bearer"] = {"type": "http", "scheme": "bearer"}
    needed: list[dict[str, list[str]]] = [{"bearer": []}] if wants_token else [{}, {"bearer": []}]
    for route in (one for router in api.state.routers for one in router.routes):
        if not isinstance(route, APIRoute):
            continue
        scopes = [getattr(one.call, "scope", None) for one in route.dependant.dependencies]
        for method in route.methods or ():
            if any(scope is not None for scope in scopes):
                path = description["paths"][route.path_format]
                path[method.lower()]["security"] = needed
    return description


def _without_foreign_errors(description: dict[str, Any]) -> dict[str, Any]:
    for methods in description["paths"].values():
        for route in methods.values():
            answer = route["responses"].get("422", {})
            if any(name in str(answer) for name in _NEVER_SENT):
                del route["responses"]["422"]
    schemas = description.get("components", {}).get("schemas", {})
    for name in _NEVER_SENT:
        schemas.pop(name, None)
    return description


def _with_files(api: FastAPI, description: dict[str, Any]) -> dict[str, Any]:
    """Says that a download is a ZIP and nothing else, where the code of an answer tells the state."""
    if getattr(api.state, "answers_by_code", False):
        for route in description["paths"]["/download/{id}"].values():
            route["responses"]["200"] = {
                "description": "The result",
                "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
            }
    return description


# The page at `/swagger`: the OpenAPI description as plain HTML, without a script from anywhere.
# Escapes whatever it shows.


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2rem; }
details { border: 1px solid var(--line); border-radius: .5rem; margin: .6rem 0; }
summary { cursor: pointer; padding: .5rem .8rem; }
summary code { font-weight: 600; } details > div { padding: 0 1rem 1rem; }
.method { display: inline-block; min-width: 4rem; font-weight: 700; font-size: .8rem; }
.get { color: #1a7f64; } .post { color: #b35900; } .head { color: #6b6b6b; }
pre { background: var(--soft); padding: .7rem; border-radius: .4rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
border-top: 1px solid var(--line); padding: .3rem .6rem .3rem 0; }
"""


def documentation_page(described: Mapping[str, Any], base_url: str) -> str:
    """The page of a description; `base_url` stands in its examples."""
    info = described["info"]
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(info['title'])}</h1><p>{escape(info.get('description', ''))} ",
        f"Version {escape(info['version'])}; for programs: <a href='openapi.json'>openapi.json</a>.</p>",
        "<h2>Routes</h2>",
    ]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            parts.extend(_route(path, method, route, base_url))
    parts.append("<h2>Bodies</h2>")
    for name, schema in described.get("components", {}).get("schemas", {}).items():
        parts.append(
            f"<details><summary><code>{escape(name)}</code></summary><div>{_code(schema)}</div></details>"
        )
    return "".join([*parts, "</body></html>"])


def _route(path: str, method: str, route: Mapping[str, Any], base_url: str) -> Iterator[str]:
    yield f"<details id='{escape(method + path)}'><summary><span class='method {escape(method)}'>"
    yield f"{escape(method.upper())}</span> <code>{escape(path)}</code> "
    yield f"{escape(route.get('summary', ''))}</summary>"
    yield f"<div><pre>{escape(_example(path, method, base_url))}</pre>"
    if parameters := route.get("parameters"):
        yield "<table><tr><th>Parameter</th><th>In</th><th></th></tr>"
        for one in parameters:
            yield f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
            yield f"<td>{escape(one.get('description', ''))}</td></tr>"
        yield "</table>"
    yield "<table><tr><th>Answer</th><th></th></tr>"
    for status, answer in route["responses"].items():
        yield f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td></tr>"
    yield "</table></div></details>"


def _example(path: str, method: str, base_url: str) -> str:
    url = base_url + path.replace("{id}", "1").replace("{key}", "KEY")
    if path in ("/upload", "/submit"):
        return f"curl -F user_id=1 -F service=example -F file=@run.sh {url}"
    return {"post": f"curl -X POST {url}", "head": f"curl -I {url}"}.get(method, f"curl {url}")


def _code(value: object) -> str:
    return f"<pre>{escape(json.dumps(value, indent=1, ensure_ascii=False))}</pre>"

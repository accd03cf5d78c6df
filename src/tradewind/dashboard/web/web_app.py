"""Dispatch a request to a view and send the response.

Owns the table of addresses, cookies, the token of forms and the handling of errors. Views never use
HTTP, and this module never uses streams.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from tradewind.dashboard.data.problems import Problem, problem_of
from tradewind.dashboard.look.elements import is_own_address, tag
from tradewind.dashboard.look.page_layout import (
    MAIN_CONTEXT,
    Visit,
    bare_page,
    card,
    choice,
    field,
    heading,
    page,
    problem_note,
)
from tradewind.dashboard.views import (
    account_views,
    bucket_views,
    connection_views,
    consumer_changes,
    consumer_list_views,
    consumer_views,
    dead_letter_views,
    finding_views,
    kv_changes,
    kv_views,
    map_views,
    message_views,
    object_views,
    overview,
    pipeline_views,
    request_views,
    schedule_views,
    search_views,
    service_views,
    sql_views,
    stream_backups,
    stream_changes,
    stream_forms,
    stream_integrity,
    stream_list_views,
    stream_views,
    table_views,
    template_views,
    transfer_views,
)
from tradewind.dashboard.views.call import (
    Answer,
    BadFormError,
    Call,
    Download,
    FormRefusal,
    PageAnswer,
    RedirectAnswer,
    TextAnswer,
)
from tradewind.dashboard.web.forms import file_body, read_form
from tradewind.dashboard.web.sessions import LoginRefusedError, LoginSession, Sessions
from tradewind.dashboard.web.static_files import static_file
from tradewind.errors import TradewindError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Send

    from tradewind.dashboard.data.machine import Machine
    from tradewind.dashboard.web.running import RunRules

View = Callable[[Call], Awaitable[Answer]]
READ_ONLY: Final = "The dashboard was started with --read-only: nothing can be changed here."
STALE: Final = "This page was too old. Reload it and try again."
STATUSES: Final = {"denied": 403, "missing": 404, "away": 503, "refused": 409, "failed": 502}

STREAM: Final = "/streams/{stream}"
MESSAGE: Final = STREAM + "/messages/{sequence}"
CONSUMER: Final = STREAM + "/consumers/{consumer}"
PIPELINE: Final = "/pipelines/{pipeline}"
LETTERS: Final = "/dead-letters/{stream}"
LETTER: Final = LETTERS + "/{sequence}"
VIEWS: Final[tuple[tuple[str, View], ...]] = (
    ("/", overview.show),
    ("/search", finding_views.show),
    ("/streams", stream_list_views.show),
    ("/new-stream", stream_forms.show_new),
    (STREAM, stream_views.show),
    (STREAM + "/subjects", stream_views.show_subjects),
    (STREAM + "/consumers", consumer_list_views.show_of_stream),
    (STREAM + "/config", stream_views.show_config),
    (STREAM + "/integrity", stream_integrity.show),
    (STREAM + "/integrity/checkpoint", stream_integrity.save_checkpoint),
    (STREAM + "/edit", stream_changes.show_edit),
    (STREAM + "/purge", stream_changes.show_purge),
    (STREAM + "/seal", stream_changes.show_seal),
    (STREAM + "/delete", stream_changes.show_delete),
    (STREAM + "/backup", stream_backups.show),
    (STREAM + "/backup/file", stream_backups.save),
    (STREAM + "/new-consumer", consumer_changes.show_new),
    ("/restore", stream_backups.show_restore),
    (STREAM + "/messages", message_views.show),
    (STREAM + "/messages/slide", message_views.slide),
    (STREAM + "/search", search_views.show),
    (STREAM + "/search/export", search_views.save),
    (MESSAGE, message_views.show_one),
    (MESSAGE + "/payload", message_views.download),
    (MESSAGE + "/delete", message_views.show_delete),
    ("/publish", message_views.show_publish),
    ("/request", request_views.show),
    ("/connections", connection_views.show),
    ("/consumers", consumer_list_views.show_all),
    ("/accounts", account_views.show),
    ("/objects", object_views.show_all),
    ("/new-store", object_views.show_new),
    ("/objects/{store}", object_views.show),
    ("/objects/{store}/-/object", object_views.show_one),
    ("/objects/{store}/-/download", object_views.download),
    ("/objects/{store}/-/remove", object_views.show_remove),
    ("/objects/{store}/-/seal", object_views.show_seal),
    ("/objects/{store}/-/delete", object_views.show_delete),
    ("/new-bucket", bucket_views.show_new),
    ("/buckets/{bucket}/watch", bucket_views.watch),
    ("/buckets/{bucket}/settings", bucket_views.show_settings),
    ("/buckets/{bucket}/markers", bucket_views.show_markers),
    ("/buckets/{bucket}/delete", bucket_views.show_delete),
    ("/buckets/{bucket}/delete-key", kv_changes.show_delete),
    ("/buckets/{bucket}/purge-key", kv_changes.show_purge),
    ("/kv", kv_views.show_all),
    ("/kv/{bucket}", kv_views.show),
    ("/kv/{bucket}/{key:path}", kv_views.show_key),
    (CONSUMER, consumer_views.show),
    (CONSUMER + "/edit", consumer_changes.show_edit),
    (CONSUMER + "/reset", consumer_changes.show_reset),
    (CONSUMER + "/delete", consumer_changes.show_delete),
    ("/dead-letters", dead_letter_views.show_streams),
    (LETTERS, dead_letter_views.show),
    (LETTERS + "/redrive", dead_letter_views.show_redrive_many),
    (LETTER, dead_letter_views.show_one),
    (LETTER + "/edit", dead_letter_views.show_edit),
    (LETTER + "/redrive", dead_letter_views.show_redrive),
    (LETTER + "/remove", dead_letter_views.show_remove),
    ("/pipelines", pipeline_views.show_all),
    (PIPELINE, pipeline_views.show),
    ("/tables", table_views.show),
    ("/services", service_views.show),
    ("/schedules", schedule_views.show),
    ("/schedules/{stream}/cancel", schedule_views.show_cancel),
    ("/templates", template_views.show_all),
    ("/new-template", template_views.show_new),
    ("/templates/{template}", template_views.show),
    ("/templates/{template}/delete", template_views.show_delete),
    ("/map", map_views.show),
    ("/sql", sql_views.show),
)
# Forms, each with the view that shows it again if it is refused; without one, a page says why.
CHANGES: Final[tuple[tuple[str, View, View | None], ...]] = (
    ("/new-stream", stream_forms.create, stream_forms.show_new),
    (STREAM + "/edit", stream_changes.review, stream_changes.show_edit),
    (STREAM + "/apply", stream_changes.apply, stream_changes.show_edit),
    (STREAM + "/purge", stream_changes.review_purge, stream_changes.show_purge),
    (STREAM + "/purge-now", stream_changes.purge, stream_changes.show_purge),
    (STREAM + "/seal", stream_changes.seal, stream_changes.show_seal),
    (STREAM + "/delete", stream_changes.delete, stream_changes.show_delete),
    (MESSAGE + "/delete", message_views.delete, None),
    (STREAM + "/search", search_views.begin, search_views.show),
    (STREAM + "/search/stop", search_views.stop, None),
    (STREAM + "/search/continue", search_views.proceed, search_views.show),
    ("/request", request_views.send, request_views.show),
    ("/publish", message_views.publish, message_views.show_publish),
    ("/kv/{bucket}/-/put", kv_changes.put, kv_changes.show_refused),
    ("/kv/{bucket}/-/delete", kv_changes.delete, kv_changes.show_delete),
    ("/kv/{bucket}/-/purge", kv_changes.purge, kv_changes.show_purge),
    ("/new-bucket", bucket_views.create, bucket_views.show_new),
    ("/buckets/{bucket}/settings", bucket_views.change, bucket_views.show_settings),
    ("/buckets/{bucket}/markers", bucket_views.remove_markers, bucket_views.show_markers),
    ("/buckets/{bucket}/delete", bucket_views.delete, bucket_views.show_delete),
    ("/new-store", object_views.create, object_views.show_new),
    ("/objects/{store}/-/remove", object_views.remove, None),
    ("/objects/{store}/-/seal", object_views.seal, object_views.show_seal),
    ("/objects/{store}/-/delete", object_views.delete, object_views.show_delete),
    ("/transfers/{transfer}/stop", transfer_views.stop, None),
    (STREAM + "/new-consumer", consumer_changes.create, consumer_changes.show_new),
    (CONSUMER + "/edit", consumer_changes.review, consumer_changes.show_edit),
    (CONSUMER + "/apply", consumer_changes.apply, consumer_changes.show_edit),
    (CONSUMER + "/pause", consumer_changes.pause, consumer_views.show),
    (CONSUMER + "/resume", consumer_changes.resume, consumer_views.show),
    (CONSUMER + "/reset", consumer_changes.reset, consumer_changes.show_reset),
    (CONSUMER + "/unpin", consumer_changes.unpin, consumer_views.show),
    (CONSUMER + "/delete", consumer_changes.delete, consumer_changes.show_delete),
    (LETTERS + "/redrive", dead_letter_views.redrive_many, dead_letter_views.show_redrive_many),
    (LETTER + "/edit", dead_letter_views.edit, dead_letter_views.show_edit),
    (LETTER + "/redrive", dead_letter_views.redrive, dead_letter_views.show_redrive),
    (LETTER + "/remove", dead_letter_views.remove, None),
    ("/redrives/{redrive}/stop", dead_letter_views.stop, None),
    (PIPELINE + "/start", pipeline_views.start, None),
    (PIPELINE + "/stop", pipeline_views.stop, None),
    (PIPELINE + "/kill", pipeline_views.kill, None),
    (PIPELINE + "/check", pipeline_views.check, None),
    ("/schedules/{stream}/cancel", schedule_views.cancel, schedule_views.show_cancel),
    ("/new-template", template_views.put, template_views.show_new),
    ("/templates/{template}/delete", template_views.delete, template_views.show_delete),
    ("/sql", sql_views.run, None),
    ("/sql/{run}/cancel", sql_views.cancel, None),
)
# Forms that only read, so that --read-only permits them.
HARMLESS: Final = frozenset(
    (STREAM + "/search", STREAM + "/search/stop", STREAM + "/search/continue")
)
# Uploads by the script of a page.
FILES: Final[tuple[tuple[str, View], ...]] = (
    ("/objects/{store}/-/upload", object_views.upload),
    ("/restore", stream_backups.restore),
)


@dataclass(frozen=True)
class _Visitor:
    """The visitor of a request; `is_new` says that the browser does not have the cookie yet."""

    session_id: str
    login: LoginSession | None
    is_new: bool


class _RequestHandler:
    """Answers requests for one dashboard."""

    def __init__(
        self, sessions: Sessions, machine: Machine, rules: RunRules, *, is_secure: bool, port: int
    ) -> None:
        self.sessions = sessions
        self.machine = machine
        self.rules = rules
        self.is_read_only = rules.is_read_only
        self.is_secure = is_secure
        # Cookies are shared between ports, so the cookie of another dashboard must have another
        # name.
        self.cookie = f"{'__Host-' if is_secure else ''}tradewind-{port}"

    # ------------------------------------------------------------------ visitors

    def visitor(self, request: Request) -> _Visitor:
        """The session that the cookie names, or a new one."""
        session_id = request.cookies.get(self.cookie, "")
        if not 20 <= len(session_id) <= 100 or not session_id.isascii():
            session_id = ""
        login = self.sessions.find(session_id) if session_id or not self.needs_login else None
        return _Visitor(session_id or self.sessions.new_id(), login, not session_id)

    @property
    def needs_login(self) -> bool:
        return self.sessions.needs_login

    def visit(self, visitor: _Visitor, *, notice: str = "") -> Visit:
        assert visitor.login is not None, "the visitor is logged in"
        return Visit(
            link=visitor.login.workspace.link,
            csrf=self.sessions.csrf(visitor.session_id),
            is_read_only=self.is_read_only,
            user=visitor.login.user,
            notice=notice,
            contexts=tuple(self.sessions.contexts),
            context=visitor.login.context,
        )

    def with_cookie(self, response: Response, session_id: str) -> Response:
        response.set_cookie(
            self.cookie, session_id, httponly=True, samesite="lax", secure=self.is_secure, path="/"
        )
        return response

    # ------------------------------------------------------------------ requests

    def reading(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        """The handler of a GET request."""

        async def answer(request: Request) -> Response:
            visitor = self.visitor(request)
            if visitor.login is None:
                target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
            is_refresh = "x-refresh" in request.headers
            notice = "" if is_refresh else self.sessions.told(visitor.session_id)
            call = self.call(request, visitor.login, self.visit(visitor, notice=notice))
            response = await self.run(view, call, visitor)
            return self.with_cookie(response, visitor.session_id) if visitor.is_new else response

        return answer

    def changing(
        self, view: View, form_view: View | None = None, *, is_harmless: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """The handler of a form."""

        async def answer(request: Request) -> Response:
            visitor = self.visitor(request)
            if visitor.login is None:
                return RedirectResponse("/login", 303)
            visit = self.visit(visitor)
            try:
                fields = await read_form(request)
            except BadFormError as error:
                return self.failed(visit, Problem("failed", str(error)), 400)
            if not self.sessions.is_csrf(visitor.session_id, fields.get("csrf", "")):
                return self.failed(visit, Problem("refused", STALE), 403)
            if self.is_read_only and not is_harmless:
                return self.failed(visit, Problem("denied", READ_ONLY), 403)
            call = self.call(request, visitor.login, visit, fields)
            return await self.run(view, call, visitor, form_view)

        return answer

    def call(
        self,
        request: Request,
        login: LoginSession,
        visit: Visit,
        fields: Mapping[str, str] | None = None,
        body: AsyncIterator[bytes] | None = None,
    ) -> Call:
        """The call for a view."""

        def run_refusal() -> str:
            return self.rules.refusal(request.scope.get("client"), request.scope.get("server"))

        return Call(
            login.workspace,
            visit,
            self.machine,
            run_refusal,
            request.path_params,
            request.query_params,
            fields or {},
            body,
        )

    def sending(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        """The handler of a file that the script of a page sends: answers with plain text, or a
        redirect.
        """

        async def answer(request: Request) -> Response:
            body = file_body(request)
            async with aclosing(body):
                return await self.take(view, request, body)

        return answer

    async def take(self, view: View, request: Request, body: AsyncIterator[bytes]) -> Response:
        """Pass an uploaded file to a view."""
        visitor = self.visitor(request)
        if visitor.login is None:
            return PlainTextResponse("Log in first.", 403)
        if not self.sessions.is_csrf(visitor.session_id, request.headers.get("x-csrf-token", "")):
            return PlainTextResponse(STALE, 403)
        if self.is_read_only:
            return PlainTextResponse(READ_ONLY, 403)
        call = self.call(request, visitor.login, self.visit(visitor), body=body)
        try:
            answer = await view(call)
        except BadFormError as error:
            return PlainTextResponse(str(error), 400)
        except TradewindError as error:
            problem = problem_of(error)
            return PlainTextResponse(problem.text, STATUSES[problem.kind])
        assert isinstance(answer, RedirectAnswer), "an upload ends with a redirect"
        self.sessions.tell(visitor.session_id, answer.notice)
        return PlainTextResponse(answer.notice, 201, headers={"location": answer.target})

    async def run(
        self, view: View, call: Call, visitor: _Visitor, form_view: View | None = None
    ) -> Response:
        """Call a view; an error of the server or of the visitor becomes a page about it, or the
        form again.
        """
        try:
            answer = await view(call)
        except TradewindError as error:
            problem = problem_of(error)
            status = 400 if isinstance(error, BadFormError) else STATUSES[problem.kind]
            again = await _form_again(form_view, call, error)
            if again is None:
                return self.failed(call.visit, problem, status)
            return HTMLResponse(again.html, status)
        if isinstance(answer, RedirectAnswer):
            if answer.notice:
                self.sessions.tell(visitor.session_id, answer.notice)
            return RedirectResponse(answer.target, 303)
        if isinstance(answer, TextAnswer):
            return PlainTextResponse(answer.text, answer.status)
        if isinstance(answer, Download):
            return _saved(answer)
        assert isinstance(answer, PageAnswer), "a view returns one of the kinds of Answer"
        return HTMLResponse(answer.html, answer.status)

    def failed(self, visit: Visit, problem: Problem, status: int) -> Response:
        """A page that says why a request failed."""
        titles = {403: "Not allowed", 404: "Not found", 503: "Away", 400: "Bad request"}
        title = titles.get(status, "Request failed")
        return HTMLResponse(page(visit, "", title, heading(title), problem_note(problem)), status)

    # ------------------------------------------------------------------ logins

    async def login_page(self, request: Request) -> Response:
        """Show the form for a NATS login."""
        visitor = self.visitor(request)
        if visitor.login is not None:
            return RedirectResponse("/", 303)
        response = self._login_form(visitor, request.query_params.get("next", "/"), "")
        return self.with_cookie(response, visitor.session_id) if visitor.is_new else response

    async def log_in(self, request: Request) -> Response:
        """Try a login."""
        visitor = self.visitor(request)
        try:
            fields = await read_form(request)
        except BadFormError as error:
            return self._login_form(visitor, "/", str(error), 400)
        target = fields.get("next", "/")
        if not self.sessions.is_csrf(visitor.session_id, fields.get("csrf", "")):
            return self._login_form(visitor, target, STALE, 403)
        if not self.needs_login:
            return RedirectResponse("/", 303)
        try:
            session_id = await self.sessions.log_in(fields)
        except LoginRefusedError as error:
            return self._login_form(visitor, target, str(error), 403)
        goto = target if is_own_address(target) and target.startswith("/") else "/"
        return self.with_cookie(RedirectResponse(goto, 303), session_id)

    async def switch(self, request: Request) -> Response:
        """Switch to another server; forms of pages that are still open are refused from then on."""
        visitor = self.visitor(request)
        if visitor.login is None:
            return RedirectResponse("/login", 303)
        try:
            fields = await read_form(request)
        except BadFormError as error:
            return PlainTextResponse(str(error), 400)
        if not self.sessions.is_csrf(visitor.session_id, fields.get("csrf", "")):
            return self.failed(self.visit(visitor), Problem("refused", STALE), 403)
        try:
            self.sessions.choose(visitor.session_id, fields.get("context", ""))
        except LoginRefusedError as error:
            return self.failed(self.visit(visitor), Problem("failed", str(error)), 400)
        return RedirectResponse("/", 303)

    async def log_out(self, request: Request) -> Response:
        """End a login."""
        visitor = self.visitor(request)
        try:
            fields = await read_form(request)
        except BadFormError as error:
            return PlainTextResponse(str(error), 400)
        if not self.sessions.is_csrf(visitor.session_id, fields.get("csrf", "")):
            return PlainTextResponse(STALE, 403)
        await self.sessions.log_out(visitor.session_id)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self.cookie)
        return response

    def _login_form(
        self, visitor: _Visitor, target: str, error: str, status: int = 200
    ) -> Response:
        note = tag("p", error, class_="notice bad", role="alert") if error else None
        form = tag(
            "form",
            tag("input", type="hidden", name="csrf", value=self.sessions.csrf(visitor.session_id)),
            tag("input", type="hidden", name="next", value=target),
            choice("Server", "context", self._choices()) if self.sessions.contexts else None,
            field("User", "user"),
            field("Password", "password", kind="password"),
            field("Or a token", "token", kind="password"),
            tag(
                "label",
                tag("span", "Or the content of a credentials file, or an nkey seed"),
                tag("textarea", name="credentials", class_="low", autocomplete="off"),
            ),
            tag("button", "Log in", class_="main"),
            action="/login",
            method="post",
            class_="stack",
        )
        hint = "The login of the NATS server: its permissions decide what you see here."
        html = bare_page("Log in", note, card("Log in", tag("p", hint, class_="faint"), form))
        return HTMLResponse(html, status)

    def _choices(self) -> list[tuple[str, str]]:
        return [("", MAIN_CONTEXT), *((name, name) for name in self.sessions.contexts)]

    async def missing(self, request: Request, _error: Exception) -> Response:
        """Show the page for an unknown address."""
        visitor = self.visitor(request)
        if visitor.login is None:
            return RedirectResponse("/login", 303)
        problem = Problem("missing", "There is no such page.")
        return self.failed(self.visit(visitor), problem, 404)


async def _form_again(
    form_view: View | None, call: Call, error: TradewindError
) -> PageAnswer | None:
    """The page of a form that was refused, with what was entered; None if it cannot be shown."""
    if form_view is None:
        return None
    errors = error.errors if isinstance(error, BadFormError) else {}
    known = {name: value for name, value in call.fields.items() if name != "csrf"}
    refused = replace(
        call, query={**known, **call.query}, refusal=FormRefusal(problem_of(error).text, errors)
    )
    try:
        answer = await form_view(refused)
    except TradewindError:
        return None
    return answer if isinstance(answer, PageAnswer) else None


class _SavedResponse(StreamingResponse):
    """A file on its way to a browser. A failed transfer stays unfinished, so that the browser does
    not take it for complete.
    """

    body_iterator: AsyncGenerator[bytes, None]

    async def stream_response(self, send: Send) -> None:
        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(start)
        async with aclosing(self.body_iterator) as chunks:
            try:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TradewindError:
                # The code that counts the transfer has recorded the reason.
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _saved(answer: Download) -> Response:
    name = quote(answer.name, safe="", errors="replace")
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{name}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    if answer.size is not None:
        headers["content-length"] = str(answer.size)
    return _SavedResponse(answer.chunks, media_type="application/octet-stream", headers=headers)


def build_application(
    sessions: Sessions, machine: Machine, rules: RunRules, *, is_secure: bool, port: int
) -> Starlette:
    """The application behind the guard."""
    handler = _RequestHandler(sessions, machine, rules, is_secure=is_secure, port=port)
    routes = [
        Route("/login", handler.login_page, methods=["GET"]),
        Route("/login", handler.log_in, methods=["POST"]),
        Route("/logout", handler.log_out, methods=["POST"]),
        Route("/context", handler.switch, methods=["POST"]),
        Route("/static/{name}", static_file, methods=["GET"]),
        *(Route(path, handler.reading(view), methods=["GET"]) for path, view in VIEWS),
        *(
            Route(
                path,
                handler.changing(view, form_view, is_harmless=path in HARMLESS),
                methods=["POST"],
            )
            for path, view, form_view in CHANGES
        ),
        *(Route(path, handler.sending(view), methods=["PUT"]) for path, view in FILES),
    ]
    return Starlette(routes=routes, exception_handlers={404: handler.missing})

"""What happens when a view fails, or a run: a hook is called, and metrics count it.

A hook is a command, which gets the violation as JSON on its standard input, or a URL, to which the
JSON is posted. Hooks run beside the judge, and never hold it up. A hook that fails or hangs is
logged, and called again at the next start; so are violations that were too many to wait for it.
After a successful call the violation gets a mark below `_told` in the folder of tables, so each
violation is told once, also across restarts. Marks go when the table `views` drops their runs
(`retention`). Only a process that is killed between the call and the mark calls twice, with the same `id`.
"""

from __future__ import annotations

import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from unisono.pipeline.session import PipelineError
from unisono.pipeline.storage import Location
from unisono.trace.sanitize import json_text

HOOK_WAIT_S = 10.0
"""How long a hook may take."""
WAITING_MAX = 10_000
"""Maximum number of violations that wait for a slow hook. Further ones are told at the next start."""
PORT_MAX = 65_535
Log = Callable[[str], None]


class HookMarks:
    """Which violations the hook was called for: a file for each, until its run is dropped."""

    def __init__(self, out: Location) -> None:
        self._folder = out / "_told"

    def __contains__(self, violation: str) -> bool:
        return (self._folder / violation).exists()

    def add(self, violation: str) -> None:
        (self._folder / violation).write_bytes(b"")

    def drop(self, violations: Iterable[str]) -> None:
        for violation in violations:
            (self._folder / violation).delete()


class Hook:
    """Calls a command or posts to a URL, once for each violation."""

    def __init__(self, target: str, out: Location, log: Log, wait_s: float = HOOK_WAIT_S) -> None:
        self._target, self._marks, self._log, self._wait_s = target, HookMarks(out), log, wait_s
        self._command = command_of(target)
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="hook")
        self._under_way: dict[str, Future[None]] = {}

    def tell(self, violations: Iterable[Mapping[str, Any]]) -> None:
        """Call the hook for those that it was not called for. Returns at once."""
        for name in [name for name, call in self._under_way.items() if call.done()]:
            del self._under_way[name]
        left_out = 0
        for violation in violations:
            name = str(violation["id"])
            if name in self._under_way:
                continue
            if len(self._under_way) >= WAITING_MAX:
                left_out += 1
                continue
            self._under_way[name] = self._calls.submit(self._call, dict(violation))
        if left_out:
            self._log(
                f"the hook {self._target!r} is too slow: {WAITING_MAX} violations wait for it, and {left_out} more "
                "are told at the next start."
            )

    def pass_over(self, violation: Mapping[str, Any]) -> None:
        """Mark a violation as told without a call: it was told in other words."""
        if str(violation["id"]) not in self._marks:
            self._marks.add(str(violation["id"]))

    def close(self, wait_s: float = 2 * HOOK_WAIT_S) -> None:
        """Wait for running calls to finish, at most `wait_s` seconds; start no others."""
        wait(list(self._under_way.values()), timeout=wait_s)
        self._calls.shutdown(wait=False, cancel_futures=True)

    def _call(self, violation: dict[str, Any]) -> None:
        name = str(violation["id"])
        try:
            if name in self._marks:
                return
            text = json_text(violation) + "\n"
            if self._command is None:
                self._post(text)
            else:
                self._run(text)
            self._marks.add(name)
        except subprocess.TimeoutExpired:
            self._log(f"the hook {self._target!r} did not end within {self._wait_s:g} s.")
        except subprocess.CalledProcessError as error:
            self._log(f"the hook {self._target!r} failed with exit code {error.returncode}.")
        except (OSError, ValueError) as error:
            self._log(f"the hook {self._target!r} could not be called: {error}.")
        except Exception as error:  # nothing that a hook does may stop the judge
            self._log(f"the hook {self._target!r} failed: {error}.")

    def _run(self, text: str) -> None:
        assert self._command is not None
        subprocess.run(
            self._command, input=text.encode(), timeout=self._wait_s, check=True, stdout=subprocess.DEVNULL
        )  # its errors are for the same terminal

    def _post(self, text: str) -> None:
        request = urllib.request.Request(
            self._target, text.encode(), {"Content-Type": "application/json"}, method="POST"
        )
        with _opener.open(request, timeout=self._wait_s):
            pass


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: following one would send a GET without the violation, and count as told."""

    def redirect_request(self, *about: Any) -> None:
        new_url = about[-1]
        raise ValueError(f"it redirects to {new_url}; name that URL instead")


_opener = urllib.request.build_opener(_NoRedirect)


def command_of(target: str) -> list[str] | None:
    """The words of a command; None: it is a URL."""
    if target.startswith(("http://", "https://")):
        return None
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise PipelineError(f"--on-fail {target!r} is no command: {error}.") from None
    if not words:
        raise PipelineError("--on-fail is empty: give a command or a URL.")
    return words


def address_of(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX):
        raise PipelineError(f"--metrics {text} is no address: give HOST:PORT.")
    return host or "127.0.0.1", int(port)


class ViewMetrics:
    """What Prometheus reads: views and violations, counted by this process, and views open now."""

    def __init__(self, address: str) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError:
            raise PipelineError(
                "metrics need the package prometheus-client: install `unisono[metrics]`, or leave --metrics out."
            ) from None
        host, port = address_of(address)
        registry = CollectorRegistry()
        self._open: set[tuple[str, str, str]] = set()
        self._views_open = Gauge(
            "unisono_views_open", "Views that are open, without a violation so far.", registry=registry
        )
        self._views = Counter("unisono_views_judged", "Views judged, by result.", ["result"], registry=registry)
        self._violations = Counter(
            "unisono_view_violations", "Violations found in views.", ["property"], registry=registry
        )
        try:
            self._server, _ = start_http_server(port, host, registry)
        except OSError as error:
            raise PipelineError(f"metrics cannot be served at {address}: {error}.") from None

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def count(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            view = (str(row["run"]), str(row["group"]), str(row["view"]))
            if row["result"] == "open":
                self._open.add(view)
                continue
            if row["result"] == "FAIL":
                self._violations.labels(str(row["property"])).inc()
            if row.get("by") == "run":
                continue  # the verdict on a view is its own
            if row["result"] != "FAIL" or view in self._open:  # it fails once, however many violations it has
                self._views.labels(str(row["result"])).inc()
            self._open.discard(view)
        self._views_open.set(len(self._open))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

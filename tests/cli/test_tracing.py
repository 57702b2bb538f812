"""Spans leave by OTLP where an endpoint is named, and not otherwise."""

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from support.commands import CommandLine


class Collector(BaseHTTPRequestHandler):
    received: list[bytes] = []  # noqa: RUF012  (one for all requests, which is the point)
    arrived = threading.Condition()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.arrived:
            self.received.append(self.path.encode() + b" " + body)
            self.arrived.notify_all()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.received.clear()
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.process
def test_run_exports_its_spans(syncline: CommandLine, collector: str) -> None:
    syncline.json("connections", "sync", syncline.add())
    process = syncline.start(
        "run",
        "--log-format",
        "json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector,
        OTEL_BSP_SCHEDULE_DELAY="100",
        OTEL_EXPORTER_OTLP_COMPRESSION="none",
    )
    wanted = {b"scheduler.tick", b"executor.claim", b"executor.run", b"executor.settle"}
    with Collector.arrived:
        Collector.arrived.wait_for(
            lambda: all(name in b"".join(Collector.received) for name in wanted), timeout=30
        )
    process.send_signal(signal.SIGTERM)
    _, logs = process.communicate(timeout=30)

    assert process.returncode == 0
    told = b"".join(Collector.received)
    assert {name for name in wanted if name in told} == wanted
    assert told.startswith(b"/v1/traces ")
    assert f"exporting spans to {collector}" in logs
    [tick] = [line for line in logs.splitlines() if '"event": "scheduler.tick"' in line][:1]
    assert '"trace_id"' in tick


@pytest.mark.process
def test_without_an_endpoint_nothing_is_set_up(syncline: CommandLine) -> None:
    program = (
        "import sys; from syncline.cli.otel import exported_spans\n"
        "with exported_spans(): print('opentelemetry.sdk' in sys.modules)"
    )

    process = syncline.start_program("-c", program)

    assert process.communicate(timeout=20)[0] == "False\n"

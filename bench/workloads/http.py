"""Real calls over TLS through `rest`, beside the same calls made by a bare client."""

import asyncio
import datetime
import json
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bench.measure import CPU_PER_JOB, JOBS_PER_SECOND, Figures, Tally
from bench.workloads.bare_client import CALLS_PER_SECOND, CPU_PER_CALL
from bench.workloads.case import Case, drain
from bench.workloads.data import add_connections, configure_connections, queue_jobs
from bench.workloads.provider import ETAG, ONE, PAGED, PAGES, RECORDS, SAME
from syncline.connectors.rest import Rest
from syncline.http import HttpClient

HOST = "localhost"
PATIENCE_SECONDS = 300
CPU_BY_BARE = "CPU ÷ bare calls"
RATE_BY_BARE = "runs/s ÷ bare loop"


@dataclass(frozen=True)
class Calls:
    """What one run calls, and what it stores."""

    targets: Sequence[str]
    signals: int
    is_conditional: bool = False


KINDS = {
    "one": Calls((ONE,), RECORDS),
    "pages": Calls((PAGED, *(f"{PAGED}?page={n}" for n in range(2, PAGES + 1))), RECORDS * PAGES),
    "304": Calls((SAME,), 0, is_conditional=True),
}


class CountedRest(Rest):
    """`rest`, which notes each run when it opens its client."""

    def __init__(self, noted: Callable[[], None]) -> None:
        super().__init__()
        self._noted = noted

    def http(self, *arguments: Any, **options: Any) -> HttpClient:
        self._noted()
        return super().http(*arguments, **options)


async def runs(case: Case) -> Figures:
    """Drain runs that call a provider on loopback; before and after, make the calls bare.

    The bare client is a process of its own. The mean of its two turns counts, because the
    machine's speed changes.
    """
    calls, jobs = KINDS[case.options["kind"]], case.size("jobs")
    async with provider() as (port, certificate):
        base_url = f"https://{HOST}:{port}"
        before = await bare(base_url, certificate, jobs, calls)
        figures = await through_engine(case, base_url, certificate, calls)
        after = await bare(base_url, certificate, jobs, calls)
    cpu, rate = (mean((before[name], after[name])) for name in (CPU_PER_CALL, CALLS_PER_SECOND))
    bare_runs, number = rate / len(calls.targets), len(calls.targets)
    return figures | {
        "bare calls/s": rate,
        "bare CPU, µs/call": cpu,
        CPU_BY_BARE: figures[CPU_PER_JOB] / (cpu * number),
        RATE_BY_BARE: figures[JOBS_PER_SECOND] / bare_runs,
    }


async def through_engine(case: Case, base_url: str, certificate: Path, calls: Calls) -> Figures:
    tally = Tally(case.size("jobs"))
    rest = CountedRest(tally.job)
    private = {"allow_private": [Rest.provider]}
    async with case.engine(rest, http=private) as engine, case.session() as session:
        assert rest.http_environment is not None
        trusted = ssl.create_default_context(cafile=certificate)
        rest.http_environment = replace(rest.http_environment, ssl_context=trusted)
        await add_connections(session, tally.expected, provider=Rest.provider)
        cursor = {"validators": {"etag": ETAG}} if calls.is_conditional else None
        await configure_connections(session, configuration(base_url, calls), cursor)
        await queue_jobs(session)
        figures = await drain(case, engine, tally, at_most=PATIENCE_SECONDS)
        stored = await session.fetchval("SELECT count(*) FROM syncline.signals")
        assert stored == tally.expected * calls.signals, stored
    return figures


def configuration(base_url: str, calls: Calls) -> dict[str, Any]:
    """Return the configuration of each connection."""
    config = {
        "base_url": base_url,
        "path": calls.targets[0],
        "records": "data",
        "kind": "ticket",
        "version": "updated_at",
        "pagination": {"style": "token", "field": "next", "parameter": "page"},
    }
    if calls.is_conditional:
        return config | {"time": "updated_at"}
    return config | {"since": {"parameter": "since", "field": "updated_at"}}


async def bare(base_url: str, certificate: Path, jobs: int, calls: Calls) -> Figures:
    """Return the figures of the bare client."""
    headers = {"If-None-Match": ETAG} if calls.is_conditional else {}
    arguments = (str(certificate), str(jobs), json.dumps(calls.targets), json.dumps(headers))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.workloads.bare_client", base_url, *arguments),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, "the bare client failed"
    figures: Figures = json.loads(said.splitlines()[-1])
    return figures


@asynccontextmanager
async def provider() -> AsyncIterator[tuple[int, Path]]:
    """Run the provider in a process of its own; yield its port and its certificate."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = write_certificate(Path(folder))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.workloads.provider", str(certificate), str(key)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(await process.stdout.readline()), certificate
        finally:
            process.stdin.close()  # it ends with its input
            await process.wait()


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "provider.crt", folder / "provider.key"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file

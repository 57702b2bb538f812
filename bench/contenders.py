"""The contenders, their settings, and how each peer gets its own environment."""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".peers"
SYNCLINE = "syncline"


@dataclass(frozen=True)
class Peer:
    """A contender next to Syncline; `requirements` pin the versions that are compared."""

    name: str
    settings: str
    requirements: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ("drain", "latency")
    runs_on_node: bool = False
    slowness: int = 1  # a peer this many times slower gets this many times fewer jobs

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS / ("node" if self.runs_on_node else self.name)

    def command(self, workload: str, url: str, count: int) -> list[str]:
        """Return the command that measures it and prints its figures as the last line."""
        if self.runs_on_node:
            script, address = str(HERE / "peers" / "graphile.js"), json.dumps(address_parts(url))
            return ["node", script, workload, address, str(count), *self.arguments]
        python = str(self.environment / "bin" / "python")
        return [python, "-m", f"bench.peers.{self.name}", workload, url, str(count)]

    def variables(self) -> dict[str, str]:
        """Return the environment variables that the process needs."""
        modules = str(self.environment / "node_modules")
        return {"NODE_PATH": modules, "NODE_ENV": "production"} if self.runs_on_node else {}


GRAPHILE = ("graphile-worker@0.17.3",)
PEERS = (
    Peer(
        "graphile-worker (24/500/0)",
        "its documented settings: concurrency 24, local queue 500, batch delay 0",
        GRAPHILE,
        ("24", "500"),
        workloads=("drain",),
        runs_on_node=True,
    ),
    Peer(
        "graphile-worker (100/10000/0)",
        "tuned: concurrency 100, local queue 10 000, batch delay 0",
        GRAPHILE,
        ("100", "10000"),
        runs_on_node=True,
    ),
    Peer(
        "pgqueuer",
        "asyncpg, uvloop, batches of 500, its autovacuum profile",
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    ),
    Peer(
        "chancy",
        "async executor, concurrency 5000, eager polling, no default plugins",
        ("chancy==0.26.0", "psycopg[binary]==3.3.8"),
    ),
    Peer(
        "procrastinate",
        "concurrency 30, pool of 20, uvloop, ANALYZE after the bulk defer",
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.8", "uvloop==0.23.0"),
        slowness=5,
    ),
)


@dataclass
class Installed:
    """Which peers are installed, and why the others are not."""

    peers: list[Peer] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)


def install(peers: Sequence[Peer]) -> Installed:
    """Create each peer's environment, unless it exists from an earlier run."""
    installed = Installed()
    for peer in peers:
        stamp = peer.environment / "installed.txt"
        wanted = "\n".join(peer.requirements)
        trouble = ""
        if not stamp.exists() or stamp.read_text() != wanted:
            trouble = _install(peer)
        if trouble:
            installed.absent[peer.name] = trouble
        else:
            stamp.write_text(wanted)
            installed.peers.append(peer)
    return installed


def _install(peer: Peer) -> str:
    """Return what went wrong, or nothing."""
    folder = str(peer.environment)
    if not peer.runs_on_node:
        pip = [str(peer.environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        return _run([sys.executable, "-m", "venv", "--clear", folder]) or _run(
            [*pip, "--disable-pip-version-check", *peer.requirements]
        )
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm were not found"
    peer.environment.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-package-lock", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
    return _run(["npm", "install", "--prefix", folder, *quiet, *peer.requirements])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    if done.returncode == 0:
        return ""
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1] if said else f"{command[0]} ended with {done.returncode}"


def address_parts(url: str) -> dict[str, str | int]:
    """Return the parts of a URL of a Unix socket, as node expects them."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    return {
        "user": parts.username or "",
        "database": parts.path.removeprefix("/"),
        "host": query["host"][0],
        "port": int(query["port"][0]),
    }

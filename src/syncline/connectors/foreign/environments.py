"""Virtual environments of third-party programs: install, upgrade, remove.

Each program has a folder `NAME` with `installed.json`, which names the environment in use. An
upgrade makes a new environment and then switches to it, so that running programs are undisturbed.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syncline.clock import new_id
from syncline.errors import Invalid, Refused
from syncline.home import resolve_home

NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?")
RECORD = "installed.json"
ABOUT_SECONDS = 60
INSTALL_SECONDS = 1800
# The operator installs: pip may read their pip and ssh configuration, use their proxy, and compile.
# It does not get the variables of Syncline, of databases or of clouds.
PASSED_ON = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
FOR_PIP = (
    *("PIP_", "XDG_", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSH_AUTH_SOCK", "GIT_SSH"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("CC", "CXX", "CFLAGS", "CPPFLAGS", "LDFLAGS", "PKG_CONFIG", "CARGO_HOME", "RUSTUP_HOME"),
)
LAST_WITH_PKG_RESOURCES = "setuptools<81"
LIST_SCRIPTS = """
import importlib.metadata as metadata, json, re, sys
wanted = re.sub(r"[-_.]+", "-", sys.argv[1]).lower()
for found in metadata.distributions():
    if re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower() == wanted:
        scripts = [e.name for e in found.entry_points if e.group == "console_scripts"]
        print(json.dumps({"version": found.version, "scripts": scripts}))
"""
LIST_DIRECT = """
import importlib.metadata as metadata, json
asked_for = [one for one in metadata.distributions() if one.read_text("REQUESTED") is not None]
print(json.dumps([one.metadata["Name"] for one in asked_for]))
"""


@dataclass(frozen=True, slots=True)
class InstalledProgram:
    """One installed program."""

    name: str
    requirement: str
    package: str
    version: str
    executable: str
    environment: str
    about: Any = None

    @property
    def settings_schema(self) -> Any:
        return self.about.get("settings") if isinstance(self.about, dict) else None

    @property
    def capabilities(self) -> list[str] | None:
        """The capabilities that it declares, or None if it declares none."""
        if not isinstance(self.about, dict) or not isinstance(self.about.get("capabilities"), list):
            return None
        return [str(one) for one in self.about["capabilities"]]


class InstalledPrograms:
    """The installed programs of one kind."""

    def __init__(self, kind: str, home: Path | None = None) -> None:
        self.folder = resolve_home(home) / kind

    def all(self) -> list[InstalledProgram]:
        """Return the installed programs by name, without records that cannot be read."""
        found = []
        for path in sorted(self.folder.glob(f"*/{RECORD}")):
            try:
                found.append(InstalledProgram(**json.loads(path.read_text())))
            except (OSError, ValueError, TypeError):
                continue
        return found

    def get(self, name: str) -> InstalledProgram:
        for one in self.all():
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.all()) or "none"
        raise Refused(f"{name} is not installed (installed: {known})")

    def add(
        self, requirement: str, *, name: str | None = None, executable: str | None = None
    ) -> InstalledProgram:
        """Install a pip requirement into a new environment."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.folder / f"environment-{new_id().hex}"
        try:
            with _readable_files():
                package = _install(draft, requirement)
            script = _choose_script(package, executable)
            name = name or script
            if not NAME.fullmatch(name):
                allowed = "lower-case letters, digits, '.', '_' and '-'"
                raise Invalid("name", f"is {name!r}; it must have only {allowed}")
            path = str(draft / "bin" / script)
            installed = InstalledProgram(
                name=name,
                requirement=requirement,
                package=package["name"],
                version=package["version"],
                executable=path,
                environment=str(draft),
                about=_ask_about(draft, path),
            )
            self._put(installed)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return installed

    def upgrade(self, name: str, requirement: str | None = None) -> InstalledProgram:
        """Install the newest version; running workers keep using the one before."""
        old = self.get(name)
        script = Path(old.executable).name
        return self.add(requirement or old.requirement, name=name, executable=script)

    def remove(self, name: str) -> None:
        """Remove a program; its running syncs may fail."""
        found = self.get(name)
        shutil.rmtree(self.folder / name)
        shutil.rmtree(found.environment, ignore_errors=True)

    def _put(self, installed: InstalledProgram) -> None:
        folder = self.folder / installed.name
        folder.mkdir(mode=0o700, exist_ok=True)
        before = folder / "before.json"
        record = folder / RECORD
        if record.exists():
            # Workers may still use the environment before this one, but no older one.
            if before.exists():
                older = json.loads(before.read_text())["environment"]
                shutil.rmtree(older, ignore_errors=True)
            os.replace(record, before)
        draft = folder / f"{RECORD}.new"
        draft.write_text(json.dumps(asdict(installed), indent=2))
        os.replace(draft, record)


def _install(environment: Path, requirement: str) -> dict[str, Any]:
    """Make an environment with the package; return its name, version and scripts."""
    # Our own pip installs into it, because installing pip first is slow.
    venv.create(environment, with_pip=not importlib.util.find_spec("pip"), symlinks=True)
    _pip_install(environment, requirement)
    python = environment / "bin" / "python"
    [name] = [
        one
        for one in json.loads(_run([str(python), "-c", LIST_DIRECT]).stdout)
        if one not in ("pip", "setuptools", "wheel")
    ]
    listed = json.loads(_run([str(python), "-c", LIST_SCRIPTS, name]).stdout)
    return {"name": name, **listed}


def _pip_install(environment: Path, requirement: str) -> None:
    if requirement.startswith("-"):
        raise Invalid("package", f"is {requirement!r}, which is an option of pip, not a package")
    python = str(environment / "bin" / "python")
    ours = importlib.util.find_spec("pip") is not None
    pip = [sys.executable, "-m", "pip", "--python", python] if ours else [python, "-m", "pip"]
    options = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--"]
    done = _run([*pip, *options, requirement], timeout=INSTALL_SECONDS, also=FOR_PIP)
    if done.returncode:
        raise Refused(f"pip could not install {requirement}: {done.stderr.strip()[-1500:]}")


def _choose_script(package: dict[str, Any], wanted: str | None) -> str:
    """Return the script that runs the program."""
    scripts: list[str] = package["scripts"]
    likely = [wanted] if wanted else [package["name"].lower(), *_starting(scripts, "tap-")]
    for script in likely:
        if script in scripts:
            return script
    listed = ", ".join(scripts) or "none"
    raise Invalid("executable", f"must name a script of {package['name']}, which has: {listed}")


def _starting(names: Iterable[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(prefix)]


def _ask_about(environment: Path, executable: str) -> Any:
    """Return the program's description of itself, or None if it has none."""
    asking = [executable, "--about", "--format=json"]
    try:
        done = _run(asking, timeout=ABOUT_SECONDS)
        if "No module named 'pkg_resources'" in done.stderr:
            # Older programs need setuptools, which environments used to include.
            _pip_install(environment, LAST_WITH_PKG_RESOURCES)
            done = _run(asking, timeout=ABOUT_SECONDS)
        about = json.loads(done.stdout[done.stdout.index("{") :])
    except (ValueError, OSError, subprocess.TimeoutExpired):
        return None
    return about if isinstance(about, dict) else None


def _run(
    command: list[str], timeout: float = 120, also: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a command with the allowed variables, and those with a prefix in `also`."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(("LC_", *also))
    }
    return subprocess.run(  # noqa: S603  (the user chose what to install)
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@contextmanager
def _readable_files() -> Iterator[None]:
    """Create files that others may read, because a sandboxed program runs as another user.

    Their folder stays closed to others.
    """
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)

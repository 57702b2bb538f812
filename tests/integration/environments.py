"""Install the servers, each in its own environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("INTEGRATION_HOME", ROOT / "build" / "integration"))
PYTHON_SERVERS = {
    "kinto": ["kinto[postgresql]==26.5.0"],
    "radicale": ["radicale==3.9.0"],
    "synapse": ["matrix-synapse==1.163.2"],
}
NODE_SERVERS = {"github-fixtures": ["@octokit/fixtures-server@8.1.7"]}
INSTALLED = "installed"  # a file with the packages, written when all of them are installed


def program(environment: str, name: str) -> Path:
    """Return a program of an environment, or skip the test if it is not installed."""
    folder = "node_modules/.bin" if environment in NODE_SERVERS else "bin"
    path = HOME / environment / folder / name
    if not (HOME / environment / INSTALLED).exists() or not path.exists():
        pytest.skip(f"{environment} is not installed; `make integration` does so where it can")
    return path


def system_program(name: str) -> Path:
    """Return a program of this machine, or skip the test if it is missing."""
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
    if found is None:
        pytest.skip(f"this machine has no {name}")
    return Path(found)


def install_all() -> None:
    """Install what is missing; report servers that cannot be installed, whose tests are skipped."""
    for name, packages in {**PYTHON_SERVERS, **NODE_SERVERS}.items():
        folder = HOME / name
        wanted = " ".join(packages)
        if (folder / INSTALLED).exists() and (folder / INSTALLED).read_text() == wanted:
            continue
        print(f"Installing {wanted} into {folder} …", flush=True)
        install = _install_node if name in NODE_SERVERS else _install_python
        try:
            install(folder, packages)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name} cannot be installed, its tests will be skipped: {error}")
        else:
            (folder / INSTALLED).write_text(wanted)


def _install_python(folder: Path, packages: list[str]) -> None:
    _run(sys.executable, "-m", "venv", "--clear", folder)
    _run(folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *packages)


def _install_node(folder: Path, packages: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _run("npm", "install", "--silent", "--no-save", "--prefix", folder, *packages)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=900, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    install_all()

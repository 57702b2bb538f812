"""The limits of a child process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """How much one child process may use; the engine sets the time to `max_run_seconds`."""

    memory_bytes: int = 2**30
    cpu_seconds: int = 300
    file_bytes: int = 4 * 2**30
    grace_seconds: float = 3.0  # between SIGTERM and SIGKILL

    def arguments(self) -> list[str]:
        """Return the launcher's arguments."""
        return [
            f"memory={self.memory_bytes}",
            f"cpu={self.cpu_seconds}",
            f"file={self.file_bytes}",
            "core=0",
        ]

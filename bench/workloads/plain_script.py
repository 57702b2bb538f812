"""What an application does without the command line: open an engine and run it.

python -m bench.workloads.plain_script [--own-signals]
"""

import asyncio
import sys

from bench.workloads.probe import Probe
from syncline import Engine


async def main() -> None:
    own_signals = "--own-signals" in sys.argv  # the application handles them itself
    async with Engine(connectors=[Probe()]) as engine:
        if own_signals:
            asyncio.get_running_loop().add_signal_handler(15, engine.stop)
        await engine.run(scheduler=False, handle_signals=not own_signals)


if __name__ == "__main__":
    asyncio.run(main())

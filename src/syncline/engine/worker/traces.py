"""The short trace of an error: where it came from in the connector's own code.

It has no local variables and no folders of this host: files are named as their modules are.
"""

import linecache
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from syncline.redaction import LONGEST_TEXT

LONGEST_TRACE = 4_000  # bytes
FIRST_FRAMES, LAST_FRAMES = 3, 6  # that are shown of each error
MOST_ERRORS = 3  # of those that led to each other
LONGEST_LINE, LONGEST_MESSAGE = 160, 500
MOST_NOTES, LONGEST_NOTE = 3, 2_500
# Where runs begin, and where pages are checked: their frames say nothing about a connector.
OURS = ("syncline.engine.", "syncline.sdk.", "asyncio.", "concurrent.futures.")

Frame = tuple[FrameType, int]
Mask = Callable[[str, int], str]
"""Masks secrets in text and cuts it, in this order: no pattern recognises half a secret."""


def short_trace(error: BaseException, mask: Mask) -> str | None:
    """Return the trace of an error as it may be stored; None if no connector's code is in it.

    Of a long one the end is kept, which says most.
    """
    chain = list(_chain(error))
    shown = [_frames(one) for one in chain]
    notes = list(_notes(error, mask))
    if not any(shown) and not notes:
        return None
    parts = [
        "\n".join((*_describe(frames, mask), _last_line(one, mask)))
        for one, frames in zip(chain, shown, strict=True)
    ]
    text = "\n\n".join(("\n\nwhich led to\n\n".join(reversed(parts)), *notes))
    clean = text.replace("\0", "�").encode(errors="replace")
    return clean[-LONGEST_TRACE:].decode(errors="ignore")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the ones that it comes from."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen and len(seen) < MOST_ERRORS:
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            one = one.exceptions[0]
        else:
            one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _frames(error: BaseException) -> Sequence[Frame]:
    """Return the frames from the first that is not of the engine."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for index, (frame, _) in enumerate(frames):
        if not _module(frame).startswith(OURS):
            return frames[index:]
    return ()


def _describe(frames: Sequence[Frame], mask: Mask) -> Iterator[str]:
    left_out = len(frames) - FIRST_FRAMES - LAST_FRAMES
    for index, (frame, line) in enumerate(frames):
        if left_out > 0 and FIRST_FRAMES <= index < FIRST_FRAMES + left_out:
            if index == FIRST_FRAMES:
                yield f"… {left_out} more calls"
            continue
        code = frame.f_code
        yield f"{_file(frame)}:{line} in {code.co_name}"
        if source := linecache.getline(code.co_filename, line, frame.f_globals).strip():
            yield f"    {mask(source, LONGEST_LINE)}"


def _file(frame: FrameType) -> str:
    """Return the file of a frame below the folder that its package is in."""
    parts = frame.f_code.co_filename.split(os.sep)
    depth = _module(frame).count(".") + (2 if parts[-1] == "__init__.py" else 1)
    return "/".join(parts[-depth:])


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name if isinstance(name, str) else ""


def _last_line(error: BaseException, mask: Mask) -> str:
    try:
        message = mask(str(error), LONGEST_MESSAGE)
    except BaseException:  # whatever its own method does, even if it asks the process to end
        message = ""
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def _notes(error: BaseException, mask: Mask) -> Iterator[str]:
    """Yield what was noted on an error, such as the last lines that a program printed."""
    notes = getattr(error, "__notes__", None)
    for note in notes[:MOST_NOTES] if isinstance(notes, list) else ():
        if isinstance(note, str):
            yield mask(note, LONGEST_TEXT)[-LONGEST_NOTE:]

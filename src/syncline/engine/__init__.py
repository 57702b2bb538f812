"""The engine: the loops that schedule, run, settle and recover."""

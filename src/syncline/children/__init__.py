"""Child processes: one way to start them, within limits, that leaves nothing behind.

`process.run` runs a program to its end; `process.start` lends one that is read as it goes.
"""

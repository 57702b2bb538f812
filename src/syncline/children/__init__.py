"""Child processes: started within limits, and removed with everything they leave behind.

`process.run` runs a program to its end; `process.start` yields one whose output is read as it runs.
"""

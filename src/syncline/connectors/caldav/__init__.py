"""A calendar over CalDAV.

This package imports nothing: the parser's process imports `documents` from it, and stays small.
"""

"""The entries of a feed: RSS, Atom or JSON Feed.

This package imports nothing: the parser's process imports `documents` from it, and stays small.
"""

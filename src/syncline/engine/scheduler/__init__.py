"""Decides what runs next: one tick at a time."""

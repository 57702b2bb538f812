"""The commits of any git repository, read with the git program."""

from syncline.connectors.git.connector import GitCommits

__all__ = ["GitCommits"]

"""The messages of IMAP mailboxes."""

from syncline.connectors.imap.connector import Imap

__all__ = ["Imap"]

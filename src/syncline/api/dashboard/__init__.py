"""The dashboard: pages rendered on the server, everything escaped, changes only by forms."""

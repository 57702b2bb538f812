"""The dashboard: pages made on the server, escaped throughout, changed by forms alone."""

"""Built-in connectors, one file per provider."""

"""The rules of CONTRIBUTING.md that ruff, mypy and import-linter cannot check."""

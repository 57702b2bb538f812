"""How the command line draws rows and live screens."""

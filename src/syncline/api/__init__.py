"""What is served over HTTP: health, metrics and the status page."""

"""Third-party connectors: Singer taps and Airbyte manifests, run as separate programs."""

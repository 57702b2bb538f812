"""The protections that matter, by what they protect."""

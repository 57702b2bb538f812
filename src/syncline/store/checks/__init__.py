"""What `verify`, `doctor` and `explain` read."""

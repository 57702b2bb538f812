"""Switch off what protects, one thing at a time, and see who notices."""

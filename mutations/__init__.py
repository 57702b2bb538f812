"""Switch off the protections, one at a time, and see which test notices."""

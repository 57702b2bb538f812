"""What Syncline is measured at: a module per workload, each through the public `Engine` alone."""

"""The workloads, one module each; they use only the public `Engine`."""

"""Every metric, log event and span, by component."""

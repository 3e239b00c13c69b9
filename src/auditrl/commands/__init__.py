"""The commands, one module a topic. Each parses, calls, prints; the work is elsewhere."""

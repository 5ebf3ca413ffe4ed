"""The durable agent runtime: a loop of model turns and tool calls that survives a crash."""

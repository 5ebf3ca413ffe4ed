"""The real gateway, killed at chosen moments and started again on what it left behind."""

"""What the rules of every wire are watched with."""

"""Every scenario, in every dialect that can say it, into every dialect."""

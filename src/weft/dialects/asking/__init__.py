"""What requests of more than one wire are made of."""

"""How requests of this wire are read and written."""

"""What the checker knows of this wire."""

"""Parts of the decoder: what it reads in several fields at once."""

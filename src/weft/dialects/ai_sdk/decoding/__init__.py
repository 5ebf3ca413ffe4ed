"""Parts of the decoder: texts, reasonings and calls, each known by its id."""

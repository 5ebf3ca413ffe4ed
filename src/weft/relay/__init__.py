"""The relay: upstream, decoder, stages, guard, and what the client is told. Here all meet."""

"""Parts of the encoder: fields in order, what cannot be written, and the chunks or the body."""

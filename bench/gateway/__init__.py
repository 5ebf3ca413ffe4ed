"""What Weft costs as a gateway, beside nginx and beside no gateway at all."""

"""What Weft costs as a gateway, compared with nginx and with no gateway at all."""

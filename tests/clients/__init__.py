"""Real clients: read by themselves (`readers`), and through the gateway (`test_clients`)."""

from tests.clients.readers import READERS, Seen, seen, told

__all__ = ["READERS", "Seen", "seen", "told"]

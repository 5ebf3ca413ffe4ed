"""Real processes on loopback that go wrong: upstreams, clients, and the gateway between them."""

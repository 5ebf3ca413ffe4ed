"""One request on its way: routing, retries, translation, rendering, persistence."""

"""The gateway: any client, any upstream, over HTTP."""

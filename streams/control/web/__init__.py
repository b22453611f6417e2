"""The page over HTTP: an ASGI application on the gateway's server, and the files that it hands out."""

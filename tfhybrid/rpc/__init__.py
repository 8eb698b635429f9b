"""Messages between processes: listener, handshake, calls, TLS."""

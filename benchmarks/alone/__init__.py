"""What the standalone server costs: a server process, the least that any server would do, and clients that load both."""

"""The cost of the standalone server: a server process, a minimal server as the floor, and clients that load both."""

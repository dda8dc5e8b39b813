"""The lifecycles and the driver: what may follow what. Nothing here does IO, tells the time or draws a random number."""

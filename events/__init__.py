"""The vocabulary of a Responses stream: events, items, and how they are written and read. It knows no order."""

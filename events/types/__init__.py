"""The vocabulary: every event, item, part and tool as one type."""

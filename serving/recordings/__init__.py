"""Recordings: what an engine yielded for one request, turn by turn, kept as JSON lines.

recording  the format: read and written
replay     the same response from it every time, without a model, a tool or a clock
rechunk    the same tokens in other chunks
"""

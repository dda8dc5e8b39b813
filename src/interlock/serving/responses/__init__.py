"""Runs: responses while they are being made.

run         one run, whatever it reads from: feeds the driver until the response has ended
turns       a run of the standalone server: an engine is asked turn by turn, and tools run between turns
background  runs whose events are kept for any number of readers
open_runs   the runs that are going on in one process
"""

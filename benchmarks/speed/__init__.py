"""The cost of a token: Interlock beside vLLM's own code and beside a floor, the work that no code can avoid.

Both sides run in one process, on the same outputs of an engine, in turns (A, B, A, B, …), so that whatever else the machine does
meets both. A figure is CPU time of the thread: what the scheduler gives to others does not count.
"""

"""What a token costs: Interlock beside vLLM's own code and beside the least that any code would do.

Both sides run in one process, on the same outputs of an engine, in turns (A, B, A, B, …), so that whatever else the machine does
meets both. A figure is CPU time of the thread: what the scheduler gives to others does not count.
"""

"""Proves the tables (`interlock verify`): explores them, and judges what they do by rules that do not come from them.

proof            the proof that the driver cannot emit events in an illegal order
explorer         the exploration of the driver
inputs           the deltas to feed
expectation      the second judge: the visible effects of each delta
fault_injection  checks that the driver survives a writer, a clock, or a source of ids or final fields that raises
oracle           the first judge: a validator of full streams, written from the rules alone
model            compares the table of a process with a model of it
process_models   the models of the server's processes
"""

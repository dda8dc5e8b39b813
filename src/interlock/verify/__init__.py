"""Proves the tables (`interlock verify`): explores them, and judges what they do by rules that do not come from them.

proof           the proof that the driver cannot emit events in an illegal order
oracle          the first judge: a validator of full streams, written from the rules alone
expectation     the second judge: the visible effects of each delta
process_models  the models of the server's processes, with which their tables are compared
"""

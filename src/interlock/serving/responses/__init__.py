"""Runs: responses while they are being made.

service              how a request becomes a run
run                  one run: feeds the driver until the response has ended
response_run         a run of an engine: asked turn by turn, and tools run between turns
compaction_run       a conversation that is compacted first
background_response  runs whose events are stored for any number of readers
log                  the events of such a run
active_runs          the runs that are going on in one process
archive              what is stored of responses, and when
conversation_lease   the conversation that a run goes on from and is added to
sealing              encrypted content, which clients carry and only a server can read
"""

"""The command `interlock`.

main         the entry point, which names a missing package
commands     the list of the commands, and `interlock record`, `replay` and `store`
serve        `interlock serve`: runs the server
run_client   `interlock run`: a client, its settings, and a gateway for it
check        `interlock check`: checks streams, and writes the findings as text, JSON or annotations
view         `interlock view`: shows streams on a page
machines     `interlock verify` and `interlock diagram`: proves and draws the machines
options      what commands share: options, input, and how they fail

A command imports most of what it needs when it runs, so that `interlock --help` starts fast.
"""

"""The command `interlock`.

main         the entry point, which names a missing package
commands     the list of the commands, `interlock record`, and `interlock replay`
serve        `interlock serve`: runs the server
run_client   `interlock run`: a client, its settings, and a gateway for it
check        `interlock check`: checks streams, and writes the findings as text, JSON or annotations
exchange     one HTTP request, and its answer within a time limit
view         `interlock view`: shows streams on a page
machines     `interlock verify` and `interlock diagram`: proves and draws the machines
store        `interlock store`: maintains a store
options      the options that several commands have
sources      the input of commands: files, folders, standard input and URLs

A command imports most of what it needs when it runs, so that `interlock --help` starts fast.
"""

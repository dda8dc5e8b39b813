"""The command `interlock`.

main      the entry point: names the package that is missing
commands  the list of the commands with examples, and `interlock replay`
serve     `interlock serve`: runs the server
check     `interlock check`: judges streams
report    the findings of `check` as text, JSON or annotations
view      `interlock view`: shows streams on a page
verify    `interlock verify`: runs the proof
diagram   `interlock diagram`: draws a table
store     `interlock store`: looks into a store
sources   the input of commands: files, standard input, servers; and how a command fails without it

The modules that `commands` imports declare options and import nothing heavy; what a command needs is imported when it runs.
"""

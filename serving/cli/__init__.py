"""The command `interlock`.

main      the way in: says what is missing where a package is not installed
commands  the list of the commands, with an example of each
serve     `interlock serve`: runs the server
launch    `interlock serve --engine vllm`: starts vLLM in the place of the process
check     `interlock check`: judges a stream
verdicts  how a verdict is printed
sources   where a stream to be judged comes from: a file, standard input, a server
verify    `interlock verify`: runs the proof
diagram   `interlock diagram`: draws a table
diagrams  what `interlock diagram` can draw
replay    `interlock replay`: runs a recording
inputs    reading a recording, and ending with a message

The modules that `commands` imports declare options and import nothing heavy; what a command needs is imported when it runs.
"""

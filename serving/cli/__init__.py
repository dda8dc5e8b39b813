"""The command `interlock`.

main      the way in: says what is missing where a package is not installed
commands  the commands, their options, and how they end
check     `interlock check`: judges a stream
sources   where a stream to be judged comes from: a file, standard input, a server
verify    `interlock verify`: runs the proof
diagrams  what `interlock diagram` can draw
"""

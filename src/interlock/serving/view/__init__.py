"""The viewer, which shows a stream and its state machines on a web page.

The judge and the machines run here, in Python; the page (its source is in `viewer/`) receives their results as lines of JSON.

event_lines     the lines of a stream or a recording
dialect_lines   the same for streams of Messages and Chat Completions
page            the HTML document
web             the site of `interlock view`, and the viewer inside of a server
"""

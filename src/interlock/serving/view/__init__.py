"""The viewer: a stream walked through its machines, on a page in a browser.

The judge and the machines run here, in Python; the page (its source is in `viewer/`) receives their results as lines of JSON.

event_lines  the lines of a stream
recorded     the lines of a recording, with the tokens and deltas behind each event
redaction    texts that are hidden
comparing    two streams aligned
coverage     the edges that a set of streams fires
page         the HTML document
site         the server of `interlock view`
watching     the viewer inside of a server
"""

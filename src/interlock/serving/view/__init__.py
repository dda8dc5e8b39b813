"""The viewer, which shows a stream and its state machines on a web page.

The judge and the machines run here, in Python; the page (its source is in `viewer/`) receives their results as lines of JSON.

trace        the lines of a stream: its events, their places on the page, and the steps of the machines
recordings   the lines of a recording
page         the HTML document
web          the site of `interlock view`, and the viewer inside of a server
"""

"""The viewer: a stream walked through its machines, on a page in a browser.

The judge and the machines run here, in Python; the page (its source is in `viewer/`) gets their verdict as lines of JSON and
shows it. `trace` makes the lines of a stream, `page` the document, `site` and `watching` serve both.
"""

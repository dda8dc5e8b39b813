"""Plays requests to any server of Responses, Messages or Chat Completions, and judges the answers (`interlock conformance`).

exchange   one HTTP request with a deadline
cases      the requests, and what must be seen in the answers
requests   a request of the Responses API in the words of the other APIs
answers    what an answer says, streamed or whole
player     plays the cases
reports    the results as text, JSON, HTML and a badge
"""

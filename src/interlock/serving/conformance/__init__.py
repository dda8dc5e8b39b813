"""Sends requests to any server of Responses, Messages or Chat Completions, and judges the answers (`interlock conformance`).

exchange   one HTTP request with a deadline
cases      the requests, and what their answers must show
requests   translation of requests of the Responses API to the other APIs
answers    the content of an answer, streamed or whole
player     runs the cases
reports    the results as text, JSON, HTML and a badge
"""

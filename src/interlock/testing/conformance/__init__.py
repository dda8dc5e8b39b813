"""Sends requests to any server of Responses, Messages or Chat Completions, and judges the answers.

cases      the requests, and what their answers must show
requests   translation of requests of the Responses API to the other APIs
answers    the content of an answer, streamed or whole
player     runs the cases
command    the command `interlock conformance`
doctor     the command `interlock doctor`: five cases through a gateway
"""

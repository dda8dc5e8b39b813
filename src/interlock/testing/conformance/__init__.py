"""Sends requests to any server of Responses, Messages or Chat Completions, and judges the answers.

cases     the requests, and what their answers must show
apis      translation of requests of the Responses API to the other APIs, and the content of an answer
player    runs the cases
commands  the commands `interlock conformance`, and `interlock doctor`: five cases through a gateway
"""

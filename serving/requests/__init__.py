"""What the body of a request may say.

body          bytes as a JSON object
checks        small functions that refuse a wrong value
fields        the parameters of `POST /v1/responses`
create        the whole body as one frozen object
conversation  the items of a request's input, and of what came before it
"""

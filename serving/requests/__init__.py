"""What the body of a request may say.

body          bytes as a JSON object
values        JSON of unknown shape
shapes        what the shapes of parameters are made of
items         the shapes of input items
tools         the shapes of tools, and of the choice among them
schema        the shape of a JSON schema
parameters    the shape of `POST /v1/responses`
refusals      what is wrong, in the words of OpenAI's API
create        the whole body as one frozen object
conversation  the items of a request's input, and of what came before it
"""

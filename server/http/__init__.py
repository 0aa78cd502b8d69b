"""From HTTP to values and back.

claims: two contracts behind one path
completing: what only a running server knows of its description
cors: which web pages may read the answers
forms: forms as browsers and curl send them
middleware: around every request: its context, headers of all answers, the one fault boundary
openapi: what the description says of requests and answers
parameters: bodies and query strings, read within limits, and a watch on the client's connection
responses: answers in JSON
schemas: fields of requests, checked, and the optional parts of answers
unread: fields of requests that nothing reads, named in the answer
"""

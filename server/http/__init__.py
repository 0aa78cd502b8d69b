"""HTTP requests and responses.

claims: paths that two contracts share
completing: parts of the API description that depend on the running server
cors: web pages that may read responses
forms: parsing of forms
hosts: names of this server, and web pages of other origins
media: media types of bodies, with their charsets
middleware: context, common headers and error handling of every request
openapi: description of requests and responses
parameters: bodies and query strings, parsed within limits; cancellation when a client disconnects
protocol: connections of HTTP/1.1, with limits for heads and chunks
responses: responses in JSON
schemas: fields of requests, validation, and optional parts of answers
unread: warnings about fields that nothing reads
"""

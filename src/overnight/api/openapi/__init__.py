"""The OpenAPI document: a description of every operation, one module a resource, beside the handlers it is about.

Handlers read requests themselves, so nothing can be guessed from their signatures. What is written here takes bounds,
codes and the bodies of requests from the tables that the code itself works by; a test holds real answers against it.
"""

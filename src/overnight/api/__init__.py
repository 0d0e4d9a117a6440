"""JSON over HTTP: one module a resource."""

"""The local engine: a model server that Overnight starts, watches and stops itself."""

"""Where Overnight keeps what must not be lost: one PostgreSQL."""

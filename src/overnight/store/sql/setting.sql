-- name: list_settings
-- What was set; a setting without a row has its default. Bounded by the settings that there are, or ever were.
SELECT name, value FROM setting ORDER BY name LIMIT 1000;

-- name: change_settings
-- All of them or none.
INSERT INTO setting (name, value)
SELECT c.name, c.value::jsonb FROM unnest(:names::text[], :values::text[]) AS c (name, value)
ORDER BY c.name
ON CONFLICT (name) DO UPDATE SET value = excluded.value, changed_at = now()
RETURNING pg_notify('overnight_settings', '');

-- name: set_first_values
-- Those that nobody has set, or set back, yet.
INSERT INTO setting (name, value)
SELECT c.name, c.value::jsonb FROM unnest(:names::text[], :values::text[]) AS c (name, value)
ORDER BY c.name
ON CONFLICT (name) DO NOTHING;

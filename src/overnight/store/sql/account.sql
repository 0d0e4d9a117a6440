-- name: find_account_named
-- The number behind a name; the schema itself makes the account `local`.
SELECT no FROM account WHERE name = :name;

-- name: is_named
-- Whether an account has a name.
SELECT name = :name AS yes FROM account WHERE no = :account;

-- name: lock_account
-- One transaction at a time counts what an account has, and adds to it. Rows that belong to it may be made meanwhile.
SELECT no FROM account WHERE no = :account FOR NO KEY UPDATE;

-- name: find_account_named
-- The number behind a name; the schema itself makes the account `local`.
SELECT no FROM account WHERE name = :name;

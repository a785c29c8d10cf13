-- Every query runs as this role, which sees the rows of the tenant named by the setting ew.tenant and, without one,
-- none: a forgotten condition shows nothing of others. The owner, who writes, is not under the policies (no FORCE),
-- because Postgres refuses COPY to a role that is.

-- +goose Up
-- +goose StatementBegin
DO $$
BEGIN
    BEGIN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'execwarden_ledger_reader') THEN
            CREATE ROLE execwarden_ledger_reader NOLOGIN NOBYPASSRLS;
        END IF;
        IF NOT pg_has_role(current_user, 'execwarden_ledger_reader', 'MEMBER') THEN
            EXECUTE format('GRANT execwarden_ledger_reader TO %I', current_user);
        END IF;
    EXCEPTION
        WHEN duplicate_object OR unique_violation THEN NULL; -- another database of the cluster was first
        WHEN insufficient_privilege THEN
            RAISE EXCEPTION 'the ledger needs a role: as an administrator, run CREATE ROLE execwarden_ledger_reader NOLOGIN; GRANT execwarden_ledger_reader TO %', current_user;
    END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
DECLARE name text;
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO execwarden_ledger_reader', current_schema());
    FOREACH name IN ARRAY ARRAY['ledger_leaf', 'ledger_body', 'ledger_hash', 'ledger_tree', 'ledger_checkpoint', 'ledger_run'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('GRANT SELECT ON %I TO execwarden_ledger_reader', name);
        EXECUTE format('CREATE POLICY own_tenant ON %I FOR SELECT TO execwarden_ledger_reader USING (tenant = current_setting(''ew.tenant'', true))', name);
    END LOOP;
END $$;
-- +goose StatementEnd

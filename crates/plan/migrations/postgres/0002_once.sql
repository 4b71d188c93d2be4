-- A key under which one plan is accepted, ever. A plan that stands in another's place inherits it.
ALTER TABLE plan ADD COLUMN once TEXT;
CREATE UNIQUE INDEX plan_once ON plan (once) WHERE once IS NOT NULL;

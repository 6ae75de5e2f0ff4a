//! Checks of a PostgreSQL server and of the schema in it.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

use super::connect::Target;
use super::{leader, schema};
use crate::examine::{Finding, Grade, stopwatch};
use crate::leadership::LEASE;
use crate::{PostgresLocation, StoreError};

/// Oldest supported server, as `server_version_num`.
const VERSION_MIN: i64 = 130_000;

const SERVER: &str = "SELECT current_setting('server_version') AS version, \
     current_setting('server_version_num')::bigint AS number, \
     current_setting('server_encoding') AS encoding, \
     pg_is_in_recovery() AS standby, \
     current_setting('default_transaction_read_only')::boolean AS read_only, \
     current_setting('fsync')::boolean AS fsync, \
     current_setting('synchronous_commit') AS synchronous, \
     (SELECT count(*) FROM pg_stat_replication) AS replicas";

const ROOM: &str = "SELECT current_setting('max_connections')::bigint \
     - current_setting('superuser_reserved_connections')::bigint \
     - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS free, \
     current_setting('max_connections')::bigint AS most";

const RIGHTS: &str = "SELECT (SELECT count(*) FROM pg_namespace WHERE nspname = $1) > 0 AS there, \
     coalesce((SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') \
               FROM pg_namespace WHERE nspname = $1), false) AS may_use, \
     has_database_privilege(current_database(), 'CREATE') AS may_create, \
     current_user::text AS who, current_database()::text AS database";

const SIZE: &str = "SELECT \
     (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
      JOIN pg_namespace n ON n.oid = c.relnamespace \
      WHERE n.nspname = $1 AND c.relkind IN ('r', 'm', 'S')) AS of_schema, \
     pg_database_size(current_database()) AS of_database";

const LEADER: &str = "SELECT l.name, l.epoch, \
     ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint - s.seen_us) / 1000 AS silent_ms \
     FROM leader l JOIN leader_seen s ON s.id = l.id";

/// Runs all checks. If connecting fails, those that need a connection are left out.
pub(crate) async fn examine(location: &PostgresLocation) -> Vec<Finding> {
    let target = match Target::new(location) {
        Ok(target) => target,
        Err(error) => return vec![Finding::failed("settings", &error)],
    };
    let mut connection = match target.connect().await {
        Ok(connection) => connection,
        Err(error) => return vec![Finding::failed("connection", &error)],
    };
    let mut findings = vec![Finding::ok("connection", target.location.to_string())];
    let connections = location.connections_max;
    for (check, found) in [
        ("server", server(&target, &mut connection).await),
        ("clock", clock(&target, &mut connection).await),
        (
            "connections",
            room(&target, &mut connection, connections).await,
        ),
        ("permissions", rights(&target, &mut connection).await),
        ("schema", migrations(&target, &mut connection).await),
        ("size", size(&target, &mut connection).await),
        ("leader", check_leadership(&target, &mut connection).await),
    ] {
        match found {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(Finding::failed(check, &error)),
        }
    }
    let _ = connection.close().await;
    findings
}

type Findings = Result<Vec<Finding>, StoreError>;

async fn one(
    target: &Target,
    connection: &mut PgConnection,
    sql: &'static str,
) -> Result<PgRow, StoreError> {
    let query = sqlx::query(sql).fetch_one(connection);
    target.call("an examination", query).await
}

async fn server(target: &Target, connection: &mut PgConnection) -> Findings {
    let row = one(target, connection, SERVER).await?;
    let version: String = row.try_get("version")?;
    let encoding: String = row.try_get("encoding")?;
    let standby: bool = row.try_get("standby")?;
    let read_only: bool = row.try_get("read_only")?;
    let fsync: bool = row.try_get("fsync")?;
    let synchronous: String = row.try_get("synchronous")?;
    let replicas: i64 = row.try_get("replicas")?;
    let graded = |check, well: bool, grade, finding: String, remedy: &str| {
        if well {
            Finding::ok(check, finding)
        } else {
            Finding::of(check, grade, finding, remedy)
        }
    };
    Ok(vec![
        graded(
            "version",
            row.try_get::<i64, _>("number")? >= VERSION_MIN,
            Grade::Fail,
            format!("PostgreSQL {version}"),
            "use PostgreSQL 13 or newer",
        ),
        graded(
            "encoding",
            encoding == "UTF8",
            Grade::Fail,
            format!("the database is encoded in {encoding}"),
            "recreate the database with ENCODING 'UTF8'",
        ),
        graded(
            "writable",
            !standby && !read_only,
            Grade::Fail,
            if standby {
                "this server is a standby".to_owned()
            } else if read_only {
                "transactions are read-only by default".to_owned()
            } else {
                format!("this server takes writes; {replicas} replicas follow it")
            },
            "point `store.url` to the primary, or turn default_transaction_read_only off",
        ),
        graded(
            "durability",
            fsync && synchronous != "off",
            Grade::Warn,
            format!("fsync is {fsync}, synchronous_commit is {synchronous}"),
            "turn both on; without them a crash of the server loses acknowledged writes",
        ),
    ])
}

async fn clock(target: &Target, connection: &mut PgConnection) -> Findings {
    let (asked, watch) = stopwatch();
    let row = one(target, connection, leader::CLOCK).await?;
    let now_us = u64::try_from(row.try_get::<i64, _>("now_us")?).unwrap_or(0);
    Ok(vec![Finding::of_clock(asked, watch.elapsed(), now_us)])
}

async fn room(target: &Target, connection: &mut PgConnection, wanted: u32) -> Findings {
    let row = one(target, connection, ROOM).await?;
    let (free, most): (i64, i64) = (row.try_get("free")?, row.try_get("most")?);
    let finding = format!("{free} of {most} connections are free, a daemon uses up to {wanted}");
    Ok(vec![if free >= i64::from(wanted) {
        Finding::ok("connections", finding)
    } else {
        let remedy = "raise max_connections of the server, or lower `store.connections_max`";
        Finding::of("connections", Grade::Warn, finding, remedy)
    }])
}

async fn rights(target: &Target, connection: &mut PgConnection) -> Findings {
    let query = sqlx::query(RIGHTS).bind(&*target.schema);
    let row = target
        .call("an examination", query.fetch_one(connection))
        .await?;
    let (there, may_use): (bool, bool) = (row.try_get("there")?, row.try_get("may_use")?);
    let may_create: bool = row.try_get("may_create")?;
    let (who, database): (String, String) = (row.try_get("who")?, row.try_get("database")?);
    let schema = &target.schema;
    let (well, finding, remedy) = if there {
        (
            may_use,
            format!("{who} uses and changes the schema {schema}"),
            format!("ALTER SCHEMA {schema} OWNER TO {who}, and its tables too"),
        )
    } else {
        (
            may_create,
            format!("{who} creates the schema {schema}, which is not there yet"),
            format!(
                "GRANT CREATE ON DATABASE {database} TO {who}, or CREATE SCHEMA {schema} AUTHORIZATION {who}"
            ),
        )
    };
    Ok(vec![if well {
        Finding::ok("permissions", finding)
    } else {
        let finding = finding.replacen(&who, &format!("{who} may not do this:"), 1);
        Finding::of("permissions", Grade::Fail, finding, remedy)
    }])
}

async fn migrations(target: &Target, connection: &mut PgConnection) -> Findings {
    let status = schema::status(target, connection).await?;
    Ok(vec![Finding::of_schema(&status, &target.location)])
}

async fn size(target: &Target, connection: &mut PgConnection) -> Findings {
    let query = sqlx::query(SIZE).bind(&*target.schema);
    let row = target
        .call("an examination", query.fetch_one(connection))
        .await?;
    let (schema, database): (i64, i64) = (row.try_get("of_schema")?, row.try_get("of_database")?);
    let mebibytes = |bytes: i64| bytes >> 20;
    Ok(vec![Finding::ok(
        "size",
        format!(
            "{} MiB in the schema, {} MiB in the database",
            mebibytes(schema),
            mebibytes(database)
        ),
    )])
}

async fn check_leadership(target: &Target, connection: &mut PgConnection) -> Findings {
    if !schema::status(target, connection).await?.fits() {
        return Ok(Vec::new());
    }
    let row = one(target, connection, LEADER).await?;
    let (name, epoch): (String, i64) = (row.try_get("name")?, row.try_get("epoch")?);
    let silent_ms: i64 = row.try_get("silent_ms")?;
    if name.is_empty() {
        return Ok(vec![Finding::ok("leader", "nobody leads")]);
    }
    let finding = format!("{name} leads under epoch {epoch}, last seen {silent_ms} ms ago");
    Ok(vec![if silent_ms <= LEASE.as_millis() as i64 {
        Finding::ok("leader", finding)
    } else {
        let remedy = "start a daemon; it takes over";
        Finding::of("leader", Grade::Warn, finding, remedy)
    }])
}

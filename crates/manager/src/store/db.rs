//! One way to talk to `SQLite` and `PostgreSQL`: the same SQL text, values of four kinds, rows by column.
//!
//! Both understand `$1`, `RETURNING`, `ON CONFLICT` and partial indexes, so one text serves both and nothing can be
//! right in the one and wrong in the other.

use std::{path::Path, time::Duration};

use sqlx::{
    Column as _, Connection as _, PgPool, Row as _, SqliteConnection, SqlitePool,
    migrate::Migrator,
    pool::PoolConnection,
    postgres::{PgPoolOptions, PgRow, Postgres},
    sqlite::{
        SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
        SqliteSynchronous,
    },
};
use tokio::sync::{Mutex, MutexGuard};

use super::StoreError;

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");
/// The journal of plans keeps its own list of migrations in the same `PostgreSQL` database.
const MIGRATIONS_TABLE: &str = "manager_migrations";
/// How long a writer waits for another process's transaction.
const BUSY: Duration = Duration::from_secs(15);
/// Readers of a `SQLite` file: more than cores, since each blocks a thread of its own and not ours.
const READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;

/// A database.
pub enum Db {
    /// A file on this host.
    Sqlite {
        /// `SQLite` has one writer at a time; so have we, and never wait for ourselves.
        writer: Mutex<SqliteConnection>,
        /// They see what is committed and never wait.
        readers: SqlitePool,
        /// The file, for messages.
        place: String,
    },
    /// A server that several managers share.
    Postgres {
        /// Connections.
        pool: PgPool,
        /// The server without its password, for messages.
        place: String,
    },
}

/// A value in a statement.
#[derive(Debug, Clone)]
pub enum Arg {
    /// Text, or nothing.
    Text(Option<String>),
    /// A number, or nothing.
    Int(Option<i64>),
}

/// A row of an answer.
pub enum Row {
    /// From `SQLite`.
    Sqlite(SqliteRow),
    /// From `PostgreSQL`.
    Postgres(PgRow),
}

/// A transaction that writes. Dropped without [`Tx::commit`], nothing of it happened.
pub enum Tx<'a> {
    /// On the one writer.
    Sqlite(sqlx::Transaction<'a, sqlx::Sqlite>),
    /// On a connection of its own.
    Postgres(sqlx::Transaction<'static, Postgres>),
}

/// Holds the writer while a transaction runs on it.
pub enum Writer<'a> {
    /// The one writer.
    Sqlite(MutexGuard<'a, SqliteConnection>),
    /// Any connection of the pool.
    Postgres(&'a PgPool),
}

impl Db {
    /// Opens or makes a `SQLite` file.
    pub async fn sqlite(path: &Path) -> Result<Self, StoreError> {
        let place = path.display().to_string();
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY)
            .foreign_keys(true)
            .statement_cache_capacity(128);
        let fail = |error| StoreError::from_sqlx(&place, error);
        // The writer's alone: setting it writes, which a reader cannot.
        let writing = options.clone().auto_vacuum(SqliteAutoVacuum::Incremental);
        let mut writer = SqliteConnection::connect_with(&writing).await.map_err(fail)?;
        migrate(&mut writer, &place).await?;
        let readers = SqlitePoolOptions::new()
            .min_connections(1)
            .max_connections(READERS)
            .connect_lazy_with(options.read_only(true));
        Ok(Self::Sqlite { writer: Mutex::new(writer), readers, place })
    }

    /// Opens a `PostgreSQL` database.
    pub async fn postgres(url: &str) -> Result<Self, StoreError> {
        let place = without_password(url);
        let fail = |error| StoreError::from_sqlx(&place, error);
        let pool = PgPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(BUSY)
            .connect(url)
            .await
            .map_err(fail)?;
        let mut connection: PoolConnection<Postgres> = pool.acquire().await.map_err(fail)?;
        migrate(&mut *connection, &place).await?;
        drop(connection);
        Ok(Self::Postgres { pool, place })
    }

    /// The file or server, for messages; no password in it.
    pub fn place(&self) -> &str {
        match self {
            Self::Sqlite { place, .. } | Self::Postgres { place, .. } => place,
        }
    }

    /// The function that says where one text stands in another: the one word in which both differ.
    pub fn position(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "instr",
            Self::Postgres { .. } => "strpos",
        }
    }

    /// Waits for the right to write.
    pub async fn writer(&self) -> Writer<'_> {
        match self {
            Self::Sqlite { writer, .. } => Writer::Sqlite(writer.lock().await),
            Self::Postgres { pool, .. } => Writer::Postgres(pool),
        }
    }

    /// Rows outside any transaction.
    pub async fn read(&self, sql: &'static str, args: &[Arg]) -> Result<Vec<Row>, StoreError> {
        self.read_text(sql, args).await
    }

    /// The same for SQL that is put together from our own fixed pieces, never from a caller's words.
    pub async fn read_built(&self, sql: String, args: &[Arg]) -> Result<Vec<Row>, StoreError> {
        self.read_text(sqlx::AssertSqlSafe(sql), args).await
    }

    async fn read_text(&self, sql: impl sqlx::SqlSafeStr, args: &[Arg]) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite { readers, place, .. } => {
                let rows = sqlite_query(sql, args).fetch_all(readers).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
                    .map_err(|error| StoreError::from_sqlx(place, error))
            }
            Self::Postgres { pool, place } => {
                let rows = postgres_query(sql, args).fetch_all(pool).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
                    .map_err(|error| StoreError::from_sqlx(place, error))
            }
        }
    }

    /// Closes all connections; a `SQLite` file is then whole without its log.
    pub async fn close(&self) {
        match self {
            Self::Sqlite { readers, .. } => readers.close().await,
            Self::Postgres { pool, .. } => pool.close().await,
        }
    }
}

impl Writer<'_> {
    /// Begins a transaction.
    pub async fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        let fail = |error| StoreError::from_sqlx("database", error);
        Ok(match self {
            Self::Sqlite(writer) => Tx::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await.map_err(fail)?),
            Self::Postgres(pool) => Tx::Postgres(pool.begin().await.map_err(fail)?),
        })
    }
}

impl Tx<'_> {
    /// Runs a statement; how many rows it changed.
    pub async fn execute(&mut self, sql: &'static str, args: &[Arg]) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let done = sqlite_query(sql, args).execute(&mut **tx).await;
                done.map(|done| done.rows_affected())
                    .map_err(|error| StoreError::from_sqlx("database", error))
            }
            Self::Postgres(tx) => {
                let done = postgres_query(sql, args).execute(&mut **tx).await;
                done.map(|done| done.rows_affected())
                    .map_err(|error| StoreError::from_sqlx("database", error))
            }
        }
    }

    /// Rows, as this transaction sees them.
    pub async fn fetch(&mut self, sql: &'static str, args: &[Arg]) -> Result<Vec<Row>, StoreError> {
        match self {
            Self::Sqlite(tx) => {
                let rows = sqlite_query(sql, args).fetch_all(&mut **tx).await;
                rows.map(|rows| rows.into_iter().map(Row::Sqlite).collect())
                    .map_err(|error| StoreError::from_sqlx("database", error))
            }
            Self::Postgres(tx) => {
                let rows = postgres_query(sql, args).fetch_all(&mut **tx).await;
                rows.map(|rows| rows.into_iter().map(Row::Postgres).collect())
                    .map_err(|error| StoreError::from_sqlx("database", error))
            }
        }
    }

    /// Makes it happen.
    pub async fn commit(self) -> Result<(), StoreError> {
        let done = match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => tx.commit().await,
        };
        done.map_err(|error| StoreError::from_sqlx("database", error))
    }
}

impl Row {
    /// Text that is there.
    pub fn text(&self, column: usize) -> Result<String, StoreError> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| self.damaged(column, error))
    }

    /// Text that may be missing.
    pub fn text_or_none(&self, column: usize) -> Result<Option<String>, StoreError> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| self.damaged(column, error))
    }

    /// A number that is there.
    pub fn int(&self, column: usize) -> Result<i64, StoreError> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| self.damaged(column, error))
    }

    /// A number that may be missing.
    pub fn int_or_none(&self, column: usize) -> Result<Option<i64>, StoreError> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
        .map_err(|error| self.damaged(column, error))
    }

    /// A JSON document that is there.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T, StoreError> {
        let text = self.text(column)?;
        serde_json::from_str(&text).map_err(|error| self.damaged(column, sqlx::Error::Decode(error.into())))
    }

    fn damaged(&self, column: usize, error: sqlx::Error) -> StoreError {
        let name = match self {
            Self::Sqlite(row) => row.columns().get(column).map(|column| column.name().to_owned()),
            Self::Postgres(row) => row.columns().get(column).map(|column| column.name().to_owned()),
        };
        StoreError::damaged(name.unwrap_or_else(|| column.to_string()), error)
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Arg {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Arg {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Arg {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Arg {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

/// Writes a consistent copy of a `SQLite` file to a new one, while others go on working with it.
pub async fn copy_sqlite(from: &Path, to: &Path) -> Result<(), StoreError> {
    let place = from.display().to_string();
    let fail = |error| StoreError::from_sqlx(&place, error);
    let options = SqliteConnectOptions::new().filename(from).read_only(true).busy_timeout(BUSY);
    let mut connection = SqliteConnection::connect_with(&options).await.map_err(fail)?;
    sqlx::query("VACUUM INTO $1")
        .bind(to.display().to_string())
        .execute(&mut connection)
        .await
        .map_err(fail)?;
    connection.close().await.map_err(fail)
}

fn sqlite_query<'q>(
    sql: impl sqlx::SqlSafeStr,
    args: &[Arg],
) -> sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match arg {
        Arg::Text(text) => query.bind(text.clone()),
        Arg::Int(number) => query.bind(*number),
    })
}

fn postgres_query<'q>(
    sql: impl sqlx::SqlSafeStr,
    args: &[Arg],
) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    args.iter().fold(sqlx::query(sql), |query, arg| match arg {
        Arg::Text(text) => query.bind(text.clone()),
        Arg::Int(number) => query.bind(*number),
    })
}

async fn migrate<C>(connection: &mut C, place: &str) -> Result<(), StoreError>
where
    C: sqlx::migrate::Migrate,
    for<'e> &'e mut C: sqlx::Executor<'e>,
{
    let mut migrations = Migrator { migrations: MIGRATIONS.migrations.clone(), ..Migrator::DEFAULT };
    migrations.dangerous_set_table_name(MIGRATIONS_TABLE);
    migrations
        .run_direct(None, connection, false)
        .await
        .map_err(|error| StoreError::from_migrate(place, error))
}

/// A database's address as it may be shown.
fn without_password(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed) => {
            if parsed.password().is_some() && parsed.set_password(None).is_err() {
                return "the database".to_owned();
            }
            parsed.set_query(None);
            parsed.to_string()
        }
        Err(_) => "the database".to_owned(),
    }
}

//! A database of one test on the real server.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A database for one test, gone with it.
pub struct Database {
    server: String,
    name: String,
}

impl Database {
    pub fn new(name: &str) -> Self {
        let server = std::env::var("GUYWIRE_TEST_POSTGRES").expect(
            "GUYWIRE_TEST_POSTGRES is not set; run the tests with `cargo xtask test`, which starts a server, or \
             set it to postgres:///postgres?host=SOCKET_DIRECTORY&user=USER",
        );
        let database = Self { server, name: format!("{}_{}_{name}", program(), std::process::id()) };
        database.tell(&format!("CREATE DATABASE {}", database.name));
        database
    }

    pub fn url(&self) -> String {
        let (head, tail) =
            self.server.split_once("/postgres?").expect("the URL names the database `postgres`");
        format!("{head}/{}?{tail}", self.name)
    }

    fn tell(&self, statement: &str) {
        let statement = statement.to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut connection = PgConnection::connect(&self.server).await.unwrap();
            sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
        });
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.tell(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

/// Test programs run beside each other, on one server.
fn program() -> String {
    let program = std::env::current_exe().unwrap();
    let name = program.file_stem().unwrap().to_string_lossy().into_owned();
    name.split('-').next().unwrap_or_default().to_owned()
}

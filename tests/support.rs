//! Fresh books for a test, on either database, and ways to use them.

pub mod command;
pub mod jobs;
pub mod reports;
pub mod sacct;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuledger::workflows::migrate;
use gpuledger_db::{Database, Db};
use gpuledger_domain::calendar::BillingCalendar;

/// Where a test's books are; they go when it ends.
pub struct Books {
    pub url: String,
    pub folder: tempfile::TempDir,
    schema: Option<(String, String)>,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Books {
    /// No schema yet, on SQLite.
    pub fn sqlite() -> Books {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("books.db").display());
        Books { url, folder, schema: None }
    }

    /// No schema yet, on PostgreSQL: a schema of the server's for each test.
    pub fn postgres() -> Books {
        let server = std::env::var("GPULEDGER_TEST_POSTGRES_URL")
            .expect("GPULEDGER_TEST_POSTGRES_URL names no server; run the tests by ./test, which starts one");
        let name = format!("test_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut db = Database::parse(&server).unwrap().create().unwrap();
        db.execute(&format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")).unwrap();
        let url = format!("{server}{}options=-csearch_path%3D{name}", if server.contains('?') { "&" } else { "?" });
        Books { url, folder: tempfile::tempdir().unwrap(), schema: Some((server, name)) }
    }

    pub fn database(&self) -> Database {
        Database::parse(&self.url).unwrap()
    }

    /// With the schema of this version, in this zone.
    pub fn migrated(self, zone: &str) -> Books {
        migrate::migrate(&self.database(), &BillingCalendar::new(zone).unwrap()).unwrap();
        self
    }

    pub fn db(&self) -> Db {
        self.database().create().unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The name of the schema, on PostgreSQL.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_ref().map(|(_, name)| name.as_str())
    }
}

impl Drop for Books {
    fn drop(&mut self) {
        if let Some((server, name)) = &self.schema {
            let dropped = Database::parse(server)
                .unwrap()
                .create()
                .and_then(|mut db| db.execute(&format!("DROP SCHEMA {name} CASCADE")));
            if let (Err(error), false) = (dropped, std::thread::panicking()) {
                panic!("the test's schema stays: {error}");
            }
        }
    }
}

/// Makes two tests of one function that takes [`Books`]: one for each database.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[test] fn $name() { super::$name(crate::support::Books::sqlite()); })*
        }
        mod on_postgres {
            $(#[test] fn $name() { super::$name(crate::support::Books::postgres()); })*
        }
    };
}
pub(crate) use on_both;

/// A file of the project.
pub fn project_file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

//! A schema of one test in the database that tests share.

use super::{Psql, fresh_name, postgres_url};

/// A name for a schema, which nothing has yet. Dropping this drops the schema with all in it.
#[derive(Debug)]
pub struct Schema {
    /// The database.
    pub url: String,
    /// The schema, not made yet.
    pub name: String,
}

impl Schema {
    /// A fresh one in the database that tests share.
    pub fn fresh(start: &str) -> Self {
        Self::fresh_at(postgres_url(), start)
    }

    /// A fresh one in the database at a URL.
    pub fn fresh_at(url: String, start: &str) -> Self {
        let name = fresh_name(start);
        Self { url, name }
    }

    /// `psql` on its database; names need the schema in front.
    pub fn psql(&self) -> Psql {
        Psql::new(&self.url)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = format!(
            "SET client_min_messages = warning; DROP SCHEMA IF EXISTS \"{}\" CASCADE",
            self.name
        );
        // The server of a private schema may be gone already.
        if let Err(error) = self.psql().run(&drop)
            && !std::thread::panicking()
        {
            eprintln!("schema {} stays: {error}", self.name);
        }
    }
}

//! `treadle store migrate`: migrates the store's schema, or lists pending migrations.

use std::fmt::Write;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use treadle_store::{MigrationRow, SchemaStatus, migrate, schema_status};

use super::error::CliError;
use super::output::{print_json, print_text};
use super::settings::Settings;

/// Commands of `treadle store`.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum StoreCommand {
    /// Migrate the schema to this version, or list what is pending.
    Migrate(MigrateArgs),
}

impl StoreCommand {
    /// Runs the command.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Self::Migrate(args) = self;
        args.run().await
    }
}

/// Arguments of `treadle store migrate`.
#[derive(Args, Clone, Debug)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    settings: Settings,
    /// List pending migrations and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl MigrateArgs {
    /// Migrates the store of each shard; fails if this build can't use one.
    async fn run(self) -> Result<(), CliError> {
        let config = self.settings.load(Vec::new())?;
        let mut reports = Vec::new();
        for (number, shard) in config.cluster.shards.iter().enumerate() {
            let location = config.store.of_shard(shard, number == 0).location();
            let before = schema_status(&location).await?;
            let after = if self.dry_run || before.fits() {
                before.clone()
            } else {
                migrate(&location).await?
            };
            reports.push(Migrated {
                shard: shard.clone(),
                before,
                after,
            });
        }
        if self.json {
            let stores: Vec<Value> = reports.iter().map(Migrated::to_json).collect();
            print_json(&json!({"dry_run": self.dry_run, "stores": stores}))?;
        } else {
            let lines = reports.iter().map(|report| report.to_text(self.dry_run));
            print_text(&lines.collect::<String>())?;
        }
        match reports.iter().find_map(Migrated::objection) {
            Some(objection) => Err(CliError::Failed(objection)),
            None => Ok(()),
        }
    }
}

/// The schema of a shard's store before and after.
struct Migrated {
    shard: String,
    before: SchemaStatus,
    after: SchemaStatus,
}

impl Migrated {
    /// Why this build can't use the store, apart from pending migrations.
    fn objection(&self) -> Option<String> {
        let status = &self.after;
        let shard = &self.shard;
        if let Some(version) = status.half_done {
            return Some(format!(
                "migration {version} of shard {shard} was not completed; restore the backup from \
                 before it, or finish it by hand: docs/guides/operate.md says how"
            ));
        }
        if let Some(version) = status.unknown.first() {
            return Some(format!(
                "the store of shard {shard} has migration {version}, which this build does not \
                 know; use the build that wrote it, or a newer one"
            ));
        }
        let version = status.changed.first()?;
        Some(format!(
            "migration {version} of shard {shard} was applied in another version than this build \
             brings; use the build that applied it"
        ))
    }

    fn to_json(&self) -> Value {
        json!({
            "shard": self.shard,
            "applied": names(&self.after.applied),
            "applied_now": names(&self.added()),
            "pending": names(&self.after.pending),
            "half_done": self.after.half_done,
            "unknown": self.after.unknown,
            "changed": self.after.changed,
        })
    }

    /// Migrations applied by this command.
    fn added(&self) -> Vec<MigrationRow> {
        let applied = self.after.applied.iter();
        let is_new = |row: &&MigrationRow| self.before.pending.contains(row);
        applied.filter(is_new).cloned().collect()
    }

    fn to_text(&self, dry_run: bool) -> String {
        let newest = self.after.applied.last().map_or(0, |row| row.version);
        let shard = &self.shard;
        let mut text = format!("shard {shard}: at migration {newest}\n");
        let (word, rows) = if dry_run {
            ("would apply", self.after.pending.clone())
        } else {
            ("applied", self.added())
        };
        for name in names(&rows) {
            // Writing to a string can't fail.
            let _ = writeln!(text, "  {word} {name}");
        }
        if rows.is_empty() && self.after.pending.is_empty() {
            text.push_str("  nothing is pending\n");
        }
        text
    }
}

fn names(rows: &[MigrationRow]) -> Vec<String> {
    let name = |row: &MigrationRow| format!("{:04} {}", row.version, row.name);
    rows.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(version: i64) -> MigrationRow {
        MigrationRow {
            version,
            name: "things".to_owned(),
        }
    }

    #[test]
    fn what_was_pending_and_is_applied_is_new() {
        let report = Migrated {
            shard: "main".to_owned(),
            before: SchemaStatus {
                applied: vec![row(1)],
                pending: vec![row(2)],
                ..SchemaStatus::default()
            },
            after: SchemaStatus {
                applied: vec![row(1), row(2)],
                ..SchemaStatus::default()
            },
        };
        assert_eq!(report.added(), [row(2)]);
        let text = report.to_text(false);
        assert_eq!(text, "shard main: at migration 2\n  applied 0002 things\n");
        assert_eq!(report.objection(), None);
    }

    #[test]
    fn a_store_that_does_not_fit_is_an_objection_with_a_remedy() {
        for status in [
            SchemaStatus {
                half_done: Some(3),
                ..SchemaStatus::default()
            },
            SchemaStatus {
                unknown: vec![9],
                ..SchemaStatus::default()
            },
            SchemaStatus {
                changed: vec![2],
                ..SchemaStatus::default()
            },
        ] {
            let report = Migrated {
                shard: "main".to_owned(),
                before: status.clone(),
                after: status,
            };
            assert!(report.objection().is_some_and(|text| text.contains("; ")));
        }
    }
}

//! Lists the migrations as Rust. `sqlx::migrate!` would do it too, but brings both databases' drivers
//! and SQLite's own source along a second time, to be compiled for the macro.

use std::fmt::Write as _;
use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../migrations");
    let mut lists = String::new();
    for database in ["postgres", "sqlite"] {
        let folder = folder.join(database);
        println!("cargo:rerun-if-changed={}", folder.display());
        let list = database.to_uppercase();
        writeln!(lists, "pub(crate) const {list}: &[(i64, &str, &str)] = &[").unwrap();
        let entries = std::fs::read_dir(folder.canonicalize().unwrap()).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        // Skips files that editors leave beside the migrations.
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "sql"));
        paths.sort();
        for path in paths {
            let sql = path.to_str().expect("a path in UTF-8");
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let (version, name) = stem
                .split_once('_')
                .expect("a migration is NUMBER_NAME.sql");
            let version: i64 = version.parse().expect("a migration's number");
            let name = name.replace('_', " ");
            writeln!(lists, "    ({version}, {name:?}, include_str!({sql:?})),").unwrap();
        }
        lists.push_str("];\n");
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("migrations.rs"), lists).unwrap();
}

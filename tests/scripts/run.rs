//! Runs the scripts of a folder (`testscripts/` of a crate): state in, decision out.
//!
//! A script is named by what it shows and begins with the rule in plain English. The expected output is part of the
//! script: `UPDATE_GOLDENFILES=1` writes it anew, `PARTITA_SCRIPT` runs only the scripts whose names contain a word.
//! Each crate with scripts includes this file in its tests.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::str::FromStr;

use goldenscript::{ArgumentConsumer, Runner};

/// Runs all scripts of a folder of the crate, each with a new runner, and fails if the output of any has changed.
pub(crate) fn run_all<R: Runner>(folder: &str, new_runner: impl Fn() -> R) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts").join(folder);
    let filter = std::env::var("PARTITA_SCRIPT").unwrap_or_default();
    let mut scripts: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    let mut failures = Vec::new();
    for script in &scripts {
        let name = script.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(&filter) {
            continue;
        }
        let text = std::fs::read_to_string(script).unwrap();
        assert!(text.starts_with("# "), "{name} does not begin with the rule that it shows");
        // A difference is printed, and the other scripts still run.
        let outcome =
            catch_unwind(AssertUnwindSafe(|| goldenscript::run(&mut new_runner(), script)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => failures.push(format!("{name}: {error}")),
            Err(_) => failures.push(format!("{name}: the output has changed, see above")),
        }
    }
    assert!(!scripts.is_empty(), "no scripts in {}", folder.display());
    assert!(failures.is_empty(), "{failures:#?}");
}

/// The value of a `key=value` argument, or a default.
#[allow(dead_code, reason = "scripts of SQL have no such arguments")]
pub(crate) fn take<T>(
    arguments: &mut ArgumentConsumer<'_>,
    key: &str,
    default: T,
) -> Result<T, Box<dyn Error>>
where
    T: FromStr,
    T::Err: Error + 'static,
{
    arguments.take_key(key).map_or(Ok(default), |value| {
        value.parse().map_err(|error: T::Err| format!("{key}={value}: {error}").into())
    })
}

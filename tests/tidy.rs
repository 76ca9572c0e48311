//! The style that a compiler does not check: layers, circles of files, file heads, paths in ARCHITECTURE.md, plain names
//! and docs.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

use std::path::{Path, PathBuf};

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/words.rs"]
mod words;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn all_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    rust_files(&root(), &mut found);
    assert!(found.len() > 50, "the source was not found");
    found
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    let bare: Vec<_> = all_files()
        .into_iter()
        .filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//!"))
        .collect();
    assert!(bare.is_empty(), "no //! at the top of {bare:#?}");
}

#[test]
fn a_crate_depends_only_on_the_layers_below_it() {
    let allowed: [(&str, &[&str]); 23] = [
        ("load", &[]),
        ("load/heatmap", &[]),
        ("tls", &[]),
        ("proto", &["load"]),
        ("proto/rpc", &["proto", "tls"]),
        ("raft", &["proto", "tls"]),
        ("datanode/engine", &["proto"]),
        ("datanode", &["proto", "load", "raft", "engine"]),
        ("meta", &["proto", "load", "raft", "heatmap"]),
        ("frontend/lanes", &[]),
        ("frontend/worker", &["proto", "lanes"]),
        ("frontend/sql", &["proto", "worker", "lanes"]),
        ("frontend/bigtable", &["proto"]),
        ("frontend/advice", &["proto", "load", "sql"]),
        ("frontend", &["proto", "load", "sql", "worker", "lanes", "advice"]),
        ("frontend/postgres", &["proto", "tls", "frontend"]),
        ("frontend/http", &["proto", "load", "tls", "bigtable", "frontend", "heatmap"]),
        // The lab speaks to servers from outside; its virtual cluster knows no server at all.
        ("lab", &["proto", "load", "heatmap", "hotspot", "tsbs", "yardstick"]),
        ("lab/hotspot", &["load", "heatmap"]),
        ("lab/tsbs", &[]),
        ("lab/yardstick", &[]),
        ("lab/bench", &["proto", "tsbs"]),
        // The simulation puts itself between the services.
        ("tests/sim", &["proto", "load", "raft", "engine", "datanode", "meta"]),
    ];
    let is_of_frontend = |name: &str| {
        let folders = allowed.iter().map(|(folder, _)| *folder);
        let mut folders = folders.filter(|folder| folder.starts_with("frontend"));
        folders.any(|folder| folder.rsplit('/').next() == Some(name))
    };
    for (folder, below) in allowed {
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let Some(name) = line.strip_prefix("partita-") else { continue };
            let name = name.split(['.', ' ']).next().unwrap();
            // Every crate may be measured: what benches share is no part of what is measured.
            let measures = section == "[dev-dependencies]" && ["bench", "tsbs"].contains(&name);
            // The detector is tested by the lab's streams, beside the lab's other detectors.
            let tests = section == "[dev-dependencies]" && (folder, name) == ("load", "hotspot");
            let allowed = below.contains(&name) || measures || tests;
            assert!(allowed, "{folder} must not depend on {name}: {below:?}");
            // A list above may grow, but never by a crate of a higher floor.
            let is_above = is_of_frontend(name) && !folder.starts_with("frontend");
            assert!(!is_above, "{folder} must not depend on {name}, which is under frontend/");
        }
    }
}

#[test]
fn a_named_library_stays_in_the_layer_that_hides_it() {
    let homes: [(&str, &[&str]); 6] = [
        ("openraft", &["raft"]),
        ("sled", &["meta"]),
        ("datafusion", &["frontend", "frontend/sql", "frontend/worker", "lab/yardstick"]),
        ("datafusion-proto", &["frontend/worker"]),
        ("rcgen", &["tls"]),
        ("x509-certificate", &["tls"]),
    ];
    let layers = [
        "load",
        "load/heatmap",
        "tls",
        "proto",
        "proto/rpc",
        "raft",
        "datanode",
        "datanode/engine",
        "meta",
        "frontend",
        "frontend/advice",
        "frontend/bigtable",
        "frontend/lanes",
        "frontend/sql",
        "frontend/worker",
        "lab",
        "lab/bench",
        "lab/hotspot",
        "lab/tsbs",
        "lab/yardstick",
    ];
    for entry in layers {
        let manifest = std::fs::read_to_string(root().join(entry).join("Cargo.toml")).unwrap();
        for (library, home) in homes {
            let named = manifest.lines().any(|line| {
                line.starts_with(&format!("{library}.")) || line.starts_with(&format!("{library} "))
            });
            assert!(!named || home.contains(&entry), "{entry} names {library}");
        }
    }
}

#[test]
fn bugs_are_planted_by_the_simulation_only() {
    let mut manifests = vec![root().join("Cargo.toml")];
    let folders = [
        "load",
        "load/heatmap",
        "tls",
        "proto",
        "proto/rpc",
        "datanode",
        "meta",
        "frontend",
        "frontend/advice",
        "frontend/bigtable",
        "frontend/lanes",
        "frontend/sql",
        "frontend/worker",
        "lab",
        "lab/bench",
        "lab/hotspot",
        "lab/tsbs",
        "lab/yardstick",
    ];
    let doors = ["frontend/postgres", "frontend/http"];
    manifests.extend(folders.iter().chain(&doors).map(|at| root().join(at).join("Cargo.toml")));
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).unwrap();
        assert!(!text.contains("planted-bugs"), "{}", manifest.display());
    }
    for planted in ["raft", "datanode/engine"] {
        let text = std::fs::read_to_string(root().join(planted).join("Cargo.toml")).unwrap();
        assert!(!text.contains("default ="), "{planted} has default features");
    }
}

#[test]
fn paths_in_the_architecture_exist() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut checked = 0;
    let mut folder = PathBuf::new();
    for quoted in text.split('`').skip(1).step_by(2) {
        if !quoted.ends_with(".rs") || quoted.contains(' ') {
            continue;
        }
        // A bare file name stands beside the path before it.
        let path = if quoted.contains('/') { PathBuf::from(quoted) } else { folder.join(quoted) };
        assert!(root().join(&path).exists(), "{} is not there", path.display());
        folder = path.parent().unwrap().to_owned();
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} paths found");
}

#[test]
fn nothing_unfinished_is_left_in_the_source() {
    let words = [concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimplemented", "!(")];
    for path in all_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} in {}", word, path.display());
        }
    }
}

/// Locals that no noun names, per thousand, at most. Lower it when there are fewer.
const UNNAMED_PER_MILLE_MAX: usize = 5;
/// Docs that begin with a pronoun or a question word, per thousand, at most. Lower it when there are fewer.
const RIDDLES_PER_MILLE_MAX: usize = 1;

#[test]
fn names_and_docs_become_plainer_and_never_less() {
    let mut figures = words::Figures::default();
    let is_of_tests = |path: &Path| {
        path.strip_prefix(root()).unwrap().iter().any(|part| {
            ["tests", "tests.rs", "benches", "examples"].iter().any(|name| part == *name)
        })
    };
    for path in all_files().into_iter().filter(|path| !is_of_tests(path)) {
        let text = std::fs::read_to_string(&path).unwrap();
        figures.add(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let (unnamed, riddles) = (figures.unnamed_per_mille(), figures.riddles_per_mille());
    let repeated = figures.repeated.len();
    println!(
        "{} locals, {unnamed} of 1000 without a noun; {} docs, {riddles} of 1000 riddles, {repeated} repetitions",
        figures.locals, figures.docs
    );
    assert!(unnamed <= UNNAMED_PER_MILLE_MAX, "{unnamed} of 1000 locals: {:?}", figures.unnamed);
    assert!(riddles <= RIDDLES_PER_MILLE_MAX, "{riddles} of 1000 docs");
    assert!(figures.repeated.is_empty(), "{repeated} docs repeat a name: {:#?}", figures.repeated);
}

/// Crates, and the files of their largest circle, at most. Lower it when it is smaller.
const CIRCLES_MAX: [(&str, usize); 4] =
    [("frontend", 8), ("frontend/sql", 8), ("datanode/engine", 3), ("meta", 5)];

#[test]
fn circles_of_files_become_smaller_and_never_larger() {
    for (folder, most) in CIRCLES_MAX {
        let source = root().join(folder).join("src");
        let mut paths = Vec::new();
        rust_files(&source, &mut paths);
        let texts = paths.into_iter().map(|path| {
            let name = path.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        });
        let circle = circles::largest(&texts.collect());
        let circle = circle.unwrap_or_else(|error| panic!("{folder}: {error}"));
        println!("{folder}: {} of at most {most} files: {circle:?}", circle.len());
        assert!(circle.len() <= most, "{folder}: a circle of {} files: {circle:#?}", circle.len());
    }
}

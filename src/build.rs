//! Link options of the binary.
//!
//! Without them, half of what a process maps at its start is the relocation table of a binary with so many function
//! tables: 7.5 MB. The packed form of that table takes 0.1 MB; the C library must understand it (glibc 2.36, in
//! Debian since 12 and in Ubuntu since 22.10).

use std::process::Command;

/// The first glibc that reads packed relocations.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    // A cross-compiled binary runs with a C library of unknown version.
    let native =
        variable("HOST") == variable("TARGET") && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if native && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Version of this machine's glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

//! How the binary is linked.
//!
//! Half of what a process maps of a binary with so many tables of functions, before it has done anything, is the list of
//! places where addresses are filled in at its start: 7.5 MB. Where the C library understands the packed form of that
//! list (glibc 2.36, in Debian since 12 and in Ubuntu since 22.10), it is 0.1 MB.

use std::process::Command;

/// The first glibc that reads packed relocations.
const GLIBC_MIN: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    // What is built for another machine runs with a C library that is not known here.
    let native = of("HOST") == of("TARGET") && of("CARGO_CFG_TARGET_ENV") == "gnu";
    if native && glibc().is_some_and(|version| version >= GLIBC_MIN) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library.
fn glibc() -> Option<(u32, u32)> {
    let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let (major, minor) = told.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

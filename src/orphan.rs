//! Ends a process when its parent has died: the lab starts a cluster for a few minutes, and if the lab is killed
//! with SIGKILL, it cannot stop what it started.
//!
//! ```text
//!   lab ── a pipe, which the kernel closes with the lab ──▶ standard input of each process of its cluster
//! ```
//!
//! A pipe rather than Linux's parent-death signal: that is sent when the *thread* that started the process ends,
//! and not at all if the parent had died before the signal was requested.
//!
//! Invariants: only a process that was started for this reads its standard input; nothing is ever written to it;
//! acknowledged data are on disk at any moment, so the process may end at any moment.

use std::io::Read;

use anyhow::Context;

/// Set by the process that holds the other end of standard input.
const VARIABLE: &str = "PARTITA_ENDS_WITH_STDIN";

/// Ends this process when its standard input closes, if the variable is set.
///
/// # Errors
/// If the watching thread cannot be started.
pub(crate) fn watch() -> anyhow::Result<()> {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Ok(());
    }
    let watch = || {
        until_end(std::io::stdin());
        end();
    };
    let thread = std::thread::Builder::new().name("orphan".to_owned()).spawn(watch);
    thread.map(drop).context("cannot watch standard input")
}

/// Returns at the end of the input, or after an error.
fn until_end(mut input: impl Read) {
    let mut buffer = [0; 64];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

#[expect(clippy::exit, reason = "the end must not depend on the rest of the process")]
fn end() {
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns an interruption, then a byte, then an error, and must not be read again.
    struct Broken(u8);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => Err(std::io::ErrorKind::Interrupted.into()),
                2 => {
                    buffer[0] = 0;
                    Ok(1)
                }
                3 => Err(std::io::ErrorKind::BrokenPipe.into()),
                count => panic!("read {count} times"),
            }
        }
    }

    #[test]
    fn input_ends_when_it_is_closed_or_broken_and_not_before() {
        let mut input = Broken(0);
        until_end(&mut input);
        assert_eq!(input.0, 3);
        let (reader, writer) = std::io::pipe().unwrap();
        let waiting = std::thread::spawn(move || until_end(reader));
        assert!(!waiting.is_finished(), "the other end is still open");
        drop(writer);
        waiting.join().unwrap();
    }
}

//! The lab's cluster without the lab: whoever kills that outright leaves no process behind.
//!
//! Processes are told apart by the folder that each is given for its data, which is this test's own.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::harness::{PATIENCE, turn};

/// How often it is looked.
const POLL: Duration = Duration::from_millis(50);
/// One meta, three datanodes, a frontend.
const MEMBERS: usize = 5;
/// They end at once; a machine that does other things besides takes longer.
const END_WAIT: Duration = Duration::from_secs(20);

/// A child that does not outlive a test that failed.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The processes whose command lines name a folder, but for one.
fn processes(folder: &Path, but: u32) -> Vec<u32> {
    let folder = folder.display().to_string();
    let names = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&folder)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| *id != but).filter(names).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lab_that_is_killed_outright_leaves_no_process_of_its_cluster() {
    let _turn = turn().await;
    let dir = tempfile::tempdir().unwrap();
    let (data, out, log) =
        (dir.path().join("data"), dir.path().join("out"), dir.path().join("log"));
    std::fs::create_dir(&data).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
    command.args(["lab", "hotspot", "--workload", "W7:", "--seconds", "600", "--rate", "10"]);
    command.arg("--data-dir").arg(&data).arg("--out").arg(&out);
    let said = std::fs::File::create(&log).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    let mut lab = Lab(command.spawn().unwrap());
    let id = lab.0.id();

    let told = || std::fs::read_to_string(&log).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Rows are written: everything has started.
    while !told().contains("/600 s") {
        assert_eq!(lab.0.try_wait().unwrap(), None, "{}", told());
        assert!(Instant::now() < deadline, "the run does not begin: {}", told());
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(processes(&data, id).len(), MEMBERS, "{}", told());

    lab.0.kill().unwrap();
    lab.0.wait().unwrap();
    let deadline = Instant::now() + END_WAIT;
    loop {
        let left = processes(&data, id);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{left:?} are left");
        tokio::time::sleep(POLL).await;
    }
}

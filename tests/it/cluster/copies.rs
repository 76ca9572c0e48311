//! A data directory is put back from an older copy: that is noticed, and the other replicas make good what the copy lacks.
//! What nobody else has is served only when somebody says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::harness::{Cluster, PATIENCE};
use super::{NEVER_LOST, TABLES, count, write};
use crate::server::{failure, one};

/// An older copy is replaced within this: half of it, on a machine that has nothing else to do.
const REPAIR_MAX: Duration = Duration::from_secs(60);

/// The highest number of the generations in a data directory that have such a name there; 0: none.
fn generations(dir: &Path, has: fn(&str) -> bool) -> u64 {
    let text = std::fs::read_to_string(dir.join("GENERATION")).unwrap_or_default();
    let number = |line: &str| {
        let mut words = line.split(' ');
        has(words.next()?).then_some(words.next()?)?.parse().ok()
    };
    text.lines().filter(|line| !line.starts_with("checksum")).filter_map(number).max().unwrap_or(0)
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp can be run").success(), "{} is not copied", from.display());
}

/// A copy of a member's data, made while the member is down for a moment.
async fn back_up(cluster: &mut Cluster, name: &str) -> PathBuf {
    let copied = cluster.data(name).with_extension("copy");
    cluster.kill(name);
    copy(&cluster.data(name), &copied);
    cluster.start_again(name);
    cluster.until_ready(name).await;
    copied
}

/// Puts a copy in the place of what a member has.
fn put_back(cluster: &mut Cluster, name: &str, copied: &Path) {
    cluster.kill(name);
    cluster.wipe(name);
    copy(copied, &cluster.data(name));
    cluster.start_again(name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_a_datanode_is_noticed_and_made_good_by_the_other_replicas() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    cluster.until_done(&client, TABLES).await;
    cluster.until_in_order(&client, 3).await;
    write(&client, "keyed", 0..30).await.unwrap();
    let name = "datanode2";
    let copied = back_up(&mut cluster, name).await;
    cluster.until_in_order(&client, 3).await;
    for id in 30..60 {
        cluster.until_done(&client, &format!("INSERT INTO keyed VALUES ({id}, {id})")).await;
    }
    cluster.until_in_order(&client, 3).await;
    put_back(&mut cluster, name, &copied);
    let began = Instant::now();
    cluster.until_ready(name).await;
    for id in 60..90 {
        cluster.until_done(&client, &format!("INSERT INTO keyed VALUES ({id}, {id})")).await;
    }
    cluster.until_in_order(&client, 3).await;
    let took = began.elapsed();
    eprintln!("an older copy was replaced after {took:?}");
    assert!(took < REPAIR_MAX, "{took:?}\n{}", cluster.logs());
    cluster.until_well(&["health", "--connect", &cluster.peer(name)]).await;
    // What it was given is what is read when another one is gone.
    cluster.kill("datanode1");
    assert_eq!(count(&cluster, &client, "keyed").await, "90");
    // A start over what it has now is one like any other.
    cluster.start_again("datanode1");
    cluster.kill(name);
    cluster.start_again(name);
    cluster.until_ready(name).await;
    cluster.until_in_order(&client, 3).await;
    assert_eq!(count(&cluster, &client, "keyed").await, "90");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_the_only_replica_is_named_and_served_when_somebody_accepts_it() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    let alone =
        "CREATE TABLE alone (id BIGINT, PRIMARY KEY (id)) WITH ('replication_factor' = '1')";
    cluster.until_done(&client, alone).await;
    cluster.until_done(&client, TABLES).await;
    cluster.until_done(&client, "INSERT INTO alone VALUES (1)").await;
    let of_alone = "FROM sys.replicas WHERE \"table\" = 'alone'";
    let partition = one(&client, &format!("SELECT partition {of_alone}")).await;
    let name = format!("datanode{}", one(&client, &format!("SELECT node {of_alone}")).await);
    let of_others = "FROM sys.partitions WHERE \"table\" = 'keyed'";
    let others = one(&client, &format!("SELECT min(partition) {of_others}")).await;
    let copied = back_up(&mut cluster, &name).await;
    cluster.until_done(&client, "INSERT INTO alone VALUES (2)").await;
    put_back(&mut cluster, &name, &copied);
    cluster.until_ready(&name).await;
    let refusal = format!("--accept-damage {partition}");
    let well = ["health", "--connect", &cluster.peer(&name)];
    cluster
        .until("only the replica that nobody else has is left", async || {
            let (_, named) = cluster.tool(&well);
            named.contains(&refusal) && named.matches("--accept-damage").count() == 1
        })
        .await;
    let (code, why) = failure(&client, "SELECT * FROM alone").await;
    assert_eq!(code, "XX001", "{why}");
    // Also after another start, which finds the directory as it is now.
    cluster.kill(&name);
    cluster.start_again(&name);
    cluster.until_ready(&name).await;
    let (healthy, named) = cluster.tool(&well);
    assert!(!healthy && named.contains(&refusal), "{named}");
    cluster.kill(&name);
    // One that others have is not accepted: it is theirs that count.
    let accepted = PathBuf::from(format!("{partition},{others}"));
    cluster.set_environment(&name, &[("PARTITA_ACCEPT_DAMAGE", accepted)]);
    cluster.start_again(&name);
    cluster.until_ready(&name).await;
    assert_eq!(count(&cluster, &client, "alone").await, "1");
    cluster.until_done(&client, "INSERT INTO alone VALUES (3)").await;
    cluster.until_well(&well).await;
    cluster.set_environment(&name, &[]);
    cluster.kill(&name);
    cluster.start_again(&name);
    cluster.until_ready(&name).await;
    assert_eq!(count(&cluster, &client, "alone").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_copy_of_a_meta_is_refused_and_joins_again_when_it_is_told_to() {
    let mut cluster = Cluster::start(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    cluster.until_done(&client, TABLES).await;
    let leader = cluster.leading_meta().await;
    let name = if leader == "meta3" { "meta2" } else { "meta3" };
    let data = cluster.data(name);
    cluster.until("it has a generation", async || generations(&data, |_| true) > 0).await;
    let copied = back_up(&mut cluster, name).await;
    // Which of those in the copy is recorded may not be known there.
    let known = generations(&copied, |_| true);
    let later = async || generations(&data, |name| name == "acknowledged") > known;
    cluster.until("one that the copy lacks is recorded", later).await;
    put_back(&mut cluster, name, &copied);
    let (well, log) = cluster.until_ended(name).await;
    assert!(!well && log.contains("is an older copy") && log.contains("--rejoin"), "{log}");
    cluster.until_done(&client, "INSERT INTO keyed VALUES (1, 1)").await;

    cluster.wipe(name);
    cluster.set_environment(name, &[("PARTITA_REJOIN", "true".into())]);
    cluster.start_again(name);
    cluster.until_ready(name).await;
    let votes = "has rejoined meta's group";
    cluster.until("it votes again", async || cluster.logs().contains(votes)).await;
    // Its vote counts: without another one there is a majority because of it.
    let other = ["meta1", "meta2", "meta3"].into_iter().find(|meta| *meta != name).unwrap();
    cluster.kill(other);
    let began = Instant::now();
    cluster.until_done(&client, "CREATE TABLE IF NOT EXISTS u (id BIGINT, PRIMARY KEY (id))").await;
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(count(&cluster, &client, "keyed").await, "1");
}

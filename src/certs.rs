//! `partita certs`: the certificate authority of a cluster, and the certificates of its processes, as files.

use std::path::PathBuf;

use partita_tls::issue::{self, Request, Rotation};
use partita_tls::{RELOAD_INTERVAL, Role};

use crate::sql;

/// Validity of a certificate in days, unless --days says otherwise.
const DAYS: u32 = 365;
/// Intervals of reloading that `rotate --all` waits between its steps.
const ROTATION_INTERVALS: u32 = 3;

/// Options of `partita certs`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory of the certificate authority.
    #[arg(long, env = "PARTITA_CERTS_DIR", default_value = "partita-certs", global = true)]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a certificate authority.
    Init,
    /// Issue a certificate for a process or an operator, or renew it, in a directory below --dir.
    Issue {
        /// Role that the certificate proves: meta, datanode, frontend or admin.
        role: Role,
        /// Name of the process or operator, and of the directory.
        name: String,
        /// Host name or IP address by which clients of a frontend call it.
        #[arg(long, value_name = "HOST", value_delimiter = ',')]
        host: Vec<String>,
        /// Validity in days.
        #[arg(long, default_value_t = DAYS)]
        days: u32,
    },
    /// Take the next of the three steps that replace the certificate authority.
    Rotate {
        /// Take all steps, where the processes read the files below --dir itself.
        #[arg(long)]
        all: bool,
    },
    /// List the authorities and the certificates: role, expiry, hosts.
    Show,
}

/// Runs one command.
///
/// # Errors
/// If a file cannot be read or written, or the request is invalid.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let dir = options.dir;
    match options.command {
        Command::Init => {
            issue::init(&dir)?;
            sql::say(&format!("created a certificate authority in {}", dir.display()))?;
        }
        Command::Issue { role, name, host, days } => {
            let member = issue::issue(&dir, &Request { role, name, hosts: host, days })?;
            sql::say(&format!("issued a certificate in {}", member.display()))?;
        }
        Command::Rotate { all } => loop {
            let step = issue::rotate(&dir)?;
            sql::say(&describe(&step))?;
            if !all || step == Rotation::Dropped {
                break;
            }
            tokio::time::sleep(RELOAD_INTERVAL * ROTATION_INTERVALS).await;
        },
        Command::Show => sql::say(table(&issue::list(&dir)?).trim_end())?,
    }
    Ok(())
}

/// A step that was taken, and what to do before the next one.
fn describe(step: &Rotation) -> String {
    match step {
        Rotation::Trusted => "step 1 of 3: the next authority is trusted; copy the directories to their processes, \
                              wait until these have loaded them, then rotate again"
            .to_owned(),
        Rotation::Issued(names) => format!(
            "step 2 of 3: the next authority issued {} certificates; copy the directories to their processes, wait \
             until these have loaded them, then rotate again",
            names.len()
        ),
        Rotation::Dropped => {
            "step 3 of 3: the old authority is not trusted any more; copy the directories to their processes"
                .to_owned()
        }
    }
}

/// Rows of `partita certs show`.
fn table(listed: &[issue::Listed]) -> String {
    let row = |entry: &issue::Listed| {
        let role = entry.role.map_or("authority", Role::as_str);
        let expires = entry
            .expires
            .map_or_else(|| "malformed".to_owned(), |time| time.format("%Y-%m-%d").to_string());
        let hosts = entry.hosts.join(",");
        let row = format!("{role:<10} {:<36} {expires:<10} {hosts}", entry.name);
        format!("{}\n", row.trim_end())
    };
    listed.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_rotation_says_which_it_is() {
        let steps = [Rotation::Trusted, Rotation::Issued(Vec::new()), Rotation::Dropped];
        for (number, step) in (1..).zip(&steps) {
            assert!(describe(step).starts_with(&format!("step {number} of 3: ")));
        }
    }

    #[test]
    fn certificates_are_shown_by_role_name_and_expiry() {
        let dir = tempfile::tempdir().unwrap();
        issue::init(dir.path()).unwrap();
        let hosts = vec!["10.0.0.9".to_owned()];
        let request = Request { role: Role::Frontend, name: "f1".to_owned(), hosts, days: 30 };
        issue::issue(dir.path(), &request).unwrap();
        let text = table(&issue::list(dir.path()).unwrap());
        let lines: Vec<_> = text.lines().collect();
        let [authority, frontend] = lines.as_slice() else { panic!("{text}") };
        assert!(authority.starts_with("authority  Partita cluster CA "), "{text}");
        assert!(frontend.starts_with("frontend   f1 "), "{text}");
        assert!(frontend.ends_with(" 10.0.0.9"), "{text}");
    }
}

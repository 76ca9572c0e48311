//! The scripts of `testscripts/compaction`: the metadata of a partition's files in, the next merge out.
//!
//! ```text
//!   file 2 mib=10            a file, or another state of a known one; also: run=N (its number by default),
//!                            window=FROM/TO, deletes=true, clipped=true (reaches beyond the range), unindexed=true
//!                            (lacks an index), damaged=true
//!   files 1 2 3 mib=10       several alike
//!   pick                     the next merge; also: busy=true (writes are fast), range_stable_s=5
//!   pick_all                 the next merge towards one run per window
//!   flush at_s=12            a flush ended
//!   busy at_s=13             whether writes are fast then
//!   reset                    no files
//! ```

use std::error::Error;
use std::result::Result;

use goldenscript::{ArgumentConsumer, Command, Context, Runner};

use super::*;

#[path = "../../../../../tests/scripts/run.rs"]
mod run;

/// The files of a script's partition.
#[derive(Default)]
struct Script {
    files: BTreeMap<FileId, View>,
    flushes: Flushes,
}

fn file(id: FileId, arguments: &mut ArgumentConsumer<'_>) -> Result<View, Box<dyn Error>> {
    let window = match arguments.take_key("window") {
        Some(window) => {
            let (start, end) = window.split_once('/').ok_or("window=FROM/TO")?;
            Some((start.parse()?, end.parse()?))
        }
        None => None,
    };
    Ok(View {
        id,
        run: run::take(arguments, "run", id)?,
        bytes: run::take::<u64>(arguments, "mib", 1)? << 20,
        window,
        has_op: run::take(arguments, "deletes", false)?,
        clipped: run::take(arguments, "clipped", false)?,
        unindexed: run::take(arguments, "unindexed", false)?,
        damaged: run::take(arguments, "damaged", false)?,
        collectable: run::take(arguments, "collectable", false)?,
    })
}

impl Script {
    fn describe(&self, pick: Option<&Pick>) -> String {
        let Some(pick) = pick else { return "nothing to merge".to_owned() };
        let numbers: Vec<_> = pick.files.iter().map(ToString::to_string).collect();
        let window = pick
            .window
            .map_or_else(String::new, |(start, end)| format!(" of window {start}/{end}"));
        let files = match numbers.as_slice() {
            [one] => format!("write file {one}{window} again"),
            several => format!("merge files {}{window}", several.join(" ")),
        };
        let deletes = pick.files.iter().any(|id| self.files[id].has_op);
        let what = if deletes { "" } else { "any " };
        let fate = if pick.covering { "dropped" } else { "kept" };
        format!("{files}, {what}deletes are {fate}")
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let options = EngineOptions::default();
        let output = match command.name.as_str() {
            "reset" => {
                self.files.clear();
                String::new()
            }
            "file" | "files" => {
                let mut ids: Vec<FileId> = Vec::new();
                while let Some(id) = arguments.next_pos() {
                    ids.push(id.parse()?);
                }
                let template = file(0, &mut arguments)?;
                for id in ids {
                    let run = if template.run == 0 { id } else { template.run };
                    self.files.insert(id, View { id, run, ..template });
                }
                String::new()
            }
            "pick" => {
                let busy = run::take(&mut arguments, "busy", false)?;
                let stable_s: i64 = run::take(&mut arguments, "range_stable_s", 3_600)?;
                let aim = Aim::new(&options, busy, stable_s * 1_000);
                let files: Vec<View> = self.files.values().copied().collect();
                self.describe(pick(&files, &options, aim).as_ref())
            }
            "pick_all" => {
                let files: Vec<View> = self.files.values().copied().collect();
                self.describe(pick_all(&files).as_ref())
            }
            "flush" => {
                self.flushes.note(run::take::<i64>(&mut arguments, "at_s", 0)? * 1_000);
                String::new()
            }
            "busy" => {
                let at_s: i64 = run::take(&mut arguments, "at_s", 0)?;
                let busy = self.flushes.busy(at_s * 1_000);
                format!("at {at_s} s: {}", if busy { "fast" } else { "not fast" })
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("compaction", Script::default);
}

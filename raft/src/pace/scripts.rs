//! The scripts of `testscripts/pace`: a group's state and the time that has passed in, the next mode of its clock out.
//!
//! ```text
//!   group awake leader          the mode and the role; also: still, asleep, held, follower, candidate, sole_member=true
//!   after ms=2000               the decision after that time, if nothing has changed
//!   after ms=2000 busy=true     ... or with what differs: busy, applied, caught_up, last, term, members
//!   patience group=7 replica=2  how long a sleeping replica waits for a beat of its leader's node
//! ```

use std::error::Error;

use goldenscript::{Command, Context, Runner};

use super::*;

#[path = "../../../tests/scripts/run.rs"]
mod run;

/// The group of a script.
struct Script {
    state: State,
    view: View,
}

impl Script {
    fn new() -> Self {
        let now = Instant::now();
        let place = Place { term: 3, leader: Some(1), last: Some(9), membership: Some(0) };
        let state = State { mode: Mode::Awake, place, since: now, heard: now };
        let view = View { sole_member: false, leads: true, place, settled: true, caught_up: true };
        Self { state, view }
    }

    fn name(mode: Mode) -> &'static str {
        match mode {
            Mode::Still => "still",
            Mode::Held { .. } => "held",
            Mode::Awake => "awake",
            Mode::Asleep => "asleep",
        }
    }
}

impl Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let output = match command.name.as_str() {
            "group" => {
                *self = Self::new();
                self.view.sole_member = run::take(&mut arguments, "sole_member", false)?;
                while let Some(word) = arguments.next_pos() {
                    match word {
                        "still" => self.state.mode = Mode::Still,
                        "held" => {
                            self.state.mode = Mode::Held { until: self.state.since + LEASE };
                        }
                        "awake" => self.state.mode = Mode::Awake,
                        "asleep" => self.state.mode = Mode::Asleep,
                        "leader" => self.view.leads = true,
                        // Only a leader knows how far the others are.
                        "follower" | "candidate" => {
                            (self.view.leads, self.view.caught_up) = (false, false);
                        }
                        other => return Err(format!("unknown word {other}").into()),
                    }
                }
                String::new()
            }
            "after" => {
                let now =
                    self.state.since + Duration::from_millis(run::take(&mut arguments, "ms", 0)?);
                let busy = run::take(&mut arguments, "busy", false)?;
                let mut view = self.view.clone();
                view.sole_member = run::take(&mut arguments, "sole_member", view.sole_member)?;
                view.settled = run::take(&mut arguments, "applied", view.settled)?;
                view.caught_up = run::take(&mut arguments, "caught_up", view.caught_up)?;
                view.place.term = run::take(&mut arguments, "term", view.place.term)?;
                let last = run::take(&mut arguments, "last", 9)?;
                view.place.last = Some(last);
                let mode = decide(&self.state, &view, busy, PATIENCE_MIN, now);
                format!("{} -> {}", Self::name(self.state.mode), Self::name(mode))
            }
            "patience" => {
                let group = GroupId(run::take(&mut arguments, "group", 1)?);
                let replica = ReplicaId(run::take(&mut arguments, "replica", 1)?);
                let patience = PATIENCE_MIN + spread(group, replica);
                format!("replica {replica} waits {} ms", patience.as_millis())
            }
            other => return Err(format!("unknown command {other}").into()),
        };
        arguments.reject_next()?;
        Ok(output)
    }
}

#[test]
fn scripts() {
    run::run_all("pace", Script::new);
}

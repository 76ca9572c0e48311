//! The selected runs: each a workload of the catalogue under a key design, with its tables and operations.
//!
//! Invariants: pure, except for reading the replayed file; names of runs and of tables are unique; all runs of a
//! workload have the same rate, whatever the design; a replayed run has exactly the recorded operations.

use anyhow::{Context, bail, ensure};
use partita_hotspot::workload::{
    Design, Knobs, Mix, SqlTable, TableLoad, Workload, all, find, group,
};

use super::claims::Shows;
use super::offer::Offer;
use super::options::{Options, PARTITION_RATE, PARTITION_RATE_READS};
use super::recorded;

/// Demand as a multiple of one partition's maximum rate: too much for one partition, possible for eight.
const LANES: f64 = 3.0;
/// Maximum range reads per second, which may read many rows, unless --rate is given.
const SCANS_PER_S: f64 = 50.0;

/// One run of a workload: its parameters and tables.
pub(super) struct Case {
    /// Name in reports.
    pub(super) name: String,
    /// Description in a sentence.
    pub(super) about: String,
    /// Workload; `None` for the demonstration, which needs no name.
    pub(super) workload: Option<&'static str>,
    /// Key design, if the workload leaves it open.
    pub(super) design: Option<Design>,
    pub(super) knobs: Knobs,
    /// Duration in seconds.
    pub(super) seconds: u64,
    /// Tables under load; the first is measured.
    pub(super) loads: Vec<TableLoad>,
    pub(super) offer: Offer,
    /// Claims that it is judged by, if any.
    pub(super) shows: Option<Shows>,
}

/// All runs, and their common parameters.
pub(super) struct Cases {
    pub(super) all: Vec<Case>,
    /// Duration of a run, except for runs that take longer.
    pub(super) seconds: u64,
    /// Maximum rows per second of a partition, if known.
    pub(super) bound: Option<f64>,
}

/// Shares of operations on a workload's first table.
fn mix(workload: &Workload, design: Design) -> Mix {
    let tables = workload.tables(&Knobs::of(design, 1.0));
    tables.first().map_or_else(Mix::default, |load| load.mix(0))
}

fn reads(mix: &Mix) -> bool {
    mix.reads + mix.scans > 0.0
}

/// True if the workload has reads, under any design.
fn any_reads(workload: &Workload) -> bool {
    Design::ALL.iter().any(|design| reads(&mix(workload, *design)))
}

/// Operations per second of a workload.
fn rate(options: &Options, workload: &Workload, bound: Option<f64>) -> f64 {
    let lane = if any_reads(workload) { PARTITION_RATE_READS } else { PARTITION_RATE };
    let most = LANES * bound.unwrap_or(lane);
    let scans = |design: &Design| {
        let mix = mix(workload, *design);
        mix.scans / (mix.writes + mix.reads + mix.scans).max(f64::MIN_POSITIVE)
    };
    let share = Design::ALL.iter().map(scans).fold(0.0, f64::max);
    let most = if share > 0.0 { most.min(SCANS_PER_S / share) } else { most };
    options.rate.unwrap_or(most)
}

impl Case {
    fn of(workload: &Workload, is_named: bool, knobs: Knobs, seconds: u64, offer: Offer) -> Self {
        let design = workload.designs.then_some(knobs.design);
        let loads = workload.tables(&knobs);
        let Some(demo_design) = design.filter(|_| !is_named) else {
            let (name, clauses) = match design {
                Some(design) => {
                    let table = SqlTable::of(&loads[0], "", 0);
                    let clauses = design.clauses(table.entity().unwrap_or("key"), knobs.partitions);
                    (format!("{} {}", workload.name, design.name()), format!("{clauses}. "))
                }
                None => (workload.name.to_owned(), String::new()),
            };
            let description = format!("{}. {clauses}Shows: {}.", workload.about, workload.shows());
            return Self {
                name,
                about: description,
                workload: Some(workload.name),
                design,
                knobs,
                seconds,
                loads,
                offer,
                shows: None,
            };
        };
        let (name, description) = (demo_design.name().to_owned(), about(demo_design).to_owned());
        Self {
            name,
            about: description,
            workload: None,
            design,
            knobs,
            seconds,
            loads,
            offer,
            shows: None,
        }
    }

    /// A name for files and tables: lowercase letters and digits, other characters replaced by `separator`.
    pub(super) fn slug(&self, separator: char) -> String {
        let small = self.name.to_ascii_lowercase();
        small.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { separator }).collect()
    }

    /// Name of one of the case's tables. The prefix keeps it apart from the tables of users.
    pub(super) fn table(&self, index: usize) -> String {
        let suffix =
            if index == 0 { String::new() } else { format!("_{}", self.loads[index].name) };
        format!("lab_hotspot_{}{suffix}", self.slug('_'))
    }

    /// True if the run has reads.
    pub(super) fn reads(&self) -> bool {
        reads(&self.loads[0].mix(0))
    }
}

/// Description of a design for users.
fn about(design: Design) -> &'static str {
    match design {
        Design::TsUid => {
            "PRIMARY KEY (ts, userid): new rows have the highest keys, so one partition takes all of them."
        }
        Design::TsUidAuto => {
            "PRIMARY KEY (ts, userid) again, with 'append_mode' = 'true' and 'hotspot_remedy' = 'auto': once the growing end has been hot for half a minute, the store places new rows by a hash of the user and leaves existing rows where they are."
        }
        Design::UidTs => {
            "PRIMARY KEY (userid, ts): users are spread over the partitions, and the rows of one user lie together."
        }
        Design::HashUid => {
            "PARTITION BY HASH (userid): users are distributed evenly, even if their numbers are not."
        }
        Design::HashAll => {
            "PARTITION BY HASH (ts, userid): a row may be in any partition, so the rows of one user are in all of them."
        }
        Design::Single => {
            "PRIMARY KEY (userid, ts) with the rows of a single user: no key spreads a single value."
        }
    }
}

/// The selected workloads, without duplicates.
fn named(options: &Options) -> anyhow::Result<Vec<Workload>> {
    let mut workloads: Vec<Workload> = Vec::new();
    for name in &options.workload {
        let members = group(name);
        ensure!(!members.is_empty(), "there is no workload {name}; --list shows all");
        for workload in members {
            if !workloads.iter().any(|selected| selected.name == workload.name) {
                workloads.push(workload);
            }
        }
    }
    Ok(workloads)
}

impl Cases {
    /// The runs that the options select.
    ///
    /// # Errors
    /// If there is no such workload, if more than one run is to be recorded, or if the file to replay is invalid.
    pub(super) fn of(options: &Options) -> anyhow::Result<Self> {
        if let Some(path) = &options.replay {
            let (description, offered) = recorded::scan(path)?;
            let workload = find(&description.workload).with_context(|| {
                format!("there is no workload {} any more", description.workload)
            })?;
            let offer = Offer::Recorded { path: path.clone(), offered };
            let case = Case::of(&workload, true, description.knobs, description.seconds, offer);
            let bound = options.bound(case.reads());
            return Ok(Self { all: vec![case], seconds: description.seconds, bound });
        }
        if options.claims {
            return Self::claimed(options);
        }
        let mut cases = Vec::new();
        let selected = if options.workload.is_empty() { vec![] } else { named(options)? };
        let is_named = !selected.is_empty();
        let workloads =
            if is_named { selected } else { vec![find("W1").context("the workload is there")?] };
        let bound = options.bound(workloads.iter().any(any_reads));
        for workload in &workloads {
            let rate = rate(options, workload, bound);
            let designs = if workload.designs { &options.design[..] } else { &[Design::UidTs] };
            for design in designs {
                let knobs = options.knobs(*design, rate);
                let first = workload.tables(&knobs).into_iter().next().context("it has a table")?;
                let offer = Offer::Drawn { load: Box::new(first), seed: options.seed };
                // A run in which the store repartitions has to last longer than the detection.
                let times = if workload.designs && design.cures_itself() { 2 } else { 1 };
                let seconds = options.seconds * times;
                cases.push(Case::of(workload, is_named, knobs, seconds, offer));
            }
        }
        if options.record.is_some() && cases.len() != 1 {
            bail!(
                "--record needs exactly one run, and {} are selected; name one workload and one --design",
                cases.len()
            );
        }
        Ok(Self { all: cases, seconds: options.seconds, bound })
    }
}

/// Cases for claims: workload, design, claims, duration as a multiple of a run's, and the initial number of
/// partitions, if that matters.
const CLAIMED: [(&str, Design, Shows, u64, Option<u32>); 5] = [
    ("W1", Design::TsUid, Shows::OneHotspot, 1, None),
    ("W1", Design::TsUidAuto, Shows::Cure, 2, None),
    // A split is judged a minute later.
    ("W1", Design::UidTs, Shows::StaticLoad, 3, Some(1)),
    // A day lasts as long as a run.
    ("W10", Design::UidTs, Shows::Days, 3, Some(1)),
    ("W13", Design::UidTs, Shows::LukewarmNode, 2, None),
];

impl Cases {
    fn claimed(options: &Options) -> anyhow::Result<Self> {
        let bound = options.bound(false);
        let mut cases = Vec::new();
        for (name, design, shows, times, partitions) in CLAIMED {
            let workload = find(name).context("the workload is there")?;
            let mut knobs = options.knobs(design, rate(options, &workload, bound));
            knobs.partitions = partitions.unwrap_or(knobs.partitions);
            let first = workload.tables(&knobs).into_iter().next().context("it has a table")?;
            let offer = Offer::Drawn { load: Box::new(first), seed: options.seed };
            let case = Case::of(&workload, true, knobs, options.seconds * times, offer);
            cases.push(Case { shows: Some(shows), ..case });
        }
        Ok(Self { all: cases, seconds: options.seconds, bound })
    }
}

/// The catalogue as text: a line for each workload.
pub(super) fn list() -> String {
    let workloads = all();
    let width =
        workloads.iter().map(|workload| workload.name.chars().count()).max().unwrap_or(0) + 1;
    let line = |workload: &Workload| {
        let name = format!("{}{}", workload.name, if workload.designs { "*" } else { "" });
        format!("{name:<width$}  {} -- {}\n", workload.about, workload.shows())
    };
    let lines: String = workloads.iter().map(line).collect();
    format!("{lines}* under each --design")
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    /// Cases of a command line.
    pub(in crate::hotspot) fn cases(arguments: &[&str]) -> anyhow::Result<Cases> {
        let words = [&["hotspot"][..], arguments].concat();
        Cases::of(&Command::try_parse_from(words)?.options)
    }

    fn names(cases: &Cases) -> Vec<&str> {
        cases.all.iter().map(|case| case.name.as_str()).collect()
    }

    #[test]
    fn without_a_name_it_is_user_events_under_six_designs_within_ten_minutes() {
        let cases = cases(&[]).unwrap();
        let six = ["ts-uid", "ts-uid-auto", "uid-ts", "hash-uid", "hash-all", "single"];
        assert_eq!(names(&cases), six);
        assert_eq!((cases.seconds, cases.bound), (60, Some(1_000.0)));
        let seconds: Vec<u64> = cases.all.iter().map(|case| case.seconds).collect();
        assert_eq!(seconds, [60, 120, 60, 60, 60, 60], "a cure takes its time, and is to be seen");
        let first = &cases.all[0];
        assert_eq!((first.knobs.rate, first.workload, first.reads()), (3_000.0, None, false));
        assert_eq!(
            (first.table(0).as_str(), first.slug('-').as_str()),
            ("lab_hotspot_ts_uid", "ts-uid")
        );
    }

    #[test]
    fn names_and_groups_of_workloads_run_under_designs_where_they_leave_that_open() {
        let runs = cases(&["--workload", "W4:home,W14,W6:latest", "--design", "ts-uid,hash-uid"]);
        let runs = runs.unwrap();
        assert_eq!(names(&runs), ["W4:home ts-uid", "W4:home hash-uid", "W14", "W6:latest"]);
        assert_eq!(runs.bound, Some(150.0), "one of them reads");
        assert_eq!(runs.all[0].slug('-'), "w4-home-ts-uid");
        assert_eq!(runs.all[2].table(0), "lab_hotspot_w14");
        assert_eq!(runs.all[2].table(1), "lab_hotspot_w14_events");
        assert!(runs.all[0].about.contains("PRIMARY KEY (ts, room)"), "{}", runs.all[0].about);
        let group = cases(&["--workload", "W6,W6:scans"]).unwrap();
        assert_eq!(group.all.len(), 7, "each once");
        assert!(cases(&["--workload", "W99"]).is_err());
    }

    #[test]
    fn every_run_of_the_catalogue_has_a_table_and_a_file_of_its_own() {
        let cases = cases(&["--workload", "all"]).unwrap();
        let tables: std::collections::BTreeSet<String> = cases
            .all
            .iter()
            .flat_map(|case| (0..case.loads.len()).map(|index| case.table(index)))
            .collect();
        let files: std::collections::BTreeSet<String> =
            cases.all.iter().map(|case| case.slug('-')).collect();
        let all_tables: usize = cases.all.iter().map(|case| case.loads.len()).sum();
        assert_eq!((tables.len(), files.len()), (all_tables, cases.all.len()));
        assert!(cases.all.len() > 60, "{}", cases.all.len());
    }

    #[test]
    fn what_reads_ranges_is_asked_less_often_under_all_designs_alike() {
        let rates: Vec<f64> = cases(&["--workload", "W15,W6:scans"])
            .unwrap()
            .all
            .iter()
            .map(|case| case.knobs.rate)
            .collect();
        assert_eq!(rates[..6], [100.0; 6]);
        assert!((rates[6] - 50.0 / 0.95).abs() < 1e-9, "{rates:?}");
        let explicit = cases(&["--workload", "W15", "--rate", "7"]).unwrap();
        assert!(explicit.all.iter().all(|case| case.knobs.rate == 7.0));
    }

    #[test]
    fn what_is_claimed_has_a_run_each_that_is_long_enough_to_be_judged() {
        let claimed = cases(&["--claims"]).unwrap();
        assert_eq!(
            names(&claimed),
            ["W1 ts-uid", "W1 ts-uid-auto", "W1 uid-ts", "W10 uid-ts", "W13"]
        );
        let seconds: Vec<u64> = claimed.all.iter().map(|case| case.seconds).collect();
        assert_eq!(seconds, [60, 120, 180, 180, 120]);
        assert!(claimed.all.iter().all(|case| case.shows.is_some() && !case.reads()));
        assert_eq!((claimed.all[2].knobs.partitions, claimed.all[3].knobs.day_s), (1, 60));
        // Lukewarm: none of them is half busy.
        let lukewarm = &claimed.all[4].knobs;
        assert!(lukewarm.rate / f64::from(lukewarm.partitions) < 0.5 * claimed.bound.unwrap());
        assert!(cases(&["--claims", "--workload", "W1"]).is_err());
    }

    #[test]
    fn only_one_run_is_recorded() {
        let error = cases(&["--record", "x", "--workload", "W7"]).err().expect("three runs");
        assert!(error.to_string().contains("3 are selected"), "{error}");
        assert!(cases(&["--record", "x", "--workload", "W7:"]).is_ok());
        assert!(cases(&["--replay", "x", "--seconds", "5"]).is_err(), "the file says how long");
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        let list = list();
        assert_eq!(list.lines().count(), all().len() + 1);
        assert!(list.lines().any(|line| line.starts_with("W6:latest ") && line.contains(" -- ")));
    }
}

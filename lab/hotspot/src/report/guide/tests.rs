//! A guide to runs of the virtual cluster: it refers to existing pictures, and describes each run by its results.

use super::*;
use crate::cluster::{Cluster, Options};
use crate::workload::{Knobs, find};

const CREATED: &str = "CREATE TABLE t (ts TIMESTAMP(6))";

fn shown(design: Design) -> Shown {
    let loads = find("W1").unwrap().tables(&Knobs::of(design, 60_000.0));
    let options = Options { nodes: 10, picture_every_s: 1, ..Options::default() };
    let mut cluster = Cluster::new(options, loads);
    cluster.run(120);
    Shown::of(design.name(), &cluster, &Summary::of(&cluster))
}

fn files(results: &[(Design, Shown)]) -> Vec<Written> {
    let created = [CREATED.to_owned()];
    let mut runs = Vec::new();
    for (design, result) in results {
        let (design, slug) = (Some(*design), design.name());
        runs.push(Guided {
            shown: result,
            slug,
            design,
            entity: Some("userid"),
            created: &created,
        });
    }
    let section = Section {
        title: "Leaders".to_owned(),
        text: "who | led".to_owned(),
        lines: vec![
            vec!["run".to_owned(), "node".to_owned()],
            vec!["a|b".to_owned(), "1".to_owned()],
        ],
    };
    guide(&Guide {
        about: "60,000 rows/s <of> one kind.",
        command: "partita lab hotspot --guide guide",
        runs: &runs,
        sections: &[section],
        not_yet: &["*nothing*".to_owned()],
    })
}

/// Section of a page about a run.
fn part<'a>(page: &'a str, name: &str) -> &'a str {
    let start = page.find(&format!("## {name}\n")).expect(name);
    let rest = &page[start + 3..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

#[test]
fn a_guide_says_of_each_run_what_it_showed_and_has_all_of_its_pictures() {
    let designs = [Design::TsUid, Design::TsUidAuto, Design::UidTs, Design::HashAll];
    let results: Vec<(Design, Shown)> = designs.map(|design| (design, shown(design))).into();
    let files = files(&results);
    assert_eq!(files[0].name, "README.md");
    let page = &files[0].text;

    // Every picture that is named is there, in both themes, and none besides.
    let mut references: Vec<&str> = Vec::new();
    for (end, _) in page.match_indices(".svg\"") {
        let start = page[..end].rfind('"').unwrap() + 1;
        references.push(&page[start..end + 4]);
    }
    let mut written: Vec<&str> = files[1..].iter().map(|file| file.name.as_str()).collect();
    references.sort_unstable();
    written.sort_unstable();
    assert_eq!(references, written);
    assert_eq!(written.len(), 2 * (2 * designs.len() + 1), "{written:?}");
    for file in &files[1..] {
        assert!(
            file.text.starts_with("<svg xmlns=") && file.text.ends_with("</svg>\n"),
            "{}",
            file.name
        );
        assert!(!file.text.contains("var("), "{}", file.name);
    }

    let [time, cured, user, hash] = designs.map(|design| part(page, design.name()));
    assert!(time.contains("The line that climbs from the first second to the last"), "{time}");
    assert!(
        time.contains("One of 8 partitions does the work") && time.contains("MOVING_RIGHT"),
        "{time}"
    );
    assert!(
        time.contains("Recommendations of the store") && time.contains("CREATE TABLE events_new"),
        "{time}"
    );
    assert!(cured.contains("by itself"), "{cured}");
    let (_, buckets) = results[1].1.summary.rekeyed.expect("it cured itself");
    let sentence = format!("All {buckets} partitions work");
    assert!(buckets > 3 && !cured.contains("Only ") && cured.contains(&sentence), "{cured}");
    for (calm, why) in [(user, "the key begins with the entity"), (hash, "distributes every row")] {
        assert!(calm.contains(why) && calm.contains("All 8 partitions work"), "{calm}");
        for phrase in ["MOVING", "The line that", "Only ", "waits"] {
            assert!(!calm.contains(phrase), "{phrase}: {calm}");
        }
    }
    assert!(user.contains("A query for the rows of one `userid` touches 1.0 partitions"), "{user}");
    assert!(hash.contains("A query for the rows of one `userid` touches 8.0 partitions"), "{hash}");
    let sums = part(page, "Summary");
    assert!(sums.contains("Fell behind: `ts-uid`."), "{sums}");
    assert!(sums.contains("Repartitioned itself: `ts-uid-auto`."), "{sums}");
    assert!(sums.contains("cheapest in `uid-ts`: 1.0 partition is touched."), "{sums}");
}

#[test]
fn a_guide_of_calm_runs_shows_no_line_that_moves() {
    let files = files(&[(Design::HashUid, shown(Design::HashUid))]);
    let page = &files[0].text;
    assert!(page.contains("**Stripes over the whole height"), "{page}");
    for phrase in [
        "MOVING",
        "climbs",
        "falls",
        "HOT_KEY",
        "horizontal line**",
        "Fell behind",
        "Repartitioned",
        "Recommendations",
    ] {
        assert!(!page.contains(phrase), "{phrase}: {page}");
    }
}

#[test]
fn what_others_wrote_is_shown_as_text() {
    let files = files(&[]);
    let page = &files[0].text;
    assert!(page.contains("60,000 rows/s &lt;of> one kind."), "{page}");
    assert!(page.contains("| a\\|b | 1 |") && page.contains("who \\| led"), "{page}");
    assert!(page.contains("- \\*nothing\\*\n"), "{page}");
    assert_eq!(files.len(), 1, "nothing is drawn of no run");
}

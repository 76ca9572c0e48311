//! The references in `docs/` are complete: each table of `sys`, HTTP route, option, setting, command and flag stands in its
//! page.
//!
//! The source is read as text, by the forms in which it writes these names, wherever below the named folders it does so.
//! Invariant: a scan that finds fewer names than were known when it was written fails, so that a form that changes does
//! not switch its test off.

#![allow(clippy::unwrap_used, reason = "what a test cannot go on without, it fails by")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Text of every Rust file below a folder of the repository, without tests.
fn sources(folder: &str) -> Vec<String> {
    let mut texts = Vec::new();
    collect(&root().join(folder), &mut texts);
    assert!(!texts.is_empty(), "no source in {folder}");
    texts
}

fn collect(folder: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "tests", "benches", "examples"].contains(&name.as_str()) {
                collect(&path, texts);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            texts.push(text[..end].to_owned());
        }
    }
}

/// Text between two others, the first time that they occur in this order.
fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    let rest = &text[text.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

/// The section below a heading, to the next heading of level 2.
fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let begin = format!("\n{heading}\n");
    let at = page.find(&begin).unwrap_or_else(|| panic!("no heading \"{heading}\""));
    let rest = &page[at + begin.len()..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

/// Whether a text has a name that is not a part of a longer one.
fn mentions(text: &str, name: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || "_-/".contains(c);
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    })
}

/// The names in string literals that follow a marker.
fn names_after<'t>(text: &'t str, marker: &str) -> Vec<&'t str> {
    let marker = format!("{marker}\"");
    text.match_indices(&marker)
        .filter_map(|(at, _)| text[at + marker.len()..].split('"').next())
        .collect()
}

/// A word of Rust as it stands in commands and flags: `remove_node` and `RemoveNode` are `remove-node`.
fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(if c == '_' { '-' } else { c.to_ascii_lowercase() });
    }
    kebab
}

fn complain(page: &str, what: &str, missing: &BTreeSet<String>) {
    assert!(missing.is_empty(), "{page} lacks these {what}: {missing:#?}");
}

/// The columns that the source declares as `const NAME: &[(&str, Kind)]`, with SQL's names of their types.
fn declared(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    const MARKER: &str = ": &[(&str, Kind)] = &[";
    let mut found = Vec::new();
    for (at, _) in text.match_indices(MARKER) {
        let constant = text[..at].rsplit(' ').next().unwrap();
        let body = &text[at + MARKER.len()..];
        let body = &body[..body.find("];").unwrap()];
        let columns = body.split("(\"").skip(1).map(|entry| {
            let (name, rest) = entry.split_once('"').unwrap();
            let kind = between(rest, "Kind::", ")").unwrap();
            let sql = match kind {
                "Text" => "STRING",
                "Count" => "BIGINT UNSIGNED",
                "Number" => "BIGINT",
                "Flag" => "BOOLEAN",
                "Float" => "DOUBLE",
                "Time" => "TIMESTAMP(3)",
                other => panic!("column {name} has an unknown kind {other}"),
            };
            (name.to_owned(), sql.to_owned())
        });
        found.push((constant.to_owned(), columns.collect()));
    }
    found
}

/// The columns that a section describes: rows of a name and a type.
fn described(section: &str) -> Vec<(String, String)> {
    const TYPES: [&str; 6] =
        ["STRING", "BIGINT UNSIGNED", "BIGINT", "BOOLEAN", "DOUBLE", "TIMESTAMP(3)"];
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        let (column_type, _) = rest.split_once(" |")?;
        TYPES.contains(&column_type).then(|| (name.to_owned(), column_type.to_owned()))
    };
    section.lines().filter_map(row).collect()
}

#[test]
fn each_system_table_is_described_column_by_column() {
    let page = page("docs/system-tables.md");
    let mut described_tables = BTreeSet::new();
    let mut columns_seen = 0;
    for text in sources("frontend") {
        // `information_schema` follows the standard; its page says what is added.
        if text.contains("const SCHEMATA:") {
            continue;
        }
        for (constant, columns) in declared(&text) {
            if constant == "EXPLAIN_HOTSPOT" {
                continue;
            }
            let table = match constant.as_str() {
                "TOP_PARTITIONS" => "top_partitions_one_minute".to_owned(),
                other => other.to_ascii_lowercase(),
            };
            columns_seen += columns.len();
            let found = described(section(&page, &format!("## sys.{table}")));
            assert_eq!(found, columns, "docs/system-tables.md, sys.{table}");
            described_tables.insert(table);
        }
    }
    assert!(described_tables.len() >= 16, "only {described_tables:?} were found");
    assert!(columns_seen >= 201, "only {columns_seen} columns were found");
}

#[test]
fn the_columns_of_the_query_log_are_described() {
    let logs: Vec<_> = sources("frontend")
        .into_iter()
        .filter(|text| text.contains("fn schema() -> SchemaRef") && text.contains("sys.query_log"))
        .collect();
    let [log] = logs.as_slice() else { panic!("{} files declare sys.query_log", logs.len()) };
    let body = between(log, "fn schema() -> SchemaRef {", "\n    }").unwrap();
    let mut columns: Vec<(usize, &str)> = Vec::new();
    for marker in ["text(", "count(", "Field::new("] {
        for name in names_after(body, marker) {
            // A literal that begins in the body: its address says where.
            columns.push((name.as_ptr().addr() - body.as_ptr().addr(), name));
        }
    }
    columns.sort_unstable();
    let columns: Vec<_> = columns.into_iter().map(|(_, name)| name.to_owned()).collect();
    assert!(columns.len() >= 16, "only {columns:?} were found");
    let page = page("docs/system-tables.md");
    let found = described(section(&page, "## sys.query_log"));
    let found: Vec<_> = found.into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, columns, "docs/system-tables.md, sys.query_log");
}

#[test]
fn each_table_that_sys_lists_has_a_section() {
    let page = page("docs/system-tables.md");
    let mut tables = BTreeSet::new();
    for text in sources("frontend") {
        if !text.contains("BTreeMap<&'static str, Arc<VirtualTable>>")
            || !text.contains("\"query_log\"")
        {
            continue;
        }
        // What declares columns names columns, not tables.
        let mut lists = text.as_str();
        let mut names = String::new();
        while let Some(at) = lists.find(": &[(&str, Kind)] = &[") {
            names.push_str(&lists[..at]);
            lists = &lists[at..][lists[at..].find("];").unwrap()..];
        }
        names.push_str(lists);
        names.retain(|c| !c.is_whitespace());
        let is_name = |name: &&str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        let firsts = names.split("(\"").skip(1).filter_map(|rest| rest.split_once("\","));
        tables.extend(firsts.map(|(name, _)| name).filter(is_name).map(str::to_owned));
    }
    assert!(tables.len() >= 17, "only {tables:?} were found");
    tables.retain(|table| !page.contains(&format!("\n## sys.{table}\n")));
    complain("docs/system-tables.md", "tables", &tables);
}

#[test]
fn the_columns_of_explain_hotspot_are_described() {
    let all: Vec<_> = sources("frontend").iter().flat_map(|text| declared(text)).collect();
    let (_, columns) = all.iter().find(|(name, _)| name == "EXPLAIN_HOTSPOT").unwrap();
    assert!(columns.len() >= 8, "only {columns:?} were found");
    let page = page("docs/debugging.md");
    assert_eq!(&described(section(&page, "## EXPLAIN HOTSPOT")), columns, "docs/debugging.md");
}

#[test]
fn each_route_is_described() {
    let mut routes = BTreeSet::new();
    for text in sources("frontend/http/src") {
        routes.extend(names_after(&text, "    route(").into_iter().map(str::to_owned));
    }
    assert!(routes.len() >= 20, "only {routes:?} were found");
    let page = page("docs/http.md");
    routes.retain(|route| !mentions(&page, route));
    complain("docs/http.md", "routes", &routes);
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The words of the arms of each `match ...key.as_str()`.
fn keys_matched(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (at, marker) in text.match_indices("key.as_str() {\n") {
        let lines = text[at + marker.len()..].lines();
        let Some(first) = lines.clone().next().map(indent) else { continue };
        for line in lines.take_while(|line| line.trim().is_empty() || indent(line) >= first) {
            let arm = line.trim_start();
            if indent(line) == first && (arm.starts_with('"') || arm.starts_with("| \"")) {
                let pattern = arm.split("=>").next().unwrap();
                keys.extend(pattern.split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    keys
}

#[test]
fn each_table_option_is_described() {
    let mut options = BTreeSet::new();
    for text in sources("frontend") {
        options.extend(keys_matched(&text));
        if !text.contains("fn partitioning_option") {
            continue;
        }
        for line in text.lines() {
            let named = line.strip_prefix("const ").filter(|line| line.contains(": &str = \""));
            let short = line.strip_prefix("    (\"").filter(|line| line.ends_with("),"));
            options.extend(named.and_then(|line| between(line, "\"", "\"")).map(str::to_owned));
            options.extend(short.and_then(|line| line.split('"').next()).map(str::to_owned));
        }
    }
    assert!(options.len() >= 27, "only {options:?} were found");
    let page = page("docs/sql.md");
    let described = section(&page, "## Options");
    options.retain(|option| !described.contains(&format!("`{option}`")));
    complain("docs/sql.md", "options", &options);
}

#[test]
fn each_session_setting_is_described() {
    let mut settings = BTreeSet::new();
    for text in sources("frontend") {
        let known = between(&text, "const KNOWN: &[(&str, Takes, &str)] = &[", "];");
        settings.extend(
            known.into_iter().flat_map(|known| names_after(known, "    (")).map(str::to_owned),
        );
    }
    assert!(settings.len() >= 33, "only {settings:?} were found");
    let page = page("docs/configuration.md");
    let described = section(&page, "## Session settings");
    settings.retain(|setting| !described.contains(&format!("\n| `{setting}` |")));
    complain("docs/configuration.md", "settings", &settings);
}

/// The parts of a list between commas that are in no parentheses and no string, up to the parenthesis that closes it.
fn parts(list: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut quoted, mut begin) = (0_u32, false, 0);
    let mut parts = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            ')' => {
                parts.push(list[begin..at].trim());
                return (parts, &list[at..]);
            }
            ',' if depth == 0 => {
                parts.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    panic!("a list does not end: {list:.80}");
}

/// The flags and the environment variables that clap's attributes declare.
fn flags_and_variables(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut flags, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for (at, marker) in text.match_indices("arg(") {
        if !text[..at].ends_with(['[', ' ']) {
            continue;
        }
        let (attributes, rest) = parts(&text[at + marker.len()..]);
        let value = |name: &str| {
            let given = attributes.iter().find_map(|part| part.strip_prefix(name));
            given
                .and_then(|given| given.trim_start().strip_prefix('='))
                .map(|given| given.trim().trim_matches('"').to_owned())
        };
        let field = rest
            .lines()
            .skip(1)
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"));
        let field = field.and_then(|line| line.split_once(':')).map(|(name, _)| name);
        let field = field.and_then(|name| name.rsplit(' ').next());
        if attributes.contains(&"long") {
            flags.insert(format!("--{}", kebab(field.unwrap())));
        }
        flags.extend(value("long").map(|name| format!("--{name}")));
        flags.extend(value("visible_alias").map(|name| format!("--{name}")));
        variables.extend(value("env"));
    }
    (flags, variables)
}

/// The flags and the environment variables of all commands.
fn all_flags_and_variables() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut flags, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for text in ["src", "lab/src", "lab/hotspot/src"].into_iter().flat_map(sources) {
        let (more_flags, more_variables) = flags_and_variables(&text);
        flags.extend(more_flags);
        variables.extend(more_variables);
    }
    assert!(flags.len() >= 129, "only {flags:?} were found");
    assert!(variables.len() >= 26, "only {variables:?} were found");
    (flags, variables)
}

#[test]
fn each_flag_and_its_variable_are_described() {
    let (mut flags, mut variables) = all_flags_and_variables();
    let page = page("docs/configuration.md");
    flags.retain(|flag| !mentions(&page, flag));
    variables.retain(|variable| !page.contains(&format!("`{variable}`")));
    complain("docs/configuration.md", "flags", &flags);
    complain("docs/configuration.md", "variables", &variables);
}

#[test]
fn the_compose_file_has_flags_and_variables_that_exist_and_no_secret() {
    let (flags, variables) = all_flags_and_variables();
    let text = page("deploy/docker-compose.yml");
    let lines: Vec<_> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let words =
        lines.iter().flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'));
    let used: BTreeSet<_> = words.filter(|word| word.starts_with("--")).collect();
    assert!(used.len() >= 5, "only {used:?} were found");
    let unknown: Vec<_> = used.iter().filter(|flag| !flags.contains(**flag)).collect();
    assert!(unknown.is_empty(), "deploy/docker-compose.yml: no command has {unknown:?}");
    // Those that compose itself replaces may be handed on to scripts.
    let replaced: BTreeSet<_> =
        text.split("${").skip(1).filter_map(|rest| rest.split([':', '}']).next()).collect();
    let keys = lines.iter().filter_map(|line| line.trim().split_once(':'));
    let set: BTreeSet<_> =
        keys.map(|(key, _)| key).filter(|key| key.starts_with("PARTITA_")).collect();
    assert!(set.len() >= 10, "only {set:?} were found");
    let unknown: Vec<_> = set
        .iter()
        .filter(|name| !variables.contains(**name) && !replaced.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "deploy/docker-compose.yml: nothing reads {unknown:?}");
    // Whoever may inspect a container sees its environment: it has names of files only.
    for line in lines {
        let key = line.trim().split_once(':').map_or("", |(key, _)| key);
        let is_secret = ["PASSWORD", "TOKEN", "SECRET"].iter().any(|word| key.ends_with(word));
        assert!(!is_secret, "deploy/docker-compose.yml: {line}");
    }
}

#[test]
fn each_command_is_described() {
    let mut commands = BTreeSet::new();
    for text in ["src", "lab/src"].into_iter().flat_map(sources) {
        for (at, _) in text.match_indices("Subcommand)]") {
            let Some(body) = between(&text[at..], "{\n", "\n}") else { continue };
            let variant = |line: &str| {
                let name = line
                    .strip_prefix("    ")
                    .filter(|name| name.starts_with(char::is_uppercase))?;
                Some(kebab(name.split(['(', ',', ' ']).next()?))
            };
            commands.extend(body.lines().filter_map(variant));
        }
    }
    assert!(commands.len() >= 33, "only {commands:?} were found");
    let page = page("docs/configuration.md");
    commands.retain(|command| {
        let forms = [
            "`",
            "`partita ",
            "`partita admin ",
            "`partita certs ",
            "`partita lab ",
            "`partita lab experiment ",
        ];
        !forms.iter().any(|form| mentions(&page, &format!("{form}{command}")))
    });
    complain("docs/configuration.md", "commands", &commands);
}

/// What a code host makes of a heading to lead links to it.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || "_- ".contains(*c);
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(kept)
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut code = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages: Vec<PathBuf> = Vec::new();
    for folder in [root(), root().join("docs")] {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let (mut checked, mut broken) = (0, Vec::new());
    for path in &pages {
        let text = prose(&std::fs::read_to_string(path).unwrap());
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            checked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file =
                if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let leads = std::fs::read(&file).is_ok_and(|bytes| {
                let page = prose(&String::from_utf8_lossy(&bytes));
                let mut headings = page.lines().filter(|line| line.starts_with('#'));
                heading.is_empty()
                    || headings.any(|line| anchor(line.trim_start_matches('#')) == heading)
            });
            if !leads {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(checked >= 100, "only {checked} links were found");
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

/// Metrics and labels in the rules about alerts exist, or an alert would never come.
#[test]
fn alerts_are_about_metrics_that_exist() {
    let (rules, metrics) = (page("deploy/alerts.yml"), page("docs/http.md"));
    let rows: Vec<&str> = metrics.lines().filter(|line| line.starts_with("| `partita_")).collect();
    let mut checked = 0;
    for rule in rules.split("- alert: ").skip(1) {
        let expression = between(rule, "expr: ", "\n").unwrap();
        let start = expression.find("partita_").unwrap();
        let name = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let metric = expression[start..].split(name).next().unwrap();
        let row = rows.iter().find(|row| row.contains(&format!("`{metric}`")));
        let row = row.unwrap_or_else(|| panic!("docs/http.md does not have {metric}"));
        for label in rule.split("$labels.").skip(1).map(|rest| rest.split(name).next().unwrap()) {
            assert!(row.contains(&format!("`{label}`")), "{metric} has no label {label}");
            let kept = between(expression, "by (", ")").unwrap_or_default();
            assert!(kept.split(", ").any(|kept| kept == label), "{expression} drops {label}");
        }
        checked += 1;
    }
    assert!(checked >= 5, "only {checked} rules were found");
    assert!(rules.contains("$labels.partition") && rules.contains("$labels.key"));
}

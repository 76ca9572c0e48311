//! Requirements on every renderer: it shows all marks and verdicts, its output is well-formed for any text, and
//! bright cells are where the load is.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use partita_heatmap::{
    Ansi, Event, Finding, Heatmap, History, Ink, Key, MarkKind, Metric, Mode, PartitionLoad,
    Report, Shares, Style, Theme, View, ansi, page, png, svg,
};

const START: u64 = 1_790_000_000;

/// Text that would do harm as markup or as control sequences of a terminal.
const NASTY: &str = "</script><b>&\"' \u{1b}[31m \u{0} userid='\u{e4}\u{4e2d}\u{6587}'";

const KINDS: [MarkKind; 4] = [MarkKind::Split, MarkKind::Merge, MarkKind::Move, MarkKind::Transfer];

fn key(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

/// Two partitions, the upper one busy, with `marks` marks and two verdicts.
fn picture(marks: usize) -> Heatmap {
    // A minute of load, all of it on the upper half of the keys.
    let mut history = History::default();
    for second in 0..60 {
        let half = |id, start, end, rate: f32| PartitionLoad {
            id,
            leader: Some(3),
            start,
            end,
            rates: [rate, rate, rate, rate / 1000.0],
            writes: Shares::default(),
            reads: Shares::default(),
        };
        let partitions =
            vec![half(1, Key::from([]), Some(key(50)), 0.0), half(2, key(50), None, 900.0)];
        history.push(&Report { from: START + second, seconds: 1, partitions });
    }
    // Marks of all kinds, and two verdicts, all with text that must be escaped.
    for mark in 0..marks {
        let (time, kind) = (START + 2 + 4 * mark as u64, KINDS[mark % KINDS.len()]);
        history.mark(Event {
            at: time,
            key: key(50),
            kind,
            text: format!("{NASTY} number {mark}"),
        });
    }
    for class in ["MOVING_RIGHT", "<HOT&KEY>"] {
        history.find(Finding {
            partition: None,
            since: START + 20,
            until: None,
            start: key(50),
            end: None,
            class: class.to_owned(),
            evidence: format!("evidence of {class} {NASTY}"),
            advice: "ALTER TABLE t SET ('hash_buckets' = '8')".to_owned(),
        });
    }
    // The picture of exactly that minute.
    let view = View {
        table: format!("table {NASTY}"),
        metric: Metric::WriteRows,
        from: START,
        to: START + 60,
        columns_max: 60,
        rows_max: 64,
        keys: None,
        capacity: Some(1000.0),
    };
    history.view(&view, |_| NASTY.to_owned())
}

fn styles() -> impl Iterator<Item = Style> {
    let themes = [Theme::Dark, Theme::Light].into_iter();
    themes.flat_map(|theme| {
        [Mode::Absolute, Mode::Relative].map(|mode| Style { theme, mode, ..Style::default() })
    })
}

struct Decoded {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Decoded {
    fn of(file: &[u8]) -> Self {
        let mut reader = ::png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        Self { width: info.width as usize, height: info.height as usize, bytes }
    }

    fn at(&self, x: usize, y: usize) -> [u8; 3] {
        let place = (y * self.width + x) * 3;
        self.bytes[place..place + 3].try_into().unwrap()
    }
}

#[test]
fn json_holds_the_whole_picture() {
    let drawn = picture(7);
    let read: Heatmap = serde_json::from_str(&serde_json::to_string(&drawn).unwrap()).unwrap();
    assert_eq!(Heatmap { cells: drawn.cells.clone(), ..read.clone() }, drawn);
    for (rounded, exact) in read.cells.iter().flatten().zip(drawn.cells.iter().flatten()) {
        assert!((rounded - exact).abs() <= exact.abs() * 0.006, "{rounded} for {exact}");
    }
}

#[test]
fn svg_is_well_formed_and_has_every_mark_and_verdict() {
    let picture = picture(9);
    for style in styles() {
        let text = svg(&picture, style);
        let document = roxmltree::Document::parse(&text).unwrap();
        let marks = document.descendants().filter(|node| node.attribute("class") == Some("mark"));
        // The legend has one mark of each kind.
        assert_eq!(marks.count(), 9 + KINDS.len());
        for number in 0..9 {
            let ending = format!("number {number}");
            let has_title = document.descendants().any(|node| {
                node.has_tag_name("title")
                    && node.text().is_some_and(|text| text.ends_with(&ending))
            });
            assert!(has_title, "mark {number}");
        }
        let texts: Vec<_> = document
            .descendants()
            .filter(|node| node.has_tag_name("text"))
            .filter_map(|node| node.text())
            .collect();
        for line in ["MOVING_RIGHT", "<HOT&KEY>", "-> ALTER TABLE t SET ('hash_buckets' = '8')"] {
            assert!(texts.contains(&line), "{line} in {texts:#?}");
        }
        assert!(texts.iter().any(|text| text.contains("N_eff 1 of 2 partitions")), "{texts:#?}");
    }
}

#[test]
fn nothing_in_an_svg_lies_off_the_sheet() {
    let text = svg(&picture(40), Style { width: 640, map_height: 120, ..Style::default() });
    let document = roxmltree::Document::parse(&text).unwrap();
    let number = |node: roxmltree::Node<'_, '_>, name| -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    };
    let root = document.root_element();
    let sheet = (number(root, "width"), number(root, "height"));
    for node in document.descendants().filter(|node| node.has_tag_name("text")) {
        let (x, y, text) = (number(node, "x"), number(node, "y"), node.text().unwrap());
        // Only Latin letters are measured; wider ones are skipped.
        let width = text.chars().count() as f64 * number(node, "font-size") * 0.6;
        let left_x = match node.attribute("text-anchor").unwrap() {
            "start" => x,
            "middle" => x - width / 2.0,
            _ => x - width,
        };
        assert!(left_x >= 0.0 && left_x + width <= sheet.0, "{text} from {left_x}, {width} wide");
        assert!((0.0..=sheet.1).contains(&y), "{text} at {y}");
    }
}

#[test]
fn png_decodes_is_as_large_as_the_svg_and_has_every_mark() {
    let (with_marks, without_marks) = (picture(5), picture(0));
    for style in styles() {
        let sheet = Decoded::of(&png(&with_marks, style).unwrap());
        let text = svg(&with_marks, style);
        let document = roxmltree::Document::parse(&text).unwrap();
        let size =
            |name| document.root_element().attribute(name).unwrap().parse::<usize>().unwrap();
        assert_eq!((sheet.width, sheet.height), (size("width"), size("height")));
        let bare = Decoded::of(&png(&without_marks, style).unwrap());
        // The line of pixels through the middle of each mark must differ from the same line without marks.
        let map_width = sheet.width - 196 - 156;
        for mark in &with_marks.marks {
            let second = usize::try_from(mark.at - START).unwrap();
            let middle = 196 + (second * map_width + 30) / 60;
            let column =
                |sheet: &Decoded| (62..502).map(|y| sheet.at(middle, y)).collect::<Vec<_>>();
            assert_ne!(column(&sheet), column(&bare), "mark at {}", mark.at);
        }
    }
}

#[test]
fn the_busy_half_is_brighter_on_dark_and_darker_on_light() {
    let picture = picture(0);
    for style in styles() {
        let sheet = Decoded::of(&png(&picture, style).unwrap());
        let light = |y| sheet.at(250, y).into_iter().map(u32::from).sum::<u32>();
        // Keys ascend upwards: the busy partition is above.
        let (upper, lower) = (light(100), light(450));
        match style.theme {
            Theme::Dark => assert!(upper > lower + 100, "{upper} over {lower}"),
            Theme::Light => assert!(upper + 100 < lower, "{upper} over {lower}"),
        }
    }
}

/// A line without the escape sequences that set colours.
fn bare(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |mut line, piece| {
        line.push_str(piece.split_once('m').unwrap().1);
        line
    })
}

#[test]
fn a_terminal_gets_every_mark_and_verdict_within_its_width() {
    let picture = picture(8);
    for ink in [Ink::True, Ink::Indexed, Ink::Plain] {
        for width in [40, 80, 133] {
            let text = ansi(&picture, Ansi { width, height: 16, ink, ..Ansi::default() });
            let lines: Vec<String> = text.lines().map(bare).collect();
            assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:#?}");
            for line in &lines {
                let wide: usize = line
                    .chars()
                    .map(
                        |letter| {
                            if letter as u32 >= 0x1100 && letter != '\u{2580}' { 2 } else { 1 }
                        },
                    )
                    .sum();
                assert!(wide <= width, "{wide} of {width}: {line}");
            }
            assert_eq!(text.contains('\u{1b}'), ink != Ink::Plain);
            let map: String = lines[2..18].concat();
            assert!(map.contains("[MOVING_RIGHT]") && map.contains("[<HOT&KEY>]"), "{lines:#?}");
            let signs = map.matches(['S', 'M', '>', '^']).count();
            let of_classes = "[MOVING_RIGHT][<HOT&KEY>]".matches(['S', 'M', '>', '^']).count();
            // At a width of 40 characters several marks share a place.
            assert!(width < 80 || signs >= 8 + of_classes, "{signs} in {lines:#?}");
            if width >= 80 {
                assert!(lines.iter().any(|line| line.contains("hash_buckets")), "{lines:#?}");
            }
        }
    }
}

#[test]
fn a_terminal_without_colours_shows_where_load_is() {
    let text = ansi(&picture(0), Ansi { ink: Ink::Plain, height: 16, ..Ansi::default() });
    let lines: Vec<&str> = text.lines().collect();
    let dark = |line: &str| line.split('|').nth(1).unwrap().matches(['@', '%', '#']).count();
    assert!(dark(lines[3]) > 50, "{text}");
    assert_eq!(dark(lines[16]), 0, "{text}");
}

#[test]
fn the_page_needs_nothing_else_and_takes_no_text_for_markup() {
    for pictures in [Vec::new(), vec![picture(3), picture(1)]] {
        let text = page(&pictures);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert_eq!(text.matches("</script").count(), 1);
        for placeholder in
            ["/*STYLE*/", "/*DARK*/", "/*LIGHT*/", "/*SCRIPT*/", "/*DATA*/", "innerHTML"]
        {
            assert!(!text.contains(placeholder), "{placeholder}");
        }
        let (_, rest) = text.split_once("const PICTURES = ").unwrap();
        let data = rest.split_once(";\n").unwrap().0;
        let read: Vec<Heatmap> = serde_json::from_str(data).unwrap();
        assert_eq!(read.len(), pictures.len());
        assert!(read.iter().zip(&pictures).all(|(read, put)| read.marks == put.marks));
    }
}

#[test]
fn the_page_stacks_tables_and_metrics_and_pins_and_copies_what_is_under_the_pointer() {
    let text = page(&[]);
    for part in [
        // All tables or all metrics in one map, with their names on the axis.
        "all tables (",
        "<option value=\"all\">all five</option>",
        "function stacked(",
        "function paintNames(",
        // Keys without what all of them begin with.
        "function commonPrefix(",
        "function outlined(",
        // Brightness, and totals along both axes.
        "id=\"bright\" type=\"range\"",
        "function paintTotals(",
        // What is under the pointer stays, and can be copied.
        "element(\"button\", \"Copy\")",
        "element(\"button\", \"Unpin\")",
        "navigator.clipboard.writeText(",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn a_picture_of_nothing_is_drawn() {
    let view = View {
        table: "empty".to_owned(),
        metric: Metric::Busy,
        from: START,
        to: START + 60,
        columns_max: 60,
        rows_max: 64,
        keys: None,
        capacity: None,
    };
    let picture = History::default().view(&view, |_| String::new());
    roxmltree::Document::parse(&svg(&picture, Style::default())).unwrap();
    assert!(Decoded::of(&png(&picture, Style::default()).unwrap()).width > 0);
    assert!(ansi(&picture, Ansi { ink: Ink::Plain, ..Ansi::default() }).contains('?'));
}

//! Prices from two sources with different columns, in one table, in two, and under common names: the sparse schema of
//! InfluxDB's guide. The first eight records are the guide's.

use super::figures::{Measured, judged_if};
use super::model::{
    Advice, Cell, Data, Demonstration, Design, MILLI_NS, Question, Row, Table, float,
};
use crate::civil::SECOND_NS;
use crate::claim::Claim;

/// 2023-01-01 12:00:00 UTC.
const FIRST_NS: i64 = 1_672_574_400 * SECOND_NS;
const HOUR_NS: i64 = 3_600_000 * MILLI_NS;
/// Price at source 1; cost and volume at source 2; hour by hour.
const FIRST: [(f64, f64, i64); 4] = [
    (16_588.458_65, 16_159.580_6, 16_749_450_200),
    (16_559.498_71, 16_131.369_4, 16_829_683_245),
    (16_577.466_67, 16_148.872_7, 17_151_722_208),
    (16_591.369_98, 16_162.416_7, 17_311_854_919),
];
/// Coins beside bitcoin.
const COINS: u64 = 49;
const SPARSE_COLUMNS: [&str; 9] =
    ["time", "source", "src", "code", "currency", "crypto", "price", "cost", "volume"];
const PRICE_COLUMNS: [&str; 5] = ["time", "source", "code", "crypto", "price"];
const COST_COLUMNS: [&str; 6] = ["time", "src", "currency", "crypto", "cost", "volume"];
const COLUMNS: [&str; 6] = ["time", "source", "currency", "crypto", "price", "volume"];

pub(super) const DEMONSTRATION: Demonstration = Demonstration {
    name: "crypto",
    title: "two sources with different columns: one sparse table, two tables, or common names",
    document: "InfluxDB 3, schema design recommendations",
    says: &[
        "Points with different tags and fields in one measurement make a sparse schema.",
        "Sparse schemas make the query engine evaluate many nulls: an overhead to storing and querying.",
    ],
    rows: 200_000,
    parts: 1,
    compacts: true,
    record,
    designs,
    questions,
    judge,
};

/// Time, source (1 or 2), coin, price, volume (of source 2).
fn record(data: &Data, number: u64) -> Vec<Cell> {
    let (pair, is_second) = (number / 2, number % 2 == 1);
    let first =
        usize::try_from(pair).ok().and_then(|pair| FIRST.get(pair).map(|line| (pair, line)));
    let (hour, coin, prices, volume) = match first {
        Some((hour, (price, cost, volume))) => {
            (hour as u64, "bitcoin".to_owned(), [*price, *cost], *volume)
        }
        None => {
            let position = pair - FIRST.len() as u64;
            let mut random = data.random(pair);
            let price = float(100 + random.below(500_000)) / 100.0;
            let coin = format!("coin-{:02}", 1 + position % COINS);
            let volume = random.below(20_000_000_000).cast_signed();
            (position / COINS, coin, [price, price - 1.0], volume)
        }
    };
    vec![
        Cell::Time(FIRST_NS + hour.cast_signed() * HOUR_NS),
        Cell::Int(if is_second { 2 } else { 1 }),
        Cell::Text(coin),
        Cell::Float(prices[usize::from(is_second)]),
        if is_second { Cell::Int(volume) } else { Cell::Null },
    ]
}

/// A record by its parts.
struct Quote {
    is_second: bool,
    time: Cell,
    coin: Cell,
    price: Cell,
    volume: Cell,
}

impl Quote {
    fn of(cells: Vec<Cell>) -> Option<Self> {
        let [time, source, coin, price, volume] = <[Cell; 5]>::try_from(cells).ok()?;
        Some(Self { is_second: source == Cell::Int(2), time, coin, price, volume })
    }
}

fn sparse(cells: Vec<Cell>) -> Vec<Row> {
    let Some(Quote { is_second, time, coin, price, volume }) = Quote::of(cells) else {
        return Vec::new();
    };
    let null = || Cell::Null;
    Row::only(if is_second {
        let currency = Cell::text("EUR");
        vec![time, null(), Cell::text("2"), null(), currency, coin, null(), price, volume]
    } else {
        let code = Cell::text("USD");
        vec![time, Cell::text("src1"), null(), code, null(), coin, price, null(), null()]
    })
}

fn apart(cells: Vec<Cell>) -> Vec<Row> {
    let Some(Quote { is_second, time, coin, price, volume }) = Quote::of(cells) else {
        return Vec::new();
    };
    vec![if is_second {
        let cells = vec![time, Cell::text("2"), Cell::text("EUR"), coin, price, volume];
        Row { table: 1, cells }
    } else {
        let cells = vec![time, Cell::text("src1"), Cell::text("USD"), coin, price];
        Row { table: 0, cells }
    }]
}

fn common(cells: Vec<Cell>) -> Vec<Row> {
    let Some(Quote { is_second, time, coin, price, volume }) = Quote::of(cells) else {
        return Vec::new();
    };
    let (source, currency) = if is_second { ("2", "EUR") } else { ("src1", "USD") };
    Row::only(vec![time, Cell::text(source), Cell::text(currency), coin, price, volume])
}

fn designs() -> Vec<Design> {
    let mixed = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, source STRING, src STRING, code STRING, currency STRING, crypto STRING, price DOUBLE, cost DOUBLE, volume BIGINT, PRIMARY KEY (source, src, code, currency, crypto))";
    let prices = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, source STRING, code STRING, crypto STRING, price DOUBLE, PRIMARY KEY (source, code, crypto))";
    let costs = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, src STRING, currency STRING, crypto STRING, cost DOUBLE, volume BIGINT, PRIMARY KEY (src, currency, crypto))";
    let quotes = "CREATE TABLE {} (time TIMESTAMP(3) TIME INDEX, source STRING, currency STRING, crypto STRING, price DOUBLE, volume BIGINT, PRIMARY KEY (source, currency, crypto))";
    vec![
        Design {
            name: "sparse".to_owned(),
            description: "one table with the columns of both sources",
            advice: Advice::Against,
            tables: vec![Table::new("crypto", mixed, &SPARSE_COLUMNS)],
            rows: sparse,
            facts: Vec::new(),
        },
        Design {
            name: "two tables".to_owned(),
            description: "a table for each source",
            advice: Advice::For,
            tables: vec![
                Table::new("crypto_prices", prices, &PRICE_COLUMNS),
                Table::new("crypto_costs", costs, &COST_COLUMNS),
            ],
            rows: apart,
            facts: Vec::new(),
        },
        Design {
            name: "common names".to_owned(),
            description: "one table in which both sources use the same columns",
            advice: Advice::For,
            tables: vec![Table::new("crypto_quotes", quotes, &COLUMNS)],
            rows: common,
            facts: Vec::new(),
        },
    ]
}

/// Query of the number of cells, the time apart, and of the nulls among them.
fn nulls(table: &str, columns: &[&str]) -> String {
    let counts: Vec<String> =
        columns[1..].iter().map(|column| format!("count({column})")).collect();
    let cells = counts.len();
    format!("SELECT count(*) * {cells}, count(*) * {cells} - {} FROM {table}", counts.join(" - "))
}

fn questions(_: &Data) -> Vec<Question> {
    let question = |name: &str, sql: [&str; 3]| Question::alike(name, sql.map(str::to_owned));
    vec![
        question(
            "one coin at source 2",
            [
                "SELECT count(cost), max(cost), max(volume) FROM crypto WHERE src = '2' AND crypto = 'coin-01'",
                "SELECT count(cost), max(cost), max(volume) FROM crypto_costs WHERE crypto = 'coin-01'",
                "SELECT count(price), max(price), max(volume) FROM crypto_quotes WHERE source = '2' AND crypto = 'coin-01'",
            ],
        ),
        question(
            "each coin at source 1",
            [
                "SELECT crypto, count(price), max(price) FROM crypto WHERE source = 'src1' GROUP BY crypto",
                "SELECT crypto, count(price), max(price) FROM crypto_prices GROUP BY crypto",
                "SELECT crypto, count(price), max(price) FROM crypto_quotes WHERE source = 'src1' GROUP BY crypto",
            ],
        ),
        question(
            "largest spread of the sources",
            [
                "SELECT count(*), max(p.price - c.cost) FROM crypto p JOIN crypto c ON c.time = p.time AND c.crypto = p.crypto WHERE p.source = 'src1' AND c.src = '2'",
                "SELECT count(*), max(p.price - c.cost) FROM crypto_prices p JOIN crypto_costs c ON c.time = p.time AND c.crypto = p.crypto",
                "SELECT count(*), max(p.price - c.price) FROM crypto_quotes p JOIN crypto_quotes c ON c.time = p.time AND c.crypto = p.crypto WHERE p.source = 'src1' AND c.source = '2'",
            ],
        ),
        Question::unlike(
            NULLS,
            [
                nulls("crypto", &SPARSE_COLUMNS),
                nulls("crypto_costs", &COST_COLUMNS),
                nulls("crypto_quotes", &COLUMNS),
            ],
        ),
    ]
}

/// Name of the question of how many cells are null.
const NULLS: &str = "cells, and nulls";

fn judge(_: &Data, measured: &Measured) -> Vec<Claim> {
    let share = |design| {
        let reply = measured.asked(NULLS, design)?;
        Some(reply.number(1)? / reply.number(0)?)
    };
    let mut claims = vec![judged_if(
        "of the sparse table 44 % of the cells are null, of common names a tenth",
        [share("sparse"), share("common names")],
        |[sparse, common]| {
            let measured = format!("{:.1} %, {:.1} %", sparse * 100.0, common * 100.0);
            (measured, (sparse - 0.4375).abs() < 0.01 && common < 0.11)
        },
    )];
    for design in ["two tables", "common names"] {
        let pair = ["sparse", design];
        claims.push(measured.smaller(&format!("{design} need less disk space"), pair));
        claims.push(measured.loads_faster(&format!("{design} are loaded faster"), pair));
        claims.push(measured.leaner(&format!("{design} need less memory"), pair));
        for question in
            ["one coin at source 2", "each coin at source 1", "largest spread of the sources"]
        {
            claims.push(measured.faster(
                &format!("{design} are faster: {question}"),
                question,
                pair,
            ));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_eight_records_are_those_of_the_guide() {
        let data = Data { rows: 8, seed: 3 };
        let rows: Vec<Vec<Cell>> =
            (0..8).map(|number| sparse(record(&data, number)).remove(0).cells).collect();
        let hour = |hour: i64| Cell::Time(FIRST_NS + hour * HOUR_NS);
        let null = || Cell::Null;
        assert_eq!(
            rows[0],
            [
                hour(0),
                Cell::text("src1"),
                null(),
                Cell::text("USD"),
                null(),
                Cell::text("bitcoin"),
                Cell::Float(16_588.458_65),
                null(),
                null()
            ]
        );
        assert_eq!(
            rows[7],
            [
                hour(3),
                null(),
                Cell::text("2"),
                null(),
                Cell::text("EUR"),
                Cell::text("bitcoin"),
                null(),
                Cell::Float(16_162.416_7),
                Cell::Int(17_311_854_919)
            ]
        );
        let nulls = rows.iter().flatten().filter(|cell| **cell == Cell::Null).count();
        assert_eq!(nulls, 28, "of 64");
    }

    #[test]
    fn both_sources_have_each_coin_each_hour() {
        let data = Data { rows: 2_000, seed: 3 };
        let keys: std::collections::BTreeSet<String> =
            (0..data.rows).map(|number| format!("{:?}", &record(&data, number)[..3])).collect();
        assert_eq!(keys.len(), 2_000, "no record replaces another");
        let (even, odd) = (record(&data, 500), record(&data, 501));
        assert_eq!((&even[0], &even[2]), (&odd[0], &odd[2]));
        assert_ne!(even[1], odd[1]);
    }

    #[test]
    fn nulls_are_counted_by_columns() {
        assert_eq!(
            nulls("t", &["time", "a", "b"]),
            "SELECT count(*) * 2, count(*) * 2 - count(a) - count(b) FROM t"
        );
    }
}

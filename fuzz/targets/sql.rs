//! SQL: the split into statements, the scanner, the parser, and what becomes of statements without a planner.

#![no_main]

use libfuzzer_sys::fuzz_target;
use partita_fuzz::TABLE;
use partita_sql::{Statement, StatementTime};
use partita_worker::Zone;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(statements) = partita_sql::parse(text) else { return };
    for statement in statements {
        match statement {
            Statement::Insert(insert) => {
                let Ok(target) = insert.target(&TABLE.schema) else { continue };
                let time = StatementTime { now: 0, zone: Zone::UTC };
                drop(insert.scan(&target, time, None));
                drop(insert.parameter_types(&target));
                drop(insert.values_query(&target));
            }
            Statement::CreateTable(create) => drop(create.to_new_table("public")),
            Statement::AlterTable(alter) => drop(alter.to_changes(&TABLE)),
            Statement::Execute(execute) => {
                for parameter in &execute.parameters {
                    drop(partita_sql::literal::scalar(parameter));
                }
            }
            _ => {}
        }
    }
});

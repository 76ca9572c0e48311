//! Aggregates over ordered sets that the planner lacks, as functions of the array of their values.
//!
//! ```text
//!   percentile_disc(p) WITHIN GROUP (ORDER BY x)     sorted_at_fraction(array_agg(x ORDER BY x), p)
//!   mode() WITHIN GROUP (ORDER BY x)                 sorted_most_frequent(array_agg(x ORDER BY x))
//! ```

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, Ident,
    ObjectName,
};
use partita_worker::{AT_FRACTION, MOST_FREQUENT};

use super::json::name_of;
use super::rewritten::call;

/// A call of one of the aggregates, as a function of an array.
pub(super) fn over_array(function: &Function) -> Option<Expr> {
    let [key] = function.within_group.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let (name, fraction) = match (name_of(function)?.as_str(), list.args.as_slice()) {
        ("percentile_disc", [FunctionArg::Unnamed(FunctionArgExpr::Expr(fraction))])
            if !matches!(fraction, Expr::Array(_)) =>
        {
            (AT_FRACTION, Some(fraction.clone()))
        }
        ("mode", []) => (MOST_FREQUENT, None),
        _ => return None,
    };
    let value = FunctionArg::Unnamed(FunctionArgExpr::Expr(key.expr.clone()));
    let mut array = function.clone();
    array.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let keys = std::mem::take(&mut array.within_group);
    if let FunctionArguments::List(list) = &mut array.args {
        list.args = vec![value];
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    let mut arguments = vec![Expr::Function(array)];
    arguments.extend(fraction);
    Some(call(name, arguments))
}

#[cfg(test)]
mod tests {
    use crate::adapted::adapt;
    use crate::parser::parse;
    use crate::statement::Statement;

    #[test]
    fn ordered_sets_are_arrays() {
        for (expression, expected) in [
            (
                "percentile_disc(0.5) WITHIN GROUP (ORDER BY a DESC)",
                "sorted_at_fraction(array_agg(a ORDER BY a DESC), 0.5)",
            ),
            (
                "mode() WITHIN GROUP (ORDER BY a) FILTER (WHERE b)",
                "sorted_most_frequent(array_agg(a ORDER BY a) FILTER (WHERE b))",
            ),
            (
                "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
                "percentile_cont(0.5) WITHIN GROUP (ORDER BY a)",
            ),
        ] {
            let parsed = parse(&format!("SELECT {expression} FROM t")).unwrap().pop();
            let Some(Statement::Query(query)) = parsed else { panic!("{expression}") };
            let mut statement = query.statement;
            adapt(&mut statement).unwrap();
            assert_eq!(statement.to_string(), format!("SELECT {expected} FROM t"));
        }
    }
}

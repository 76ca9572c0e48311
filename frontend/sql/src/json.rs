//! JSON in the planner's syntax: casts, aggregates and functions of sets.
//!
//! ```text
//!   s::JSONB, JSONB 's'               jsonb_in(s)
//!   json_agg(x ORDER BY y)            json_gathered(array_agg(x ORDER BY y))
//!   jsonb_object_agg(k, v)            jsonb_gathered_object(array_agg(k), array_agg(v))
//!   SELECT json_array_elements(j)     SELECT json_in(unnest(json_array_elements(j)))
//! ```
//!
//! The planner does not know the types, and spreads arrays over rows.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, TypedString, Value,
};
use partita_worker::json::{GATHERED, GATHERED_OBJECT, IN_JSON, IN_JSONB};

use super::rewritten::call;
use super::shown_names::folded;

/// A cast to one of the types.
pub(super) fn cast(operand: &Expr, data_type: &DataType) -> Option<Expr> {
    let name = match data_type {
        DataType::JSON => IN_JSON,
        DataType::JSONB => IN_JSONB,
        _ => return None,
    };
    // A parameter is a text.
    let is_parameter =
        matches!(operand, Expr::Value(value) if matches!(value.value, Value::Placeholder(_)));
    let operand = operand.clone();
    let text = match is_parameter {
        true => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(operand),
            data_type: DataType::Text,
            array: false,
            format: None,
        },
        false => operand,
    };
    Some(call(name, vec![text]))
}

/// A text behind the name of one of the types.
pub(super) fn typed(text: &TypedString) -> Option<Expr> {
    cast(&Expr::Value(text.value.clone()), &text.data_type)
}

/// A call of an aggregate that makes JSON, as a function of the array of its values.
pub(super) fn gathered(function: &Function) -> Option<Expr> {
    let (name, arguments) = match name_of(function)?.as_str() {
        "json_agg" => (GATHERED.to_owned(), 1),
        "jsonb_agg" => (binary(GATHERED), 1),
        "json_object_agg" => (GATHERED_OBJECT.to_owned(), 2),
        "jsonb_object_agg" => (binary(GATHERED_OBJECT), 2),
        _ => return None,
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    if list.args.len() != arguments {
        return None;
    }
    // Each argument is collected on its own, over the same rows in the same order.
    let arrays = list.args.iter().map(|argument| {
        let mut array = function.clone();
        array.name = ObjectName::from(vec![Ident::new("array_agg")]);
        if let FunctionArguments::List(list) = &mut array.args {
            list.args = vec![argument.clone()];
        }
        Expr::Function(array)
    });
    Some(call(&name, arrays.collect()))
}

/// A function of sets in a select list.
pub(super) fn rows(expr: &Expr) -> Option<Expr> {
    let Expr::Function(function) = expr else { return None };
    let marks = match name_of(function)?.as_str() {
        "json_array_elements" => Some(IN_JSON),
        "jsonb_array_elements" => Some(IN_JSONB),
        "json_object_keys"
        | "jsonb_object_keys"
        | "json_array_elements_text"
        | "jsonb_array_elements_text" => None,
        _ => return None,
    };
    // Its array has a name of its own, which is not read again as a function of sets.
    let mut array = function.clone();
    let list = format!("{}_list", name_of(function)?);
    array.name = ObjectName::from(vec![Ident::new(list)]);
    let rows = call("unnest", vec![Expr::Function(array)]);
    Some(match marks {
        Some(name) => call(name, vec![rows]),
        None => rows,
    })
}

/// The name of the function for JSONB.
fn binary(name: &str) -> String {
    name.replacen("json", "jsonb", 1)
}

/// The name of a function that is called without a schema, and with one value in each argument.
pub(super) fn name_of(function: &Function) -> Option<String> {
    let [name] = function.name.0.as_slice() else { return None };
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_value =
        |argument: &FunctionArg| matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    if !list.args.iter().all(is_value) {
        return None;
    }
    name.as_ident().map(folded)
}

#[cfg(test)]
mod tests {
    use crate::adapted::adapt;
    use crate::parser::parse;
    use crate::statement::Statement;

    fn adapted(expression: &str) -> String {
        let parsed = parse(&format!("SELECT {expression}")).unwrap().pop();
        let Some(Statement::Query(query)) = parsed else { panic!("{expression}") };
        let mut statement = query.statement;
        adapt(&mut statement).unwrap();
        statement.to_string().replacen("SELECT ", "", 1)
    }

    #[test]
    fn casts_aggregates_and_sets_are_calls() {
        for (expression, expected) in [
            ("'{}'::json", "json_in('{}')"),
            ("CAST(a AS JSONB)", "jsonb_in(a)"),
            ("jsonb '[]'", "jsonb_in('[]')"),
            ("$1::jsonb", "jsonb_in(CAST($1 AS TEXT))"),
            ("json_agg(a ORDER BY b)", "json_gathered(array_agg(a ORDER BY b))"),
            ("jsonb_object_agg(k, v)", "jsonb_gathered_object(array_agg(k), array_agg(v))"),
            ("json_object_keys(a)", "unnest(json_object_keys_list(a))"),
            ("jsonb_array_elements(a)", "jsonb_in(unnest(jsonb_array_elements_list(a)))"),
        ] {
            assert_eq!(adapted(expression), expected, "{expression}");
        }
    }
}

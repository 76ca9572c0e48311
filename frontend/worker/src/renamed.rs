//! Functions of DataFusion under the name of another one, which they replace.
//!
//! An alias would not do: a session that is made from another one registers all functions again, in no order, and the
//! function whose name it is takes it back.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::functions::builtin;

/// Name, other names, and the function of DataFusion that they stand for.
const RENAMED: [(&str, &str, &str); 2] = [
    // DataFusion's `array_remove` and `array_replace` change the first match only.
    ("array_remove", "list_remove", "array_remove_all"),
    ("array_replace", "list_replace", "array_replace_all"),
];

/// The functions, with all names of those that they replace.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    RENAMED.into_iter().filter_map(|(name, alias, inner)| {
        let inner = Arc::clone(builtin(inner)?);
        Some(ScalarUDF::from(Renamed { inner, name, aliases: vec![alias.to_owned()] }))
    })
}

/// A function under another name.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Renamed {
    inner: Arc<ScalarUDF>,
    name: &'static str,
    aliases: Vec<String>,
}

impl ScalarUDFImpl for Renamed {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.inner().return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.inner().invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::functions::REGISTRY;

    #[test]
    fn each_name_belongs_to_one_function() {
        let mut disputed = BTreeSet::new();
        for function in REGISTRY.scalar.values() {
            let names = function.aliases().iter().map(String::as_str);
            for name in names.chain([function.name()]) {
                if !Arc::ptr_eq(&REGISTRY.scalar[name], function) {
                    disputed.insert(format!("{name} of {}", function.name()));
                }
            }
        }
        assert_eq!(disputed, BTreeSet::new(), "whose names these are depends on the order");
    }
}

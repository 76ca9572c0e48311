//! Methods of a function that wraps another: only its evaluation differs from the inner function's.

/// Writes the methods of [`datafusion::logical_expr::ScalarUDFImpl`], except evaluation and simplification, that a
/// wrapper with `fn inner(&self)` delegates to the inner function.
macro_rules! like_inner {
    () => {
        fn name(&self) -> &str {
            self.inner().name()
        }

        fn aliases(&self) -> &[String] {
            self.inner().aliases()
        }

        fn schema_name(
            &self,
            args: &[datafusion::logical_expr::Expr],
        ) -> datafusion::error::Result<String> {
            self.inner().schema_name(args)
        }

        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.inner().signature()
        }

        fn return_type(
            &self,
            types: &[arrow::datatypes::DataType],
        ) -> datafusion::error::Result<arrow::datatypes::DataType> {
            self.inner().return_type(types)
        }

        fn return_field_from_args(
            &self,
            args: datafusion::logical_expr::ReturnFieldArgs<'_>,
        ) -> datafusion::error::Result<arrow::datatypes::FieldRef> {
            self.inner().return_field_from_args(args)
        }

        fn is_strict(&self) -> bool {
            self.inner().is_strict()
        }

        fn preimage(
            &self,
            args: &[datafusion::logical_expr::Expr],
            literal: &datafusion::logical_expr::Expr,
            info: &datafusion::logical_expr::simplify::SimplifyContext,
        ) -> datafusion::error::Result<datafusion::logical_expr::preimage::PreimageResult> {
            self.inner().preimage(args, literal, info)
        }

        fn evaluate_bounds(
            &self,
            inputs: &[&datafusion::logical_expr::interval_arithmetic::Interval],
        ) -> datafusion::error::Result<datafusion::logical_expr::interval_arithmetic::Interval> {
            self.inner().evaluate_bounds(inputs)
        }

        fn propagate_constraints(
            &self,
            interval: &datafusion::logical_expr::interval_arithmetic::Interval,
            inputs: &[&datafusion::logical_expr::interval_arithmetic::Interval],
        ) -> datafusion::error::Result<
            Option<Vec<datafusion::logical_expr::interval_arithmetic::Interval>>,
        > {
            self.inner().propagate_constraints(interval, inputs)
        }

        fn output_ordering(
            &self,
            inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> datafusion::error::Result<datafusion::logical_expr::sort_properties::SortProperties> {
            self.inner().output_ordering(inputs)
        }

        fn preserves_lex_ordering(
            &self,
            inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> datafusion::error::Result<bool> {
            self.inner().preserves_lex_ordering(inputs)
        }

        fn strictly_order_preserving(
            &self,
            inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> datafusion::error::Result<bool> {
            self.inner().strictly_order_preserving(inputs)
        }

        fn coerce_types(
            &self,
            types: &[arrow::datatypes::DataType],
        ) -> datafusion::error::Result<Vec<arrow::datatypes::DataType>> {
            self.inner().coerce_types(types)
        }

        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.inner().documentation()
        }

        fn placement(
            &self,
            args: &[datafusion::logical_expr::ExpressionPlacement],
        ) -> datafusion::logical_expr::ExpressionPlacement {
            self.inner().placement(args)
        }
    };
}

pub(crate) use like_inner;

//! Numeric functions of PostgreSQL that DataFusion lacks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::error::SqlError;
use crate::number_text::TO_NUMBER;
use crate::plain::{Plain, all, doubles, is_number, is_whole, of_double, wholes};

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [
        &WIDTH_BUCKET,
        &SIND,
        &COSD,
        &TAND,
        &COTD,
        &ASIND,
        &ACOSD,
        &ATAND,
        &ATAN2D,
        &SCALE,
        &MIN_SCALE,
        &NUM_NULLS,
        &NUM_NONNULLS,
        &TO_NUMBER,
        &FACTORIAL,
        &CEILING,
    ]
    .into_iter()
    .map(Plain::function)
}

fn out_of_range() -> SqlError {
    SqlError::new("22003", "input is out of range")
}

fn double(_: &[DataType]) -> DataType {
    DataType::Float64
}

fn one_double(types: &[DataType]) -> Option<Vec<DataType>> {
    all(types, 1, is_number, &DataType::Float64)
}

/// Types of the arguments of `width_bucket`: bounds and a count, or an array of thresholds.
fn bucket_types(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [value, low, high, count]
            if [value, low, high].iter().all(|data_type| is_number(data_type))
                && is_whole(count) =>
        {
            let mut types = vec![DataType::Float64; 3];
            types.push(DataType::Int64);
            Some(types)
        }
        [value, DataType::List(item)] if is_number(value) && is_number(item.data_type()) => {
            let item = Arc::new(item.as_ref().clone().with_data_type(DataType::Float64));
            Some(vec![DataType::Float64, DataType::List(item)])
        }
        _ => None,
    }
}

static WIDTH_BUCKET: Plain = Plain {
    name: "width_bucket",
    takes: bucket_types,
    gives: |_| DataType::Int32,
    run: |arguments| {
        let values = doubles(&arguments[0])?;
        if let [_, bounds] = arguments {
            let bounds = bounds.as_list::<i32>();
            let bucket = |row: usize| {
                if values.is_null(row) || bounds.is_null(row) {
                    return Ok(None);
                }
                let bounds = doubles(&bounds.value(row))?;
                if bounds.null_count() > 0 {
                    let message = "thresholds array must not contain NULLs";
                    return Err(SqlError::new("22004", message).into());
                }
                let value = values.value(row);
                let rank = bounds
                    .values()
                    .partition_point(|bound| bound.total_cmp(&value).is_le() || *bound == value);
                Ok(i32::try_from(rank).ok())
            };
            return Ok(Arc::new((0..values.len()).map(bucket).collect::<Result<Int32Array>>()?));
        }
        let (lows, highs, counts) =
            (doubles(&arguments[1])?, doubles(&arguments[2])?, wholes(&arguments[3])?);
        let bucket = |row: usize| {
            if arguments.iter().any(|argument| argument.is_null(row)) {
                return Ok(None);
            }
            let (value, low, high) = (values.value(row), lows.value(row), highs.value(row));
            width_bucket(value, low, high, counts.value(row)).map(Some)
        };
        Ok(Arc::new((0..values.len()).map(bucket).collect::<Result<Int32Array, SqlError>>()?))
    },
};

/// Number of the equal-width bucket of a value; 0 below the range, `count + 1` above it.
fn width_bucket(value: f64, low: f64, high: f64, count: i64) -> Result<i32, SqlError> {
    let invalid = |message: &str| SqlError::new("2201G", message);
    // Arguments that PostgreSQL refuses.
    if count <= 0 {
        return Err(invalid("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(invalid("lower and upper bounds must be finite"));
    }
    let overflow_bucket = count.checked_add(1).and_then(|count| i32::try_from(count).ok());
    let overflow_bucket =
        overflow_bucket.ok_or_else(|| SqlError::new("22003", "integer out of range"))?;
    // The bounds may be descending; the low one is inclusive, the high one exclusive.
    let (is_below, is_above) = match low.total_cmp(&high) {
        std::cmp::Ordering::Less => (value < low, value >= high),
        std::cmp::Ordering::Greater => (value > low, value <= high),
        std::cmp::Ordering::Equal => {
            return Err(invalid("lower bound cannot equal upper bound"));
        }
    };
    if is_below {
        return Ok(0);
    }
    if is_above {
        return Ok(overflow_bucket);
    }
    #[expect(clippy::cast_precision_loss, reason = "fits 32 bits")]
    let share = count as f64 * ((value - low) / (high - low));
    #[expect(clippy::cast_possible_truncation, reason = "at most the count")]
    let bucket = share.floor() as i32;
    Ok((bucket + 1).min(overflow_bucket - 1))
}

static SIND: Plain = Plain {
    name: "sind",
    takes: one_double,
    gives: double,
    run: |arguments| of_double(&arguments[0], |degrees| of_degrees(degrees, sind)),
};

static COSD: Plain = Plain {
    name: "cosd",
    takes: one_double,
    gives: double,
    run: |arguments| of_double(&arguments[0], |degrees| of_degrees(degrees, cosd)),
};

static TAND: Plain = Plain {
    name: "tand",
    takes: one_double,
    gives: double,
    run: |arguments| of_double(&arguments[0], |degrees| of_degrees(degrees, tand)),
};

static COTD: Plain = Plain {
    name: "cotd",
    takes: one_double,
    gives: double,
    run: |arguments| {
        of_double(&arguments[0], |degrees| {
            of_degrees(degrees, |degrees| plus_zero(1.0 / tand(degrees)))
        })
    },
};

fn of_degrees(degrees: f64, compute: fn(f64) -> f64) -> Result<f64, SqlError> {
    if degrees.is_infinite() { Err(out_of_range()) } else { Ok(compute(degrees)) }
}

/// Makes -0 positive.
fn plus_zero(value: f64) -> f64 {
    value + 0.0
}

/// The sine of up to 30 degrees, which is exact for 0 and 30.
fn sine_to_30(degrees: f64) -> f64 {
    degrees.to_radians().sin() / 30_f64.to_radians().sin() / 2.0
}

/// The cosine of up to 60 degrees, which is exact for 0 and 60.
fn cosine_to_60(degrees: f64) -> f64 {
    1.0 - (1.0 - degrees.to_radians().cos()) / (1.0 - 60_f64.to_radians().cos()) / 2.0
}

fn sine_to_90(degrees: f64) -> f64 {
    if degrees <= 30.0 { sine_to_30(degrees) } else { cosine_to_60(90.0 - degrees) }
}

fn cosine_to_90(degrees: f64) -> f64 {
    if degrees <= 60.0 { cosine_to_60(degrees) } else { sine_to_30(90.0 - degrees) }
}

fn sind(degrees: f64) -> f64 {
    let (mut sign, mut rest) = (1.0, degrees % 360.0);
    if rest < 0.0 {
        (sign, rest) = (-sign, -rest);
    }
    if rest > 180.0 {
        (sign, rest) = (-sign, 360.0 - rest);
    }
    if rest > 90.0 {
        rest = 180.0 - rest;
    }
    plus_zero(sign * sine_to_90(rest))
}

fn cosd(degrees: f64) -> f64 {
    let (mut sign, mut rest) = (1.0, (degrees % 360.0).abs());
    if rest > 180.0 {
        rest = 360.0 - rest;
    }
    if rest > 90.0 {
        (sign, rest) = (-sign, 180.0 - rest);
    }
    plus_zero(sign * cosine_to_90(rest))
}

fn tand(degrees: f64) -> f64 {
    let (mut sign, mut rest) = (1.0, degrees % 360.0);
    if rest < 0.0 {
        (sign, rest) = (-sign, -rest);
    }
    if rest > 180.0 {
        (sign, rest) = (-sign, 360.0 - rest);
    }
    if rest > 90.0 {
        (sign, rest) = (-sign, 180.0 - rest);
    }
    let tangent_of_45 = sine_to_90(45.0) / cosine_to_90(45.0);
    plus_zero(sign * (sine_to_90(rest) / cosine_to_90(rest) / tangent_of_45))
}

fn within_one(value: f64, compute: fn(f64) -> f64) -> Result<f64, SqlError> {
    if value.abs() > 1.0 { Err(out_of_range()) } else { Ok(compute(value)) }
}

static ASIND: Plain = Plain {
    name: "asind",
    takes: one_double,
    gives: double,
    run: |arguments| {
        of_double(&arguments[0], |value| within_one(value, |sine| asind(sine.abs()).copysign(sine)))
    },
};

static ACOSD: Plain = Plain {
    name: "acosd",
    takes: one_double,
    gives: double,
    run: |arguments| {
        of_double(&arguments[0], |value| {
            within_one(
                value,
                |cosine| if cosine >= 0.0 { acosd(cosine) } else { 90.0 + asind(-cosine) },
            )
        })
    },
};

/// Inverse sine in degrees, from 0 to 1.
fn asind(sine: f64) -> f64 {
    if sine <= 0.5 {
        sine.asin() / 0.5_f64.asin() * 30.0
    } else {
        90.0 - sine.acos() / 0.5_f64.acos() * 60.0
    }
}

/// Inverse cosine in degrees, from 0 to 1.
fn acosd(cosine: f64) -> f64 {
    if cosine <= 0.5 {
        90.0 - cosine.asin() / 0.5_f64.asin() * 30.0
    } else {
        cosine.acos() / 0.5_f64.acos() * 60.0
    }
}

static ATAND: Plain = Plain {
    name: "atand",
    takes: one_double,
    gives: double,
    run: |arguments| of_double(&arguments[0], |value| Ok(value.atan() / 1_f64.atan() * 45.0)),
};

static ATAN2D: Plain = Plain {
    name: "atan2d",
    takes: |types| all(types, 2, is_number, &DataType::Float64),
    gives: double,
    run: |arguments| {
        let (ys, xs) = (doubles(&arguments[0])?, doubles(&arguments[1])?);
        let degrees = |y: f64, x: f64| y.atan2(x) / 1_f64.atan() * 45.0;
        Ok(Arc::new(arrow::compute::binary::<_, _, _, arrow::datatypes::Float64Type>(
            &ys, &xs, degrees,
        )?))
    },
};

/// Types of exact numbers, as decimals.
fn decimal_type(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [data_type @ DataType::Decimal128(..)] => Some(vec![data_type.clone()]),
        [data_type] if is_whole(data_type) => Some(vec![DataType::Decimal128(20, 0)]),
        // A literal with a point.
        [DataType::Float64] => Some(vec![DataType::Float64]),
        _ => None,
    }
}

/// Digits after the point of each number, with or without trailing zeros.
fn scales(numbers: &ArrayRef, least: bool) -> Result<ArrayRef> {
    let scale_of = |text: &str| {
        let part = text.split_once('.').map_or("", |(_, part)| part);
        let part = if least { part.trim_end_matches('0') } else { part };
        i32::try_from(part.len()).unwrap_or(i32::MAX)
    };
    let scales: Int32Array = match numbers.data_type() {
        DataType::Decimal128(..) => {
            let decimals = numbers.as_primitive::<Decimal128Type>();
            (0..decimals.len())
                .map(|row| decimals.is_valid(row).then(|| scale_of(&decimals.value_as_string(row))))
                .collect()
        }
        _ => doubles(numbers)?
            .iter()
            .map(|number| number.map(|number| scale_of(&number.to_string())))
            .collect(),
    };
    Ok(Arc::new(scales))
}

static SCALE: Plain = Plain {
    name: "scale",
    takes: decimal_type,
    gives: |_| DataType::Int32,
    run: |arguments| scales(&arguments[0], false),
};

static MIN_SCALE: Plain = Plain {
    name: "min_scale",
    takes: decimal_type,
    gives: |_| DataType::Int32,
    run: |arguments| scales(&arguments[0], true),
};

fn any(types: &[DataType]) -> Option<Vec<DataType>> {
    (!types.is_empty()).then(|| types.to_vec())
}

/// Number of arguments in each row that are NULL, or that are not.
fn count(arguments: &[ArrayRef], nulls: bool) -> ArrayRef {
    let rows = arguments.first().map_or(0, |argument| argument.len());
    let masks: Vec<_> = arguments.iter().map(|argument| argument.logical_nulls()).collect();
    let count = |row: usize| {
        let is_null = |mask: &&Option<arrow::buffer::NullBuffer>| {
            mask.as_ref().is_some_and(|mask| mask.is_null(row)) == nulls
        };
        i32::try_from(masks.iter().filter(is_null).count()).unwrap_or(i32::MAX)
    };
    Arc::new((0..rows).map(count).collect::<Int32Array>())
}

static NUM_NULLS: Plain = Plain {
    name: "num_nulls",
    takes: any,
    gives: |_| DataType::Int32,
    run: |arguments| Ok(count(arguments, true)),
};

static NUM_NONNULLS: Plain = Plain {
    name: "num_nonnulls",
    takes: any,
    gives: |_| DataType::Int32,
    run: |arguments| Ok(count(arguments, false)),
};

static FACTORIAL: Plain = Plain {
    name: "factorial",
    takes: |types| all(types, 1, is_whole, &DataType::Int64),
    gives: |_| DataType::Decimal128(38, 0),
    run: |arguments| {
        let factorial = |number: i64| {
            if number < 0 {
                let message = "factorial of a negative number is undefined";
                return Err(SqlError::new("22003", message));
            }
            let product = (1..=i128::from(number)).try_fold(1_i128, |product, factor| {
                product.checked_mul(factor).filter(|product| *product < 10_i128.pow(38))
            });
            product.ok_or_else(|| SqlError::new("22003", "value overflows numeric format"))
        };
        let numbers = wholes(&arguments[0])?;
        let products = numbers.iter().map(|number| number.map(factorial).transpose());
        let products: Decimal128Array = products.collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(products.with_precision_and_scale(38, 0)?))
    },
};

static CEILING: Plain = Plain {
    name: "ceiling",
    takes: |types| match types {
        [data_type @ DataType::Decimal128(..)] => Some(vec![data_type.clone()]),
        _ => all(types, 1, is_number, &DataType::Float64),
    },
    gives: |types| match types {
        [DataType::Decimal128(..)] => DataType::Decimal128(38, 0),
        _ => DataType::Float64,
    },
    run: |arguments| {
        if let DataType::Decimal128(_, scale) = arguments[0].data_type() {
            let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let up = |value: i128| -(-value).div_euclid(unit);
            let rounded: Decimal128Array = arguments[0].as_primitive::<Decimal128Type>().unary(up);
            return Ok(cast(
                &rounded.with_precision_and_scale(38, 0)?,
                &DataType::Decimal128(38, 0),
            )?);
        }
        of_double(&arguments[0], |value| Ok(value.ceil()))
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_postgresql() {
        for (value, low, high, count, expected) in [
            (5.35, 0.024, 10.06, 5, Ok(3)),
            (-1.0, 0.0, 10.0, 5, Ok(0)),
            (10.0, 0.0, 10.0, 5, Ok(6)),
            (5.0, 10.0, 0.0, 5, Ok(3)),
            (5.0, 0.0, 10.0, 0, Err("2201G")),
            (5.0, 1.0, 1.0, 3, Err("2201G")),
        ] {
            let bucket = width_bucket(value, low, high, count).map_err(|error| error.sqlstate);
            assert_eq!(bucket, expected.map_err(str::to_owned), "{value} {low} {high} {count}");
        }
    }

    #[test]
    fn degrees_are_exact_where_they_can_be() {
        assert_eq!((sind(30.0), sind(-150.0), sind(180.0)), (0.5, -0.5, 0.0));
        assert_eq!((cosd(60.0), cosd(90.0), cosd(240.0)), (0.5, 0.0, -0.5));
        assert_eq!((tand(45.0), tand(135.0), tand(0.0)), (1.0, -1.0, 0.0));
        assert_eq!((asind(0.5), acosd(0.5), asind(1.0)), (30.0, 60.0, 90.0));
    }
}

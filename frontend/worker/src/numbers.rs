//! Functions of numbers that DataFusion does not have, as PostgreSQL has them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::error::SqlError;
use crate::number_text::TO_NUMBER;
use crate::plain::{Plain, all, doubles, is_number, is_whole, of_double, wholes};

/// The functions.
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

fn one_double(of: &[DataType]) -> Option<Vec<DataType>> {
    all(of, 1, is_number, &DataType::Float64)
}

/// An argument is a decimal where all are exact, else a double.
fn bucket_types(of: &[DataType]) -> Option<Vec<DataType>> {
    match of {
        [value, low, high, count]
            if [value, low, high].iter().all(|of| is_number(of)) && is_whole(count) =>
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
    run: |of| {
        let values = doubles(&of[0])?;
        if let [_, bounds] = of {
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
                let below = bounds
                    .values()
                    .partition_point(|bound| bound.total_cmp(&value).is_le() || *bound == value);
                Ok(i32::try_from(below).ok())
            };
            return Ok(Arc::new((0..values.len()).map(bucket).collect::<Result<Int32Array>>()?));
        }
        let (lows, highs, counts) = (doubles(&of[1])?, doubles(&of[2])?, wholes(&of[3])?);
        let bucket = |row: usize| {
            if of.iter().any(|of| of.is_null(row)) {
                return Ok(None);
            }
            let (value, low, high) = (values.value(row), lows.value(row), highs.value(row));
            width_bucket(value, low, high, counts.value(row)).map(Some)
        };
        Ok(Arc::new((0..values.len()).map(bucket).collect::<Result<Int32Array, SqlError>>()?))
    },
};

/// The number of the bucket, of equal ones between two bounds, that a value lies in; 0 before them, one more behind.
fn width_bucket(value: f64, low: f64, high: f64, count: i64) -> Result<i32, SqlError> {
    let invalid = |message: &str| SqlError::new("2201G", message);
    if count <= 0 {
        return Err(invalid("count must be greater than zero"));
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return Err(invalid("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(invalid("lower and upper bounds must be finite"));
    }
    let beyond = count.checked_add(1).and_then(|count| i32::try_from(count).ok());
    let beyond = beyond.ok_or_else(|| SqlError::new("22003", "integer out of range"))?;
    let (before, behind) = match low.total_cmp(&high) {
        std::cmp::Ordering::Less => (value < low, value >= high),
        std::cmp::Ordering::Greater => (value > low, value <= high),
        std::cmp::Ordering::Equal => {
            return Err(invalid("lower bound cannot equal upper bound"));
        }
    };
    if before {
        return Ok(0);
    }
    if behind {
        return Ok(beyond);
    }
    #[expect(clippy::cast_precision_loss, reason = "it fits 32 bits")]
    let share = count as f64 * ((value - low) / (high - low));
    #[expect(clippy::cast_possible_truncation, reason = "not beyond the count")]
    let bucket = share.floor() as i32;
    Ok((bucket + 1).min(beyond - 1))
}

static SIND: Plain = Plain {
    name: "sind",
    takes: one_double,
    gives: double,
    run: |of| of_double(&of[0], |degrees| of_degrees(degrees, sind)),
};

static COSD: Plain = Plain {
    name: "cosd",
    takes: one_double,
    gives: double,
    run: |of| of_double(&of[0], |degrees| of_degrees(degrees, cosd)),
};

static TAND: Plain = Plain {
    name: "tand",
    takes: one_double,
    gives: double,
    run: |of| of_double(&of[0], |degrees| of_degrees(degrees, tand)),
};

static COTD: Plain = Plain {
    name: "cotd",
    takes: one_double,
    gives: double,
    run: |of| of_double(&of[0], |degrees| of_degrees(degrees, |of| plus_zero(1.0 / tand(of)))),
};

fn of_degrees(degrees: f64, compute: fn(f64) -> f64) -> Result<f64, SqlError> {
    if degrees.is_infinite() { Err(out_of_range()) } else { Ok(compute(degrees)) }
}

/// Without the sign of zero.
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
    let of_45 = sine_to_90(45.0) / cosine_to_90(45.0);
    plus_zero(sign * (sine_to_90(rest) / cosine_to_90(rest) / of_45))
}

fn within_one(value: f64, compute: fn(f64) -> f64) -> Result<f64, SqlError> {
    if value.abs() > 1.0 { Err(out_of_range()) } else { Ok(compute(value)) }
}

static ASIND: Plain = Plain {
    name: "asind",
    takes: one_double,
    gives: double,
    run: |of| of_double(&of[0], |value| within_one(value, |of| asind(of.abs()).copysign(of))),
};

static ACOSD: Plain = Plain {
    name: "acosd",
    takes: one_double,
    gives: double,
    run: |of| {
        of_double(&of[0], |value| {
            within_one(value, |of| if of >= 0.0 { acosd(of) } else { 90.0 + asind(-of) })
        })
    },
};

/// The degrees of a sine from 0 to 1.
fn asind(sine: f64) -> f64 {
    if sine <= 0.5 {
        sine.asin() / 0.5_f64.asin() * 30.0
    } else {
        90.0 - sine.acos() / 0.5_f64.acos() * 60.0
    }
}

/// The degrees of a cosine from 0 to 1.
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
    run: |of| of_double(&of[0], |value| Ok(value.atan() / 1_f64.atan() * 45.0)),
};

static ATAN2D: Plain = Plain {
    name: "atan2d",
    takes: |of| all(of, 2, is_number, &DataType::Float64),
    gives: double,
    run: |of| {
        let (left, right) = (doubles(&of[0])?, doubles(&of[1])?);
        let degrees = |y: f64, x: f64| y.atan2(x) / 1_f64.atan() * 45.0;
        Ok(Arc::new(arrow::compute::binary::<_, _, _, arrow::datatypes::Float64Type>(
            &left, &right, degrees,
        )?))
    },
};

/// Exact numbers as decimals.
fn decimal_type(of: &[DataType]) -> Option<Vec<DataType>> {
    match of {
        [of @ DataType::Decimal128(..)] => Some(vec![of.clone()]),
        [of] if is_whole(of) => Some(vec![DataType::Decimal128(20, 0)]),
        // What is written with a point.
        [DataType::Float64] => Some(vec![DataType::Float64]),
        _ => None,
    }
}

/// The digits behind the point of each number.
fn scales(of: &ArrayRef, least: bool) -> Result<ArrayRef> {
    let scale_of = |text: &str| {
        let part = text.split_once('.').map_or("", |(_, part)| part);
        let part = if least { part.trim_end_matches('0') } else { part };
        i32::try_from(part.len()).unwrap_or(i32::MAX)
    };
    let made: Int32Array = match of.data_type() {
        DataType::Decimal128(..) => {
            let of = of.as_primitive::<Decimal128Type>();
            (0..of.len())
                .map(|row| of.is_valid(row).then(|| scale_of(&of.value_as_string(row))))
                .collect()
        }
        _ => doubles(of)?.iter().map(|of| of.map(|of| scale_of(&of.to_string()))).collect(),
    };
    Ok(Arc::new(made))
}

static SCALE: Plain = Plain {
    name: "scale",
    takes: decimal_type,
    gives: |_| DataType::Int32,
    run: |of| scales(&of[0], false),
};

static MIN_SCALE: Plain = Plain {
    name: "min_scale",
    takes: decimal_type,
    gives: |_| DataType::Int32,
    run: |of| scales(&of[0], true),
};

fn any(of: &[DataType]) -> Option<Vec<DataType>> {
    (!of.is_empty()).then(|| of.to_vec())
}

/// How many of the arguments of each row are NULL, or are not.
fn count(of: &[ArrayRef], nulls: bool) -> ArrayRef {
    let rows = of.first().map_or(0, |of| of.len());
    let masks: Vec<_> = of.iter().map(|of| of.logical_nulls()).collect();
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
    run: |of| Ok(count(of, true)),
};

static NUM_NONNULLS: Plain = Plain {
    name: "num_nonnulls",
    takes: any,
    gives: |_| DataType::Int32,
    run: |of| Ok(count(of, false)),
};

static FACTORIAL: Plain = Plain {
    name: "factorial",
    takes: |of| all(of, 1, is_whole, &DataType::Int64),
    gives: |_| DataType::Decimal128(38, 0),
    run: |of| {
        let factorial = |of: i64| {
            if of < 0 {
                let message = "factorial of a negative number is undefined";
                return Err(SqlError::new("22003", message));
            }
            let product = (1..=i128::from(of)).try_fold(1_i128, |product, factor| {
                product.checked_mul(factor).filter(|product| *product < 10_i128.pow(38))
            });
            product.ok_or_else(|| SqlError::new("22003", "value overflows numeric format"))
        };
        let numbers = wholes(&of[0])?;
        let made = numbers.iter().map(|of| of.map(factorial).transpose());
        let made: Decimal128Array = made.collect::<Result<_, SqlError>>()?;
        Ok(Arc::new(made.with_precision_and_scale(38, 0)?))
    },
};

static CEILING: Plain = Plain {
    name: "ceiling",
    takes: |of| match of {
        [of @ DataType::Decimal128(..)] => Some(vec![of.clone()]),
        _ => all(of, 1, is_number, &DataType::Float64),
    },
    gives: |of| match of {
        [DataType::Decimal128(..)] => DataType::Decimal128(38, 0),
        _ => DataType::Float64,
    },
    run: |of| {
        if let DataType::Decimal128(_, scale) = of[0].data_type() {
            let unit = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let up = |value: i128| -(-value).div_euclid(unit);
            let made: Decimal128Array = of[0].as_primitive::<Decimal128Type>().unary(up);
            return Ok(cast(&made.with_precision_and_scale(38, 0)?, &DataType::Decimal128(38, 0))?);
        }
        of_double(&of[0], |value| Ok(value.ceil()))
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

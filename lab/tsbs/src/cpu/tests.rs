//! The data set has the properties that TSBS documents.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::civil::SECOND_NS;

const START: i64 = 1_451_606_400 * SECOND_NS;

pub(crate) fn spec(hosts: u32, rows: u64) -> Spec {
    Spec { hosts, start_ns: START, interval: Duration::from_secs(10), rows, seed: 123 }
}

fn all(spec: Spec, chunk: usize) -> Rows {
    let mut generator = Generator::new(spec);
    let mut joined = Rows::default();
    while let Some(rows) = generator.next(chunk) {
        joined.hosts.extend(rows.hosts);
        joined.times.extend(rows.times);
        for (column, values) in joined.fields.iter_mut().zip(rows.fields) {
            column.extend(values);
        }
    }
    joined
}

#[test]
fn rows_come_time_by_time_and_host_by_host() {
    let rows = all(spec(7, 7 * 30), 11);
    assert_eq!(rows.len(), 210);
    for row in 0..rows.len() {
        assert_eq!(rows.hosts[row] as usize, row % 7);
        assert_eq!(rows.times[row], START + (row as i64 / 7) * 10 * SECOND_NS);
    }
}

#[test]
fn the_same_seed_gives_the_same_rows_however_they_are_cut() {
    assert_eq!(all(spec(5, 500), 1), all(spec(5, 500), 499));
    let reseeded = Spec { seed: 124, ..spec(5, 500) };
    assert_ne!(all(spec(5, 500), 100).fields, all(reseeded, 100).fields);
}

#[test]
fn a_hosts_values_do_not_depend_on_the_other_hosts() {
    let (few, many) = (all(spec(3, 300), 50), all(spec(9, 900), 50));
    for interval in 0..100 {
        for host in 0..3 {
            for field in 0..10 {
                let (value, column) = (few.fields[field][interval * 3 + host], &many.fields[field]);
                assert_eq!(value, column[interval * 9 + host]);
            }
        }
    }
    assert_eq!(hosts(&spec(3, 0)), hosts(&spec(9, 0))[..3]);
}

#[test]
fn tags_have_the_documented_values_in_even_shares() {
    let hosts = hosts(&spec(20_000, 0));
    let mut counts: Vec<BTreeMap<String, u32>> = vec![BTreeMap::new(); TAGS.len()];
    for host in &hosts {
        for (tag, value) in host.tags().into_iter().enumerate() {
            *counts[tag].entry(value.into_owned()).or_default() += 1;
        }
    }
    let distinct: Vec<usize> = counts.iter().map(BTreeMap::len).collect();
    let datacenters: usize = REGIONS.iter().map(|(_, letters)| letters.len()).sum();
    assert_eq!(distinct, [20_000, 9, datacenters, 100, 3, 2, 4, 20, 2, 3]);
    for tag in [1, 3, 4, 5, 6, 7, 8, 9] {
        let even = 20_000.0 / counts[tag].len() as f64;
        for (value, count) in &counts[tag] {
            let deviation = (f64::from(*count) - even).abs() / even.sqrt();
            assert!(deviation < 5.0, "{} {value}: {count} of about {even}", TAGS[tag]);
        }
    }
    for host in &hosts {
        let [_, region, datacenter, ..] = host.tags();
        let letter = datacenter.strip_prefix(region.as_ref()).expect("a datacenter of its region");
        let (_, letters) = REGIONS.iter().find(|(name, _)| *name == region).unwrap();
        assert!(letters.contains(&letter), "{datacenter}");
    }
    assert_eq!(hosts[17].tags()[0], "host_17");
}

#[test]
fn fields_begin_evenly_and_stay_within_bounds() {
    let rows = all(spec(10_000, 10_000), 10_000);
    for field in &rows.fields {
        let mut tens = [0_u32; 10];
        for value in field {
            tens[usize::try_from(*value / 10).unwrap()] += 1;
        }
        assert!(tens.iter().all(|count| (850..1_150).contains(count)), "{tens:?}");
    }
    // Long walks reach both bounds and never pass them.
    let rows = all(spec(20, 20 * 20_000), 5_000);
    for field in &rows.fields {
        let values: BTreeSet<i64> = field.iter().copied().collect();
        assert_eq!((values.first(), values.last()), (Some(&0), Some(&100)));
        assert_eq!(values.len(), 101);
    }
}

#[test]
fn steps_are_normal_with_variance_one() {
    // Away from the bounds. Truncation of both ends adds 2/12 to the variance of a step less what
    // it takes from neither: two independent rounding errors of variance 1/12 each.
    let hosts = 50;
    let rows = all(spec(hosts, u64::from(hosts) * 2_000), 5_000);
    let (mut count, mut sum, mut squares, mut within_two) = (0_u32, 0.0, 0.0, 0_u32);
    for field in &rows.fields {
        for row in hosts as usize..rows.len() {
            let (previous, current) = (field[row - hosts as usize], field[row]);
            if (10..90).contains(&previous) {
                let step = (current - previous) as f64;
                count += 1;
                sum += step;
                squares += step * step;
                within_two += u32::from(step.abs() <= 2.0);
            }
        }
    }
    let mean = sum / f64::from(count);
    let variance = squares / f64::from(count) - mean * mean;
    assert!(mean.abs() < 0.01, "mean {mean} of {count}");
    assert!((variance - (1.0 + 2.0 / 12.0)).abs() < 0.02, "variance {variance} of {count}");
    let share = f64::from(within_two) / f64::from(count);
    assert!((0.96..0.995).contains(&share), "{share} within two");
}

#[test]
fn the_rows_of_a_host_are_those_that_it_has_among_others() {
    let spec = spec(7, 7 * 30 + 3);
    let mixed = all(spec.clone(), 11);
    for host in 0..7 {
        let host_rows = rows_of(&spec, host);
        let places: Vec<usize> = (0..mixed.len()).filter(|row| mixed.hosts[*row] == host).collect();
        assert_eq!(host_rows.len(), places.len());
        for (row, place) in places.into_iter().enumerate() {
            assert_eq!((host_rows.hosts[row], host_rows.times[row]), (host, mixed.times[place]));
            for (column, mixed_column) in host_rows.fields.iter().zip(&mixed.fields) {
                assert_eq!(column[row], mixed_column[place]);
            }
        }
    }
}

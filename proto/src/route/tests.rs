//! Maps against a search through all their routes.

use proptest::prelude::*;

use super::*;
use crate::array::array_of;
use crate::domain::Domains;
use crate::id::ColumnId;
use crate::placement::Placement;
use crate::samples;
use crate::schema::ColumnType;
use crate::value::Value;

fn ids() -> impl Iterator<Item = PartitionId> {
    (1..).map(PartitionId)
}

/// The map of cuts that may come in any order and more than once.
fn map_of(codec: &KeyCodec, mut cuts: Vec<Bound>) -> PartitionMap {
    cuts.sort_by_key(|cut| codec.encode_bound(cut).unwrap());
    cuts.dedup_by_key(|cut| codec.encode_bound(cut).unwrap());
    cuts.retain(|cut| !codec.encode_bound(cut).unwrap().is_empty());
    PartitionMap::from_cuts(codec, &cuts, ids(), Epoch(1)).unwrap()
}

/// A table, cuts of its key space (some of them rows or prefixes of rows) and rows.
fn tables() -> impl Strategy<Value = (Vec<ColumnType>, bool, Vec<Bound>, Vec<Bound>)> {
    samples::keyed_rows(any::<bool>(), 0..40).prop_flat_map(|(types, placed, rows)| {
        let cut = (samples::bound(&types, placed), 0..=types.len());
        let cuts = proptest::collection::vec(cut, 0..8);
        (Just(types), Just(placed), cuts, Just(rows)).prop_map(|(types, placed, cuts, rows)| {
            let shorten = |(cut, columns): (Bound, usize)| Bound {
                placement: cut.placement,
                key: cut.key[..columns].to_vec(),
            };
            let mut cuts: Vec<Bound> = cuts.into_iter().map(shorten).collect();
            cuts.extend(rows.iter().take(2).cloned());
            (types, placed, cuts, rows)
        })
    })
}

proptest! {
    #[test]
    fn every_key_has_exactly_one_route((types, placed, cuts, rows) in tables()) {
        let schema = samples::schema(&types);
        let codec = KeyCodec::new(&schema, &samples::placement(placed)).unwrap();
        let map = map_of(&codec, cuts);
        let keys = codec.encode(&samples::batch(&schema, placed, &rows)).unwrap();
        for key in keys.iter() {
            let owners: Vec<_> =
                map.routes().iter().filter(|route| route.keys.contains(key)).collect();
            prop_assert_eq!(owners.len(), 1);
            prop_assert_eq!(map.find(key), owners[0]);
        }
        for route in map.routes() {
            prop_assert_eq!(&codec.range(&route.range).unwrap(), &route.keys);
        }
    }

    #[test]
    fn a_cut_is_what_finding_row_by_row_gives(
        (types, placed, cuts, mut rows) in tables(),
        sorted in any::<bool>(),
    ) {
        let schema = samples::schema(&types);
        let codec = KeyCodec::new(&schema, &samples::placement(placed)).unwrap();
        let map = map_of(&codec, cuts);
        if sorted {
            rows.sort_by_key(|row| codec.encode_bound(row).unwrap());
        }
        let keys = codec.encode(&samples::batch(&schema, placed, &rows)).unwrap();
        let mut expected: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (row, key) in (0..).zip(keys.iter()) {
            expected.entry(map.position(key)).or_default().push(row);
        }
        match map.cut(&keys) {
            Cut::One(position) => {
                prop_assert_eq!(expected.into_keys().collect::<Vec<_>>(), vec![position]);
            }
            Cut::Many(parts) => {
                prop_assert!(parts.len() != 1, "one part is not many");
                let parts: Vec<_> =
                    parts.iter().map(|(at, rows)| (*at, rows.values().to_vec())).collect();
                prop_assert_eq!(parts, expected.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn pruning_keeps_exactly_the_routes_that_overlap(
        (types, placed, cuts, rows) in tables(),
        ends in proptest::collection::vec(any::<[proptest::sample::Index; 2]>(), 0..4),
    ) {
        prop_assume!(!rows.is_empty());
        let schema = samples::schema(&types);
        let codec = KeyCodec::new(&schema, &samples::placement(placed)).unwrap();
        let map = map_of(&codec, cuts);
        let key = |at: &proptest::sample::Index| codec.encode_bound(at.get(&rows)).unwrap();
        let ranges: Vec<KeyRange> = ends
            .iter()
            .map(|[start, end]| KeyRange { start: key(start), end: Some(key(end)) })
            .collect();
        let expected: Vec<usize> = map
            .routes()
            .iter()
            .enumerate()
            .filter(|(_, route)| {
                ranges.iter().any(|range| !range.is_empty() && range.overlaps(&route.keys))
            })
            .map(|(position, _)| position)
            .collect();
        prop_assert_eq!(map.prune(&ranges), expected);
        prop_assert_eq!(map.prune(&[KeyRange::all()]).len(), map.routes().len());
    }

    #[test]
    fn pruning_never_drops_a_partition_that_holds_a_matching_row(
        (types, placed, cuts, rows) in tables(),
        domains in proptest::collection::vec(any::<u32>(), 3),
        partitions in 1..40_u16,
    ) {
        let schema = samples::schema(&types);
        let placement = samples::placement(placed);
        let codec = KeyCodec::new(&schema, &placement).unwrap();
        let map = if placed {
            PartitionMap::from_cuts(&codec, &hash_cuts(partitions), ids(), Epoch(1)).unwrap()
        } else {
            map_of(&codec, cuts)
        };
        // Domains of the values of some of the rows, so that there is something to find.
        let mut wanted = Domains::default();
        for (column, choice) in (0..types.len()).zip(&domains) {
            let values = rows
                .iter()
                .enumerate()
                .filter(|(row, _)| (choice >> (row % 32)) & 1 == 1)
                .map(|(_, row)| row.key[column].clone());
            if !choice.is_multiple_of(5) {
                wanted.restrict(&format!("k{column}"), crate::domain::Domain::points(values));
            }
        }
        let kept = map.prune(&codec.key_ranges(&schema, &placement, &wanted));
        for row in &rows {
            let matches = (0..).zip(&row.key).all(|(column, value)| {
                wanted.get(&format!("k{column}")).is_none_or(|domain| domain.contains(value))
            });
            if matches {
                let placement = placed.then(|| {
                    let column = array_of(types[0], &row.key[..1]).unwrap();
                    crate::hash::bucket(crate::hash::hash64(&[column]).unwrap()[0])
                });
                let bound = Bound { placement, key: row.key.clone() };
                let position = map.position(&codec.encode_bound(&bound).unwrap());
                prop_assert!(kept.contains(&position), "{} of {:?}", bound, wanted);
            }
        }
    }
}

fn int(value: i64) -> Bound {
    Bound { placement: None, key: vec![Value::Int(value)] }
}

fn codec() -> KeyCodec {
    KeyCodec::new(&samples::schema(&[ColumnType::Int64]), &Placement::Range).unwrap()
}

fn route(partition: u64, start: Bound, end: Bound) -> Route {
    Route::new(&codec(), PartitionId(partition), TypedRange { start, end }, Epoch(1)).unwrap()
}

#[test]
fn routes_that_do_not_tile_are_refused() {
    let end = Bound::default;
    let cases = [
        (vec![], "a table needs at least one partition"),
        (
            vec![route(1, int(0), end())],
            "the first partition (1) does not start at the beginning of the key space",
        ),
        (
            vec![route(1, end(), int(0))],
            "the last partition (1) does not go to the end of the key space",
        ),
        (
            vec![route(1, end(), int(0)), route(2, int(1), end())],
            "partition 2 does not start where partition 1 ends",
        ),
        (
            vec![route(1, end(), int(5)), route(2, int(5), int(5)), route(3, int(5), end())],
            "the range of partition 2 is empty",
        ),
        (vec![route(1, end(), int(5)), route(1, int(5), end())], "partition 1 has two ranges"),
    ];
    for (routes, message) in cases {
        let expected = Error::InvalidInput(message.to_owned());
        assert_eq!(PartitionMap::new(routes).unwrap_err(), expected);
    }
}

#[test]
fn cuts_have_to_ascend_and_are_kept_in_the_key_s_types() {
    let make = |cuts: &[Bound]| PartitionMap::from_cuts(&codec(), cuts, ids(), Epoch(1));
    let error = make(&[int(5), int(3)]).unwrap_err();
    assert_eq!(error.to_string(), "partition bounds must ascend, but (3) comes after (5)");
    assert!(make(&[int(5), int(5)]).is_err());
    assert!(make(&[Bound::default()]).is_err());
    let few = PartitionMap::from_cuts(&codec(), &[int(5)], [PartitionId(1)], Epoch(1));
    assert!(few.is_err());
    let text = Bound { placement: None, key: vec![Value::String("7".to_owned())] };
    let map = make(&[text]).unwrap();
    assert_eq!(map.routes()[1].range.start, int(7));
    assert_eq!(map.route(PartitionId(2)), Some(&map.routes()[1]));
}

#[test]
fn hash_cuts_divide_the_buckets_evenly() {
    assert_eq!(hash_cuts(0), []);
    assert_eq!(hash_cuts(1), []);
    let placements = |n| hash_cuts(n).into_iter().map(|cut| cut.placement.unwrap());
    assert_eq!(placements(4).collect::<Vec<_>>(), [16384, 32768, 49152]);
    assert_eq!(placements(3).collect::<Vec<_>>(), [21845, 43690]);
    assert_eq!(placements(u16::MAX).count(), 65534);
    assert!(placements(u16::MAX).is_sorted());
    let schema = samples::schema(&[ColumnType::Int64]);
    let codec = KeyCodec::new(&schema, &samples::placement(true)).unwrap();
    let map = PartitionMap::from_cuts(&codec, &hash_cuts(8), ids(), Epoch(1)).unwrap();
    assert_eq!(map.routes().len(), 8);
}

#[test]
fn each_rule_has_its_partition() {
    let rule = |value| Rule::Compare {
        column: ColumnId(0),
        comparison: crate::rule::Comparison::Equal,
        value: Value::Int(value),
    };
    let cuts = rule_cuts(&[rule(0), rule(1), rule(2)]);
    assert_eq!(cuts, [Bound::placed(1), Bound::placed(2)]);
    assert_eq!(rule_cuts(&[]), []);
}

#[test]
fn a_batch_without_rows_goes_nowhere() {
    let map = PartitionMap::from_cuts(&codec(), &[int(5)], ids(), Epoch(1)).unwrap();
    assert_eq!(map.cut(&Keys::from_encoded::<&[u8]>([])), Cut::Many(Vec::new()));
}

//! A trace returns exactly what was written, or an error.

use partita_hotspot::workload::{Design, Kind, Op, Reader, Stream, Writer, all, find};

use crate::knobs;

fn record(name: &str, count: usize) -> (Vec<u8>, Vec<(u64, Op)>) {
    let tables = find(name).unwrap().tables(&knobs(Design::UidTs));
    let mut stream = Stream::new(&tables[0].sources, 5);
    let mut writer = Writer::new(Vec::new(), name, &tables[0].shape.widths).unwrap();
    let mut ops = Vec::new();
    let mut op = Op::default();
    for _ in 0..count {
        let (at_us, kind) = stream.next(&mut op).unwrap();
        writer.add(at_us, kind, &op).unwrap();
        ops.push((at_us, op.clone()));
    }
    (writer.finish().unwrap(), ops)
}

#[test]
fn what_is_written_is_read_again() {
    for workload in all() {
        let (bytes, ops) = record(workload.name, 6_000);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        assert_eq!(reader.about(), workload.name);
        assert!(reader.widths().iter().sum::<usize>() >= 8);
        let mut op = Op::default();
        for (at_us, written) in ops {
            let (time_us, kind) = reader.next(&mut op).unwrap().expect("as many as were written");
            assert_eq!((time_us, &op), (at_us, &written), "{}", workload.name);
            assert_eq!(kind == Kind::ScanAhead(0), written.end.is_some(), "{}", workload.name);
        }
        assert!(reader.next(&mut op).unwrap().is_none());
        assert!(reader.next(&mut op).unwrap().is_none(), "the end stays the end");
    }
}

#[test]
fn a_trace_is_compact() {
    let (bytes, ops) = record("W1", 10_000);
    // 16 bytes of key and the time of each.
    assert!(bytes.len() < ops.len() * 22, "{} bytes", bytes.len());
}

#[test]
fn damage_anywhere_is_noticed_and_never_a_panic() {
    let (bytes, ops) = record("W6:scans", 300);
    let count = |bytes: &[u8]| -> Option<usize> {
        let mut reader = Reader::new(bytes).ok()?;
        let (mut op, mut count) = (Op::default(), 0);
        while reader.next(&mut op).ok()?.is_some() {
            count += 1;
        }
        Some(count)
    };
    assert_eq!(count(&bytes), Some(ops.len()));
    for index in 0..bytes.len() {
        assert_eq!(count(&bytes[..index]), None, "cut at {index}");
        let mut damaged = bytes.clone();
        damaged[index] ^= 0x40;
        assert!(count(&damaged).is_none(), "changed at {index}");
    }
}

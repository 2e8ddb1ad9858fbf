//! Against registers in a plain array, and bytes that Redis wrote.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// The registers of elements, computed the plain way.
fn registers(elements: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut registers = vec![0; HLL_REGISTERS];
    for element in elements {
        let (index, value) = place(element);
        registers[index] = value.max(registers[index]);
    }
    registers
}

fn registers_of(bytes: &[u8]) -> Vec<u8> {
    let mut registers = vec![0; HLL_REGISTERS];
    let hyperloglog = HyperLogLog::read(bytes).expect("a header");
    hyperloglog.for_each_register(|index, value| registers[index] = value).expect("all registers");
    registers
}

#[test]
fn hashes_are_those_of_the_reference() {
    // From the reference implementation, seed 0xadc83b19.
    for (text, expected) in [
        ("", 0xd8df_ea65_85bc_9732),
        ("a", 0x53d2_470a_9b43_b1a7),
        ("hello world, hello!", 0xb33d_afe1_88f2_2c2b),
    ] {
        assert_eq!(murmur64a(text.as_bytes(), HASH_SEED), expected, "{text}");
    }
}

#[test]
fn bytes_are_those_of_redis() {
    let mut bytes = new_hyperloglog();
    assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0\x7f\xff");
    // PFADD k a
    assert_eq!(add(&mut bytes, b"a", 3000), Ok(true));
    assert_eq!(bytes, b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x71\xa6\x84\x4e\x57");
    assert_eq!(add(&mut bytes, b"a", 3000), Ok(false));
    assert_eq!(HyperLogLog::read(&bytes).unwrap().estimate(), Ok(1));
}

#[test]
fn self_test_passes() {
    assert_eq!(self_test(), Ok(()));
}

#[test]
fn hyperloglog_refuses_other_bytes() {
    let good = new_hyperloglog();
    assert!(HyperLogLog::read(&good).is_some());
    for cut in 0..HEADER_BYTES {
        assert!(HyperLogLog::read(&good[..cut]).is_none());
    }
    for (at, byte) in [(0, b'h'), (4, 2), (4, DENSE)] {
        let mut bad = good.clone();
        bad[at] = byte;
        assert!(HyperLogLog::read(&bad).is_none(), "byte {at}");
    }
}

proptest! {
    #[test]
    fn registers_are_those_of_the_elements(
        seeds in prop::collection::vec(0u32..100_000, 0..600),
        sparse_max in prop_oneof![Just(0), Just(40), Just(3000)],
    ) {
        let mut bytes = new_hyperloglog();
        let mut model = BTreeSet::new();
        for seed in seeds {
            let element = seed.to_string().into_bytes();
            let covered = HyperLogLog::read(&bytes).unwrap().covers(&element).unwrap();
            model.insert(element.clone());
            prop_assert_eq!(add(&mut bytes, &element, sparse_max), Ok(!covered));
            let hyperloglog = HyperLogLog::read(&bytes).expect("a header");
            prop_assert!(hyperloglog.is_dense() || bytes.len() <= sparse_max || bytes.len() <= HEADER_BYTES + 5);
        }
        let expected = registers(&model);
        prop_assert_eq!(&registers_of(&bytes), &expected);
        let estimate = HyperLogLog::read(&bytes).unwrap().estimate().unwrap();
        // Elements that share a register count once: two pairs of twenty do in one of 15,000 cases, so there is room for some.
        let error = estimate.abs_diff(model.len() as u64) as f64;
        prop_assert!(error <= (model.len() as f64 * 0.04).ceil() + 8.0, "{} for {}", estimate, model.len());
        let mut union = HyperLogLogUnion::default();
        union.add(HyperLogLog::read(&bytes).unwrap()).unwrap();
        prop_assert_eq!(union.estimate(), estimate);
        let mut merged = new_hyperloglog();
        union.write_to(&mut merged, sparse_max).unwrap();
        prop_assert_eq!(&registers_of(&merged), &expected);
        make_dense(&mut bytes).unwrap();
        prop_assert_eq!(&registers_of(&bytes), &expected);
        prop_assert_eq!(HyperLogLog::read(&bytes).unwrap().estimate(), Ok(estimate));
    }

    #[test]
    fn hyperloglog_of_any_bytes_does_not_panic(
        runs in prop::collection::vec(any::<u8>(), 0..200),
        ends_with_zeros in any::<bool>(),
        elements in prop::collection::vec(any::<u32>(), 1..20),
    ) {
        let mut bytes = new_hyperloglog();
        bytes.truncate(HEADER_BYTES);
        bytes.extend_from_slice(&runs);
        if ends_with_zeros {
            // Enough for any register, so that edits happen too.
            bytes.extend_from_slice(&[0x7f, 0xff]);
        }
        let hyperloglog = HyperLogLog::read(&bytes).expect("a header");
        let walked = hyperloglog.for_each_register(|_, _| {});
        prop_assert_eq!(hyperloglog.estimate().is_ok(), walked.is_ok());
        for element in elements {
            let _ = add(&mut bytes, &element.to_le_bytes(), 3000);
        }
        let _ = make_dense(&mut bytes);
    }
}

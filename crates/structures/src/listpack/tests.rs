use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn texts(listpack: ListpackRef<'_>) -> Vec<Vec<u8>> {
    listpack.iter().map(|element| element.text().into_owned()).collect()
}

fn of(elements: &[&[u8]]) -> Listpack {
    let mut listpack = Listpack::new();
    for &element in elements {
        listpack.push(element);
    }
    listpack
}

/// Payloads of DUMP from redis-server 7.0.15, cut down to the listpack inside.
#[test]
fn bytes_equal_those_of_redis() {
    let every_encoding: &[&[u8]] = &[
        b"",
        b"a",
        b"0",
        b"127",
        b"128",
        b"-1",
        b"4095",
        b"-4096",
        b"4096",
        b"-4097",
        b"32767",
        b"-32768",
        b"32768",
        b"-32769",
        b"8388607",
        b"-8388608",
        b"8388608",
        b"2147483647",
        b"-2147483648",
        b"2147483648",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"01",
        b"-0",
        b"+1",
        b"3.5",
    ];
    let cases: &[(&[&[u8]], &str)] = &[
        (
            every_encoding,
            "960000001b00800181610200017f01c08002dfff02cfff02d00002f1001003f1ffef03f1ff7f03f1008003f200800004\
             f2ff7fff04f2ffff7f04f200008004f30000800005f3ffffff7f05f30000008005f4000000800000000009f4ffffffff\
             ffffff7f09f400000000000000800993393232333337323033363835343737353830381482303103822d3003822b3103\
             83332e3504ff",
        ),
        (
            &[b"name", b"Ada", b"age", b"36", b"x", b"-5"],
            "1f0000000600846e616d6505834164610483616765042401817802dffb02ff",
        ),
        (
            &[b"low", b"-inf", b"one", b"1", b"two", b"2.5"],
            "230000000600836c6f7704842d696e6605836f6e650401018374776f0483322e3504ff",
        ),
    ];
    for (elements, bytes) in cases {
        let bytes = hex(bytes);
        assert_eq!(of(elements).bytes(), bytes);
        assert_eq!(validate(&bytes), Ok(elements.len()));
        assert_eq!(texts(ListpackRef::new(&bytes)), *elements);
    }
}

/// Lengths at which the head or the back length changes its size: (length, head, tail) as Redis wrote them.
#[test]
fn long_strings_equal_those_of_redis() {
    for (length, head, tail) in [
        (63, "480000000100bf", "40ff"),
        (64, "4a0000000100e040", "42ff"),
        (125, "870000000100e07d", "7fff"),
        (126, "890000000100e07e", "0180ff"),
        (4095, "0a1000000100efff", "2081ff"),
        (4096, "0e1000000100f000100000", "2085ff"),
        (16377, "074000000100f0f93f0000", "7ffeff"),
        (16378, "094000000100f0fa3f0000", "00ffffff"),
        (16383, "0e4000000100f0ff3f0000", "018084ff"),
        (2097145, "080020000100f0f9ff1f00", "7ffffeff"),
        (2097146, "0a0020000100f0faff1f00", "00ffffffff"),
    ] {
        let text = vec![b'x'; length];
        let listpack = of(&[&text]);
        assert!(listpack.bytes().starts_with(&hex(head)), "{length}");
        assert!(listpack.bytes().ends_with(&hex(tail)), "{length}");
        assert_eq!(listpack.bytes().len(), LISTPACK_BYTES_EMPTY + Element::String(&text).encoded_bytes());
        assert_eq!(validate(listpack.bytes()), Ok(1));
        let view = listpack.view();
        assert_eq!(view.element(view.last().unwrap()), Element::String(&text));
    }
}

#[test]
fn elements_are_found_by_text_whatever_their_encoding() {
    let hash = of(&[b"1", b"x", b"x", b"1", b"-70000", b"y"]);
    let view = hash.view();
    let value_of = |field: &[u8]| view.find(field, 1).map(|at| view.element(view.next(at).unwrap()));
    assert_eq!(value_of(b"x"), Some(Element::Integer(1)));
    assert_eq!(value_of(b"1"), Some(Element::String(b"x")));
    assert_eq!(value_of(b"-70000"), Some(Element::String(b"y")));
    assert_eq!(value_of(b"y"), None, "values are no fields");
    assert_eq!(value_of(b"01"), None);
    // A foreign listpack may hold an integer as text, or wider than needed: it reads all the same.
    let foreign = hex("0e0000000200813502f1050003ff");
    assert_eq!(validate(&foreign), Ok(2));
    let foreign = ListpackRef::new(&foreign);
    assert_eq!(foreign.get(0), Some(Element::String(b"5")));
    assert_eq!(foreign.get(0).unwrap().as_integer(), Some(5));
    assert_eq!(foreign.get(1), Some(Element::Integer(5)));
    assert!(foreign.iter().all(|element| element.eq_bytes(b"5")));
    // Nor need its strings have the shortest head.
    let foreign = hex("100000000200e00278790482617a03ff");
    assert_eq!(validate(&foreign), Ok(2));
    let foreign = ListpackRef::new(&foreign);
    assert_eq!(foreign.find(b"xy", 0), foreign.seek(0));
    assert_eq!(foreign.find(b"az", 0), foreign.seek(1));
}

#[test]
fn texts_that_end_alike_are_told_apart() {
    for length in 1..80 {
        let text = vec![b'a'; length];
        let others = (0..length).map(|at| {
            let mut other = text.clone();
            other[at] = b'b';
            other
        });
        let (longer, shorter) = (vec![b'a'; length + 1], vec![b'a'; length - 1]);
        let listpack = of(&others
            .chain([longer, shorter])
            .collect::<Vec<_>>()
            .iter()
            .map(Vec::as_slice)
            .collect::<Vec<_>>());
        assert_eq!(listpack.view().find(&text, 0), None, "{length}");
        for (index, own) in texts(listpack.view()).iter().enumerate() {
            assert_eq!(listpack.view().find(own, 0), listpack.view().seek(index as i64), "{length}");
        }
    }
}

#[test]
fn count_beyond_its_field_is_unknown_and_still_right() {
    let mut listpack = Listpack::new();
    for number in (0..40_000i64).rev() {
        listpack.reserve_within(8, true, LISTPACK_BYTES_MAX);
        listpack.push_front(number);
    }
    assert_eq!(listpack.bytes()[4..6], 40_000u16.to_le_bytes());
    for number in 40_000..65_600i64 {
        listpack.push(number);
    }
    assert_eq!(listpack.bytes()[4..6], [0xFF, 0xFF]);
    listpack.reserve_within(8, true, LISTPACK_BYTES_MAX);
    let first = listpack.push_front(-1i64);
    assert_eq!(listpack.bytes()[4..6], [0xFF, 0xFF]);
    listpack.remove(first);
    assert_eq!(listpack.len(), 65_600);
    assert_eq!(validate(listpack.bytes()), Ok(65_600));
    assert_eq!(listpack.view().get(-1), Some(Element::Integer(65_599)));
    assert_eq!(listpack.view().get(65_600), None);
    assert_eq!(listpack.view().get(-65_601), None);
    assert_eq!(listpack.remove_range(-100, 1000), 100);
    assert_eq!(listpack.len(), 65_500);
    assert_eq!(listpack.bytes()[4..6], [0xFF, 0xFF], "nobody counted them");
    assert_eq!(validate(listpack.bytes()), Ok(65_500));
}

#[test]
fn corrupt_bytes_are_refused_with_the_rule_they_break() {
    let good = of(&[b"abc", b"5"]).into_bytes();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        validate(&bytes).unwrap_err().0
    };
    assert!(with(&|b| b.truncate(6)).contains("shorter"));
    assert!(with(&|b| b.truncate(10)).contains("another size"));
    assert!(with(&|b| *b.last_mut().unwrap() = 0).contains("end byte"));
    assert!(with(&|b| b[6] = 0xF5).contains("encoding"));
    assert!(with(&|b| b[6] = 0xFF).contains("encoding"));
    assert!(with(&|b| b[6] = 0xBF).contains("beyond"));
    assert!(with(&|b| b[10] = 3).contains("its length"));
    assert!(with(&|b| b[4] = 3).contains("number of elements"));
    // The head of the last entry may not borrow the end byte.
    assert!(validate(&hex("080000000100e0ff")).is_err());
    assert!(validate(&hex("080000000100c0ff")).is_err());
    assert_eq!(validate(&hex("070000000000ff")), Ok(0));
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|value| value.to_string().into_bytes()),
        3 => (-9000i64..9000).prop_map(|value| value.to_string().into_bytes()),
        3 => prop::collection::vec(any::<u8>(), 0..12),
        1 => prop::collection::vec(any::<u8>(), 60..200),
        1 => (4000usize..4200).prop_map(|length| vec![b'z'; length]),
    ]
}

#[derive(Clone, Debug)]
enum Edit {
    Push(Vec<u8>),
    PushFront(Vec<u8>),
    InsertBefore(usize, Vec<u8>),
    InsertAfter(usize, Vec<u8>),
    Replace(usize, Vec<u8>),
    Remove(usize),
    RemoveRange(i64, usize),
    SplitAndAppend(usize),
    Extend(Vec<Vec<u8>>, bool),
    MakeRoom(usize, bool),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || 0usize..64;
    prop_oneof![
        4 => text().prop_map(Edit::Push),
        2 => text().prop_map(Edit::PushFront),
        2 => (at(), text()).prop_map(|(at, text)| Edit::InsertBefore(at, text)),
        2 => (at(), text()).prop_map(|(at, text)| Edit::InsertAfter(at, text)),
        2 => (at(), text()).prop_map(|(at, text)| Edit::Replace(at, text)),
        2 => at().prop_map(Edit::Remove),
        1 => (-20i64..20, 0usize..5).prop_map(|(at, count)| Edit::RemoveRange(at, count)),
        1 => at().prop_map(Edit::SplitAndAppend),
        2 => (prop::collection::vec(text(), 0..5), any::<bool>())
            .prop_map(|(texts, makes_room)| Edit::Extend(texts, makes_room)),
        2 => (0usize..300, any::<bool>()).prop_map(|(bytes, in_front)| Edit::MakeRoom(bytes, in_front)),
    ]
}

/// Reads everything that there is to read.
fn read_all(view: ListpackRef<'_>) -> usize {
    let forward = texts(view);
    let mut backward: Vec<_> = view.iter().rev().map(|element| element.text().into_owned()).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    for (index, text) in forward.iter().enumerate() {
        let (front, back) = (index as i64, index as i64 - forward.len() as i64);
        assert!(view.get(front).unwrap().eq_bytes(text));
        assert!(view.get(back).unwrap().eq_bytes(text));
        let first_of =
            |skip: usize| (0..forward.len()).step_by(skip + 1).find(|&index| forward[index] == *text);
        for skip in 0..2 {
            let found = view.find(text, skip);
            assert_eq!(
                found,
                first_of(skip).and_then(|index| view.seek(index as i64)),
                "{text:?}, skip {skip}"
            );
        }
    }
    assert_eq!(view.len(), forward.len());
    forward.len()
}

proptest! {
    #[test]
    fn edits_agree_with_a_vec(edits in prop::collection::vec(edit(), 1..60)) {
        let mut listpack = Listpack::new();
        let mut model: Vec<Vec<u8>> = Vec::new();
        for edit in edits {
            let position = |at: usize| listpack.view().seek(at as i64);
            match edit {
                Edit::Push(text) => {
                    listpack.push(&text);
                    model.push(text);
                }
                Edit::PushFront(text) => {
                    listpack.push_front(&text);
                    model.insert(0, text);
                }
                Edit::InsertBefore(at, text) => if let Some(position) = position(at) {
                    let new = listpack.insert_before(position, &text);
                    prop_assert!(listpack.view().element(new).eq_bytes(&text));
                    model.insert(at, text);
                },
                Edit::InsertAfter(at, text) => if let Some(position) = position(at) {
                    let new = listpack.insert_after(position, &text);
                    prop_assert!(listpack.view().element(new).eq_bytes(&text));
                    model.insert(at + 1, text);
                },
                Edit::Replace(at, text) => if let Some(position) = position(at) {
                    listpack.replace(position, &text);
                    model[at] = text;
                },
                Edit::Remove(at) => if let Some(position) = position(at) {
                    let next = listpack.remove(position);
                    model.remove(at);
                    prop_assert_eq!(next.is_some(), at < model.len());
                },
                Edit::RemoveRange(index, count) => {
                    let start = if index < 0 { index + model.len() as i64 } else { index };
                    let removed = listpack.remove_range(index, count);
                    if start >= 0 && start < model.len() as i64 {
                        let start = start as usize;
                        let end = (start + count).min(model.len());
                        prop_assert_eq!(removed, model.drain(start..end).count());
                    } else {
                        prop_assert_eq!(removed, 0);
                    }
                }
                Edit::SplitAndAppend(at) => if let Some(position) = position(at) {
                    let tail = listpack.split_off(position);
                    prop_assert_eq!(validate(listpack.bytes()), Ok(at));
                    prop_assert_eq!(texts(tail.view()), &model[at..]);
                    listpack.append(tail.view());
                },
                Edit::Extend(texts, makes_room) => {
                    if makes_room {
                        let bytes = texts.iter().map(|text| Element::String(text).encoded_bytes()).sum();
                        listpack.reserve_exact(bytes);
                        let capacity = listpack.capacity();
                        listpack.extend(&texts);
                        prop_assert_eq!(listpack.capacity(), capacity, "there was room");
                    } else {
                        listpack.extend(&texts);
                    }
                    model.extend(texts);
                }
                Edit::MakeRoom(bytes, in_front) => {
                    listpack.reserve_within(bytes, in_front, LISTPACK_BYTES_MAX);
                    let (text, capacity) = (vec![b'x'; bytes.saturating_sub(8)], listpack.capacity());
                    if in_front {
                        let new = listpack.push_front(&text);
                        prop_assert_eq!(listpack.view().first(), Some(new));
                        model.insert(0, text);
                    } else {
                        let new = listpack.push(&text);
                        prop_assert_eq!(listpack.view().last(), Some(new));
                        model.push(text);
                    }
                    prop_assert!(bytes < 8 || listpack.capacity() == capacity, "there was room");
                }
            }
            prop_assert_eq!(validate(listpack.bytes()), Ok(model.len()));
            prop_assert_eq!(texts(listpack.view()), &model[..]);
        }
        read_all(listpack.view());
        let plain = of(&model.iter().map(Vec::as_slice).collect::<Vec<_>>());
        prop_assert_eq!(listpack.bytes(), plain.bytes(), "the order of edits leaves no trace");
    }

    #[test]
    fn validated_bytes_read_without_panic(
        elements in prop::collection::vec(text(), 0..8),
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = of(&elements.iter().map(Vec::as_slice).collect::<Vec<_>>()).into_bytes();
        for (at, byte) in mutations {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(count) = validate(&bytes) {
            prop_assert_eq!(read_all(ListpackRef::new(&bytes)), count);
        }
    }

    #[test]
    fn arbitrary_bytes_are_judged_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = validate(&bytes);
        // With the outer frame right, so that the entries are looked at.
        if bytes.len() >= LISTPACK_BYTES_EMPTY {
            let size = bytes.len() as u32;
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            bytes[4..6].copy_from_slice(&[0xFF, 0xFF]);
            *bytes.last_mut().unwrap() = END;
            if let Ok(count) = validate(&bytes) {
                prop_assert_eq!(read_all(ListpackRef::new(&bytes)), count);
            }
        }
    }
}
